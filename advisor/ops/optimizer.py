"""Costs of optimizer steps, which read, update and write every trained element."""

from advisor.ops.registry import Call, Cost, Number, aten, formula, streaming

PAGED = "paged_bytes_per_element"
"""The attribute of an optimizer's row with the bytes of state that its step copies from and to the host's memory."""


@formula("optimizer", family="optimizer")
def _optimizer(call: Call) -> Cost:
    """One step over all parameters. The cost per element depends on the optimizer, so the attributes carry it.

    Inputs, for one parameter with a sparse gradient: (indices, values) of the gradient.
    """
    parts = ("flops", "read_bytes", "write_bytes")
    costs = {part: stepped_elements(call) * call.attributes[f"{part}_per_element"] for part in parts}
    costs["read_bytes"] += sum(indices.size_bytes for indices in call.inputs[:1])
    return Cost(**costs)


def stepped_elements(call: Call) -> Number:
    """Return the elements that a step updates: those of the parameters, or of a sparse gradient."""
    if not call.inputs:
        return call.attributes["element_count"]
    _, values = call.inputs
    return values.numel


# Inputs (parameters..., gradients..., momenta...): weight decay, momentum and update, one multiply-add each.
streaming(*aten("_fused_sgd"), family="optimizer", flops=2, per="inputs")
# Inputs (parameters, gradients, first and second moments, ...): 16 FLOP per parameter, 4 per input. Decay 2;
# m = b1 m + (1 - b1) g: 3; v = b2 v + (1 - b2) g g: 4; bias corrections 2; root, epsilon, quotient, rate and
# difference: 5 (Kingma and Ba 2015, algorithm 1; Loshchilov and Hutter 2019, algorithm 2).
streaming(*aten("_fused_adam _fused_adamw"), family="optimizer", flops=4, per="inputs")
# Inputs (parameters..., gradients..., sums...): 9 FLOP per parameter, 3 per input. Decay 2, s = s + g g: 2; root,
# epsilon, quotient, rate and difference: 5 (Duchi, Hazan and Singer 2011).
streaming(*aten("_fused_adagrad"), family="optimizer", flops=3, per="inputs")
