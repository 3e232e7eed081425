"""Costs of softmax and log-softmax: 5 FLOP per element (maximum, subtract, exponential, sum, divide), backward 4."""

from advisor.ops.registry import Call, Cost, aten, formula

_FORWARD_FLOPS = 5
_BACKWARD_FLOPS = 4
"""grad_in = y x (grad - sum(grad x y)): multiply, sum, subtract, multiply."""


@formula(
    *aten("_softmax _log_softmax softmax log_softmax _safe_softmax _masked_softmax"),
    family="softmax",
    autocast="full",
    fusable=True,
)
def _softmax(call: Call) -> Cost:
    return call.streamed(flops=_FORWARD_FLOPS * call.outputs[0].numel)


@formula(
    *aten("_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward"),
    family="softmax",
    autocast="full",
    fusable=True,
)
def _softmax_backward(call: Call) -> Cost:
    return call.streamed(flops=_BACKWARD_FLOPS * call.outputs[0].numel)
