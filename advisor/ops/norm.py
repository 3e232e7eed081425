"""Costs of normalisations: 5 FLOP per element, or 2 with running statistics, as in fvcore; backward costs twice that.

The five are sum, sum of squares, subtract, scale, shift (fvcore/nn/jit_handles.py, `norm_flop_counter`, affine).
Input and gradient are counted as read once; a device with too small a cache reads them again.
"""

from advisor.ops.arithmetic import larger
from advisor.ops.registry import Call, Cost, Number, aten, formula

_FLOPS_WITH_STATISTICS = 5
_FLOPS_WITH_RUNNING_STATISTICS = 2


def _batch_norm_flops_per_element(*, training: bool) -> Number:
    return _FLOPS_WITH_STATISTICS if training else _FLOPS_WITH_RUNNING_STATISTICS


@formula(
    *aten("native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_impl_index"),
    *aten("cudnn_batch_norm miopen_batch_norm"),
    family="norm",
    attributes=("training",),
    fusable=True,
)
@formula(*aten("_batch_norm_with_update _batch_norm_with_update_functional"), family="norm", fusable=True)
def _batch_norm(call: Call) -> Cost:
    """Operators without the argument `training` always compute statistics."""
    flops_per_element = _batch_norm_flops_per_element(training=call.attributes.get("training", True))
    return call.streamed(flops=flops_per_element * call.inputs[0].numel)


@formula(*aten("_native_batch_norm_legit_no_training _batch_norm_no_update"), family="norm", fusable=True)
def _batch_norm_with_running_statistics(call: Call) -> Cost:
    return call.streamed(flops=_FLOPS_WITH_RUNNING_STATISTICS * call.inputs[0].numel)


@formula(*aten("native_batch_norm_backward"), family="norm", attributes=("train",), fusable=True)
@formula(*aten("batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward"), family="norm", fusable=True)
def _batch_norm_backward(call: Call) -> Cost:
    """Inputs (gradient, normalised tensor, ...) in this order; the gradient may be a single expanded value."""
    flops_per_element = 2 * _batch_norm_flops_per_element(training=call.attributes.get("train", True))
    return call.streamed(flops=flops_per_element * larger(call.inputs[0].numel, call.inputs[1].numel))


@formula(
    *aten("native_layer_norm native_group_norm _fused_rms_norm rms_norm"), family="norm", autocast="full", fusable=True
)
def _norm(call: Call) -> Cost:
    return call.streamed(flops=_FLOPS_WITH_STATISTICS * call.inputs[0].numel)


@formula(
    *aten("native_layer_norm_backward native_group_norm_backward _fused_rms_norm_backward"),
    family="norm",
    autocast="full",
    fusable=True,
)
def _norm_backward(call: Call) -> Cost:
    """Inputs (gradient, normalised tensor, ...)."""
    return call.streamed(flops=2 * _FLOPS_WITH_STATISTICS * call.inputs[1].numel)


@formula(*aten("_weight_norm_interface"), family="norm", fusable=True)
@formula(*aten("renorm"), family="norm", autocast="full", fusable=True)
def _weight_norm(call: Call) -> Cost:
    """Square, sum and scale each element."""
    return call.streamed(flops=3 * call.inputs[0].numel)


@formula(*aten("_weight_norm_interface_backward"), family="norm", fusable=True)
def _weight_norm_backward(call: Call) -> Cost:
    """The gradients of length (a dot product) and direction cost twice the forward."""
    return call.streamed(flops=6 * call.inputs[0].numel)


@formula(
    *aten("batch_norm_stats batch_norm_elemt batch_norm_gather_stats_with_counts batch_norm_backward_reduce"),
    *aten("batch_norm_backward_elemt batch_norm_update_stats"),
    family="norm",
    fusable=True,
)
def _batch_norm_pass(call: Call) -> Cost:
    """One pass of synchronised batch norm: two or three operations per element, counted as 2."""
    return call.streamed(flops=2 * call.inputs[0].numel)
