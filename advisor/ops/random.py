"""Costs of random numbers: 1 FLOP per number drawn; the generator's own arithmetic depends on the device."""

from advisor.ops.registry import Call, Cost, aten, formula, streaming

_DRAWS = """
    rand randn randint randperm rand_like randn_like randint_like
    uniform normal random exponential cauchy geometric log_normal normal_functional
"""
_DRAWS_FROM_INPUT = """
    bernoulli poisson binomial multinomial _standard_gamma _standard_gamma_grad _sample_dirichlet _dirichlet_grad
    native_dropout _fused_dropout dropout alpha_dropout feature_dropout rrelu_with_noise rrelu_with_noise_functional
"""


@formula(*aten(_DRAWS), family="random", fusable=True)
def _draw(call: Call) -> Cost:
    """An input, as in `rand_like`, gives only its shape and is not read."""
    return Cost(flops=call.output_numel, read_bytes=0.0, write_bytes=call.write_bytes)


# Dropout draws a mask (1 FLOP per element) and applies it (1); both results are outputs.
streaming(*aten(_DRAWS_FROM_INPUT), family="random", fusable=True, flops=1, per="outputs")
