"""Costs of normalisations: 5 FLOP per element, or 2 with running statistics, as in fvcore; backward costs twice that.

The five are sum, sum of squares, subtract, scale, shift (fvcore/nn/jit_handles.py, `norm_flop_counter`, affine).
Input and gradient are counted as read once; a device with too small a cache reads them again.
"""

from collections.abc import Mapping
from typing import Any

from advisor.ops.registry import Call, Number, aten, larger, streaming

_FLOPS_WITH_STATISTICS = 5
_FLOPS_WITH_RUNNING_STATISTICS = 2
_BATCH_NORM_FLOPS = {True: _FLOPS_WITH_STATISTICS, False: _FLOPS_WITH_RUNNING_STATISTICS}
"""FLOP per element, by the argument that says whether to train; without it, statistics are always computed."""


def has_running_statistics(op: str, attributes: Mapping[str, Any]) -> bool:
    """Return whether a batch norm uses running statistics, which makes it a single pointwise pass."""
    return op.endswith(("_no_training", "_no_update")) or attributes.get("training") is False


def _batch_norm_flops(call: Call) -> Number:
    return _BATCH_NORM_FLOPS[call.attributes.get("training", True)] * call.inputs[0].numel


def _batch_norm_backward_flops(call: Call) -> Number:
    """Inputs (gradient, normalised tensor, ...) in this order; the gradient may be a single expanded value."""
    numel = larger(call.inputs[0].numel, call.inputs[1].numel)
    return 2 * _BATCH_NORM_FLOPS[call.attributes.get("train", True)] * numel


_WITH_FLAG = aten(
    "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_functional _batch_norm_impl_index "
    "cudnn_batch_norm miopen_batch_norm"
)
_UPDATING = aten("_batch_norm_with_update _batch_norm_with_update_functional")
_EVALUATED = aten("_native_batch_norm_legit_no_training _batch_norm_no_update")
_BACKWARD_WITH_FLAG = aten("native_batch_norm_backward")
_BACKWARD = aten("batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward")
streaming(*_WITH_FLAG, family="norm", attributes=("training",), fusable=True, flops=_batch_norm_flops)
streaming(*_UPDATING, family="norm", fusable=True, flops=_batch_norm_flops)
streaming(*_EVALUATED, family="norm", fusable=True, flops=_FLOPS_WITH_RUNNING_STATISTICS, per=0)
streaming(*_BACKWARD_WITH_FLAG, family="norm", attributes=("train",), fusable=True, flops=_batch_norm_backward_flops)
streaming(*_BACKWARD, family="norm", fusable=True, flops=_batch_norm_backward_flops)

_NORMS = aten("native_layer_norm native_group_norm _fused_rms_norm rms_norm")
_GRADIENTS = aten("native_layer_norm_backward native_group_norm_backward _fused_rms_norm_backward")
streaming(*_NORMS, family="norm", autocast="full on GPUs", fusable=True, flops=_FLOPS_WITH_STATISTICS, per=0)
# Inputs (gradient, normalised tensor, ...).
streaming(*_GRADIENTS, family="norm", autocast="full on GPUs", fusable=True, flops=2 * _FLOPS_WITH_STATISTICS, per=1)

# Square, sum and scale each element; the gradients of length (a dot product) and direction cost twice that.
streaming(*aten("_weight_norm_interface"), family="norm", fusable=True, flops=3, per=0)
streaming(*aten("renorm"), family="norm", autocast="full on GPUs", fusable=True, flops=3, per=0)
streaming(*aten("_weight_norm_interface_backward"), family="norm", fusable=True, flops=6, per=0)

# A pass of synchronised batch norm: two or three operations per element, counted as 2.
_PASSES = """
    batch_norm_stats batch_norm_elemt batch_norm_gather_stats_with_counts batch_norm_backward_reduce
    batch_norm_backward_elemt batch_norm_update_stats
"""
streaming(*aten(_PASSES), family="norm", fusable=True, flops=2, per=0)
