"""Costs of reductions: 1 FLOP per input element for a sum or a comparison, more if elements are transformed first."""

from advisor.ops.registry import Call, Cost, aten, formula

_EXTREMES = "amax amin max min aminmax argmax argmin any all equal _is_all_true _is_any_true"
_MEANS = "mean nanmean nansum count_nonzero trace"
_SUMS = "sum prod"
_VARIANCES = "var std var_mean std_mean"
_NORMS = "norm linalg_vector_norm linalg__powsum frobenius_norm nuclear_norm _foreach_norm dist"
_COUNTS = "histc bincount histogram _histogramdd_from_bin_cts"


@formula(*aten(_EXTREMES), *aten(_MEANS), *aten(_COUNTS), family="reduction", fusable=True)
def _reduction(call: Call) -> Cost:
    return call.streamed(flops=call.inputs[0].numel)


@formula(*aten("_foreach_max"), family="reduction", fusable=True)
def _reduction_of_each(call: Call) -> Cost:
    return call.streamed(flops=sum(tensor.numel for tensor in call.inputs))


@formula(*aten(_SUMS), family="reduction", autocast="full", fusable=True)
def _sum(call: Call) -> Cost:
    return call.streamed(flops=call.inputs[0].numel)


@formula(*aten(_VARIANCES), family="reduction", fusable=True)
def _variance(call: Call) -> Cost:
    """Sum, subtract the mean, square, sum."""
    return call.streamed(flops=4 * call.inputs[0].numel)


@formula(*aten(_NORMS), family="reduction", autocast="full", fusable=True)
def _norm(call: Call) -> Cost:
    """Raise to the power and sum."""
    return call.streamed(flops=2 * sum(tensor.numel for tensor in call.inputs))


@formula(*aten("logsumexp"), family="reduction", autocast="full", fusable=True)
def _logsumexp(call: Call) -> Cost:
    """Maximum, subtract, exponential, sum."""
    return call.streamed(flops=4 * call.inputs[0].numel)


@formula(*aten("_cdist_forward cdist"), family="reduction", autocast="full")
def _pairwise_distance(call: Call) -> Cost:
    """Inputs (..., rows, features) twice: subtract, raise, sum for each feature of each pair."""
    return call.streamed(flops=3 * call.outputs[0].numel * call.inputs[0].shape[-1])


@formula(*aten("_cdist_backward"), family="reduction", autocast="full")
def _pairwise_distance_backward(call: Call) -> Cost:
    """Inputs (grad (..., rows1, rows2), x1 (..., rows1, features), ...): the gradient costs as much as forward."""
    grad, x1 = call.inputs[:2]
    return call.streamed(flops=3 * grad.numel * x1.shape[-1])


@formula(*aten("_pdist_forward"), family="reduction", autocast="full")
def _self_distance(call: Call) -> Cost:
    return call.streamed(flops=3 * call.outputs[0].numel * call.inputs[0].shape[-1])


@formula(*aten("_pdist_backward"), family="reduction", autocast="full")
def _self_distance_backward(call: Call) -> Cost:
    """Inputs (grad (pairs), input (rows, features), ...)."""
    grad, source = call.inputs[:2]
    return call.streamed(flops=3 * grad.numel * source.shape[-1])


@formula(*aten("_nested_tensor_from_mask_left_aligned"), family="reduction")
def _is_left_aligned(call: Call) -> Cost:
    """Inputs (padded, mask): checks that the true elements of every row come first; only the mask is read."""
    mask = call.inputs[1]
    return Cost(flops=mask.numel, read_bytes=mask.size_bytes, write_bytes=0.0)
