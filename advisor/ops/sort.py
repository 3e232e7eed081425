"""Costs of sorting and selecting, in comparisons: n log2 n to sort n elements, n to select."""

from advisor.ops.registry import Call, Number, aten, log2, streaming


def _sort_flops(call: Call) -> Number:
    """Sort along `dim` of the first input (default: the last)."""
    shape, dim = call.inputs[0].shape, call.attributes.get("dim")
    return call.inputs[0].numel * log2(shape[-1 if dim is None else dim] if shape else 1.0)


def _search_flops(call: Call) -> Number:
    """A binary search per output element: `searchsorted(sequence, values)`, but `bucketize(values, sequence)`."""
    sequence = call.inputs[0] if call.op == "aten.searchsorted" else call.inputs[-1]
    return call.output_numel * log2(sequence.shape[-1] if sequence.shape else 1.0)


def _suppression_flops(call: Call) -> Number:
    """Inputs (boxes (n, 4), scores): every pair of boxes is compared, with about 12 operations per pair."""
    boxes = call.inputs[0].shape[0]
    return 6 * boxes * (boxes - 1)


# A selection reads every element; its expected cost is a small multiple of n.
_SELECTIONS = aten("topk kthvalue median nanmedian mode unique_consecutive unique_dim_consecutive")
# All elements are sorted as one row.
_UNIQUE = aten("_unique _unique2 unique_dim")
streaming(*aten("sort argsort"), family="sort", attributes=("dim",), flops=_sort_flops)
streaming(*_UNIQUE, family="sort", flops=lambda call: call.inputs[0].numel * log2(call.inputs[0].numel))
streaming(*_SELECTIONS, family="sort", flops=1, per=0)
streaming(*aten("value_selecting_reduction_backward"), family="sort", flops=0)
# Inputs (elements, set): each element is found by binary search in the sorted set.
streaming(*aten("isin"), family="sort", flops=lambda call: call.output_numel * log2(call.inputs[-1].numel))
streaming(*aten("searchsorted bucketize"), family="sort", flops=_search_flops)
streaming("torchvision.nms", family="sort", flops=_suppression_flops)
