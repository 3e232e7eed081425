"""Costs of operators on sparse tensors, which are two operands: indices (dims, elements) and values (elements, ...).

An element is a row where only the first dimensions are sparse, as in the gradient of an embedding's table.
"""

from advisor.ops.registry import Call, Cost, aten, formula, streaming

_SUFFIX = "[sparse]"


def name_on_sparse(op: str) -> str:
    """Return the name under which an operator is recorded if an operand or the result is sparse."""
    return op.removesuffix("_") + _SUFFIX


def is_on_sparse(op: str) -> bool:
    """Return whether an operator was recorded under such a name."""
    return op.endswith(_SUFFIX)


def _sparse(names: str) -> tuple[str, ...]:
    return tuple(map(name_on_sparse, aten(names)))


# A sparse tensor is made of the tensors that it is given; the other is a question.
formula(*_sparse("_sparse_coo_tensor_with_dims_and_tensors is_coalesced"), family="view")(lambda call: Cost())
streaming(*_sparse("clone"), family="copy", flops=0)


@formula(*_sparse("add"), family="gather")
def _add(call: Call) -> Cost:
    """Inputs (dense tensor, indices, values): adds to the elements at the indices, 1 FLOP each.

    The sum of two sparse tensors (indices, values, indices, values) has the elements of both, one after the other.
    """
    if len(call.inputs) > 3:
        return call.streamed(flops=0.0)
    _, indices, values = call.inputs
    return Cost(
        flops=values.numel,
        read_bytes=indices.size_bytes + 2 * values.size_bytes,
        write_bytes=values.size_bytes,
    )


@formula(*_sparse("_embedding_bag_backward"), family="gather")
def _embedding_bag_backward(call: Call) -> Cost:
    """Inputs (grad (bags, dim), indices, ...): each look-up takes a copy of the gradient of its bag."""
    _, lookups, *_ = call.inputs
    _, values = call.outputs
    return call.reading(lookups, read_bytes=values.size_bytes)


@formula(*_sparse("sparse_mask"), family="gather")
def _sparse_mask(call: Call) -> Cost:
    """Inputs (dense tensor, indices and values of the mask): reads the elements at the indices."""
    _, indices, values = call.inputs
    return call.reading(indices, values)
