"""Costs of softmax and log-softmax: 5 FLOP per element (maximum, subtract, exponential, sum, divide), backward 4.

The gradient is y x (grad - sum(grad x y)): multiply, sum, subtract, multiply.
"""

from advisor.ops.registry import aten, streaming

_FORWARD = aten("_softmax _log_softmax softmax log_softmax _safe_softmax _masked_softmax")
_BACKWARD = aten("_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward")

streaming(*_FORWARD, family="softmax", autocast="full", fusable=True, flops=5, per="outputs")
streaming(*_BACKWARD, family="softmax", autocast="full", fusable=True, flops=4, per="outputs")
