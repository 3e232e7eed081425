"""Costs of reductions and scans: 1 FLOP per element for a sum or a comparison, more if elements are transformed first.

A variance takes 4 (sum, subtract the mean, square, sum), a norm 2 (raise to the power, sum), a log-sum-exp 4 (maximum,
subtract, exponential, sum) and a softmax 5 (also a division); its gradient, y x (grad - sum(grad x y)), takes 4.
"""

from advisor.ops.registry import Call, Cost, Number, aten, formula, streaming

_EXTREMES = "amax amin max min aminmax argmax argmin any all equal _is_all_true _is_any_true"
_MEANS = "mean nanmean nansum count_nonzero trace"
_NORMS = "norm linalg_vector_norm linalg__powsum frobenius_norm nuclear_norm _foreach_norm dist"
_COUNTS = "histc bincount histogram _histogramdd_from_bin_cts"
_SOFTMAX = aten("_softmax softmax _safe_softmax _masked_softmax")
_SOFTMAX_BACKWARD = aten("_softmax_backward_data _masked_softmax_backward")
_LOG_SOFTMAX, _LOG_SOFTMAX_BACKWARD = aten("_log_softmax log_softmax"), aten("_log_softmax_backward_data")

streaming(*aten(_EXTREMES), *aten(_MEANS), *aten(_COUNTS), family="reduction", fusable=True, flops=1, per=0)
streaming(*aten("_foreach_max"), family="reduction", fusable=True, flops=1, per="inputs")
streaming(*aten("sum"), family="reduction", autocast="full on GPUs", fusable=True, flops=1, per=0)
streaming(*aten("prod"), family="reduction", autocast="full", fusable=True, flops=1, per=0)
streaming(*aten("var std var_mean std_mean"), family="reduction", fusable=True, flops=4, per=0)
streaming(*aten(_NORMS), family="reduction", autocast="full on GPUs", fusable=True, flops=2, per="inputs")
streaming(*aten("logsumexp"), family="reduction", autocast="full on GPUs", fusable=True, flops=4, per=0)
# CPUs compute a log-softmax in fp32 only inside a cross-entropy, which is where most are.
for _forward, _backward, _autocast in (
    (_SOFTMAX, _SOFTMAX_BACKWARD, "full on GPUs"),
    (_LOG_SOFTMAX, _LOG_SOFTMAX_BACKWARD, "full"),
):
    streaming(*_forward, family="softmax", autocast=_autocast, attributes=("dim",), fusable=True, flops=5)
    streaming(*_backward, family="softmax", autocast=_autocast, attributes=("dim",), fusable=True, flops=4)
streaming(*aten("segment_reduce"), family="reduction", flops=1, per=0)
streaming(*aten("_segment_reduce_backward"), family="reduction", flops=1, per=2)
streaming(*aten("cumsum cumprod"), family="scan", autocast="full on GPUs", attributes=("dim",), flops=1, per=0)
streaming(*aten("cummax cummin _cummax_helper _cummin_helper"), family="scan", flops=1, per=0)
streaming(*aten("logcumsumexp _logcumsumexp"), family="scan", flops=4, per=0)


def _distance_by_pair_flops(call: Call) -> Number:
    """Inputs (..., rows, features), once or twice: subtract, raise, sum for each feature of each pair.

    The gradient, with inputs (grad of the pairs, (..., rows, features), ...), costs as much.
    """
    pairs, rows = call.inputs[:2] if "_backward" in call.op else (call.outputs[0], call.inputs[0])
    return 3 * pairs.numel * rows.shape[-1]


_DISTANCES = aten("_cdist_forward cdist _pdist_forward _cdist_backward _pdist_backward")
streaming(*_DISTANCES, family="reduction", autocast="full", flops=_distance_by_pair_flops)


@formula(*aten("_nested_tensor_from_mask_left_aligned"), family="reduction")
def _is_left_aligned(call: Call) -> Cost:
    """Inputs (padded, mask): checks that the true elements of every row come first; only the mask is read."""
    return Cost(flops=call.inputs[1].numel, read_bytes=call.inputs[1].size_bytes)
