"""Costs of creating tensors: fills and random numbers write each element once, `empty` costs nothing.

A random number counts as 1 FLOP; the generator's own arithmetic depends on the device.
"""

from advisor.ops.registry import Cost, aten, formula, streaming

_FILLS = """
    zeros ones full zeros_like ones_like full_like new_zeros new_ones new_full zero fill _foreach_zero
    arange range linspace logspace eye scalar_tensor triu_indices tril_indices one_hot
    hann_window hamming_window bartlett_window blackman_window kaiser_window fft_fftfreq fft_rfftfreq
"""
_EMPTY = """
    empty empty_like empty_strided empty_permuted empty_quantized new_empty new_empty_strided
    _efficientzerotensor _empty_affine_quantized _empty_per_channel_affine_quantized
"""
_DRAWS = """
    rand randn randint randperm rand_like randn_like randint_like
    uniform normal random exponential cauchy geometric log_normal normal_functional
"""
_DRAWS_FROM_INPUT = """
    bernoulli poisson binomial multinomial _standard_gamma _standard_gamma_grad _sample_dirichlet _dirichlet_grad
    native_dropout _fused_dropout dropout alpha_dropout feature_dropout rrelu_with_noise rrelu_with_noise_functional
"""

formula(*aten(_EMPTY), family="creation")(lambda call: Cost())
# An input, as in `zeros_like` and `rand_like`, gives only its shape and is not read.
formula(*aten(_FILLS), family="creation", fusable=True)(lambda call: call.reading())
formula(*aten(_DRAWS), family="random", fusable=True)(lambda call: call.reading(flops=call.output_numel))
# In place: inputs (destination[, probabilities]).
formula(*aten("bernoulli_"), family="random", fusable=True)(
    lambda call: call.reading(*call.inputs[1:], flops=call.output_numel)
)
streaming(*aten("diag_embed diag vander"), family="creation", fusable=True, flops=0)
# Dropout draws a mask (1 FLOP per element) and applies it (1); both results are outputs.
streaming(*aten(_DRAWS_FROM_INPUT), family="random", fusable=True, flops=1)
