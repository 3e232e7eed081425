"""Sorting and selecting, counted in comparisons: n log2 n to sort n, n to select."""

from advisor.ops.arithmetic import log2
from advisor.ops.registry import Call, Cost, Number, aten, formula


def _row_length(call: Call) -> Number:
    """The length that is sorted: dimension `dim` (the last one if it is not given) of the first input."""
    shape = call.inputs[0].shape
    if not shape:
        return 1.0
    dim = call.attributes.get("dim")
    return shape[-1 if dim is None else dim]


@formula(*aten("sort argsort"), family="sort", attributes=("dim",))
def _sort(call: Call) -> Cost:
    return call.streamed(flops=call.inputs[0].numel * log2(_row_length(call)))


@formula(*aten("_unique _unique2 unique_dim"), family="sort")
def _unique(call: Call) -> Cost:
    """All elements are sorted as one row."""
    numel = call.inputs[0].numel
    return call.streamed(flops=numel * log2(numel))


@formula(*aten("topk kthvalue median nanmedian mode unique_consecutive unique_dim_consecutive"), family="sort")
def _select(call: Call) -> Cost:
    """A selection looks at every element (its expected cost is a small multiple of n)."""
    return call.streamed(flops=call.inputs[0].numel)


@formula(*aten("value_selecting_reduction_backward"), family="sort")
def _select_backward(call: Call) -> Cost:
    return call.streamed(flops=0.0)


@formula(*aten("isin"), family="sort")
def _is_in(call: Call) -> Cost:
    """Inputs (elements, set): each element is compared with the set, sorted, in log2 steps."""
    return call.streamed(flops=call.output_numel * log2(call.inputs[-1].numel))


@formula(*aten("searchsorted bucketize"), family="sort")
def _search(call: Call) -> Cost:
    """A binary search per output element: `searchsorted(sequence, values)`, but `bucketize(values, sequence)`."""
    sequence = call.inputs[0] if call.op == "aten.searchsorted" else call.inputs[-1]
    return call.streamed(flops=call.output_numel * log2(sequence.shape[-1] if sequence.shape else 1.0))


@formula("torchvision.nms", family="sort")
def _non_maximum_suppression(call: Call) -> Cost:
    """Inputs (boxes (n, 4), scores): every pair of boxes is compared, about 12 operations for an overlap."""
    boxes = call.inputs[0].shape[0]
    return call.streamed(flops=6 * boxes * (boxes - 1))
