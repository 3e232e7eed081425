"""Costs of reductions: 1 FLOP per input element for a sum or a comparison, more if elements are transformed first.

A variance takes 4 (sum, subtract the mean, square, sum), a norm 2 (raise to the power, sum), and a log-sum-exp 4
(maximum, subtract, exponential, sum).
"""

from advisor.ops.registry import Call, Cost, aten, formula, streaming

_EXTREMES = "amax amin max min aminmax argmax argmin any all equal _is_all_true _is_any_true"
_MEANS = "mean nanmean nansum count_nonzero trace"
_SUMS = "sum prod"
_VARIANCES = "var std var_mean std_mean"
_NORMS = "norm linalg_vector_norm linalg__powsum frobenius_norm nuclear_norm _foreach_norm dist"
_COUNTS = "histc bincount histogram _histogramdd_from_bin_cts"


streaming(*aten(_EXTREMES), *aten(_MEANS), *aten(_COUNTS), family="reduction", fusable=True, flops=1, per=0)
streaming(*aten("_foreach_max"), family="reduction", fusable=True, flops=1, per="inputs")
streaming(*aten(_SUMS), family="reduction", autocast="full", fusable=True, flops=1, per=0)
streaming(*aten(_VARIANCES), family="reduction", fusable=True, flops=4, per=0)
streaming(*aten(_NORMS), family="reduction", autocast="full", fusable=True, flops=2, per="inputs")
streaming(*aten("logsumexp"), family="reduction", autocast="full", fusable=True, flops=4, per=0)


@formula(*aten("_cdist_forward cdist _pdist_forward"), family="reduction", autocast="full")
def _pairwise_distance(call: Call) -> Cost:
    """Inputs (..., rows, features), once or twice: subtract, raise, sum for each feature of each pair."""
    return call.streamed(flops=3 * call.outputs[0].numel * call.inputs[0].shape[-1])


@formula(*aten("_cdist_backward _pdist_backward"), family="reduction", autocast="full")
def _pairwise_distance_backward(call: Call) -> Cost:
    """Inputs (grad of the pairs, (..., rows, features), ...): the gradient costs as much as forward."""
    grad, source = call.inputs[:2]
    return call.streamed(flops=3 * grad.numel * source.shape[-1])


@formula(*aten("_nested_tensor_from_mask_left_aligned"), family="reduction")
def _is_left_aligned(call: Call) -> Cost:
    """Inputs (padded, mask): checks that the true elements of every row come first; only the mask is read."""
    mask = call.inputs[1]
    return Cost(flops=mask.numel, read_bytes=mask.size_bytes, write_bytes=0.0)
