"""Costs of sorting and selecting, in comparisons: n log2 n to sort n elements, n to select."""

from advisor.ops.arithmetic import log2
from advisor.ops.registry import Call, Cost, Number, aten, formula, streaming


def _row_length(call: Call) -> Number:
    """Return the length of the sorted dimension `dim` of the first input (default: the last)."""
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


# A selection reads every element; its expected cost is a small multiple of n.
_SELECTIONS = aten("topk kthvalue median nanmedian mode unique_consecutive unique_dim_consecutive")
streaming(*_SELECTIONS, family="sort", flops=1, per=0)
streaming(*aten("value_selecting_reduction_backward"), family="sort", flops=0, per="outputs")


@formula(*aten("isin"), family="sort")
def _is_in(call: Call) -> Cost:
    """Inputs (elements, set): each element is found by binary search in the sorted set."""
    return call.streamed(flops=call.output_numel * log2(call.inputs[-1].numel))


@formula(*aten("searchsorted bucketize"), family="sort")
def _search(call: Call) -> Cost:
    """A binary search per output element: `searchsorted(sequence, values)`, but `bucketize(values, sequence)`."""
    sequence = call.inputs[0] if call.op == "aten.searchsorted" else call.inputs[-1]
    return call.streamed(flops=call.output_numel * log2(sequence.shape[-1] if sequence.shape else 1.0))


@formula("torchvision.nms", family="sort")
def _non_maximum_suppression(call: Call) -> Cost:
    """Inputs (boxes (n, 4), scores): every pair of boxes is compared, with about 12 operations per pair."""
    boxes = call.inputs[0].shape[0]
    return call.streamed(flops=6 * boxes * (boxes - 1))
