"""Look-ups in a table: the gathered rows move, not the table; a dense gradient writes the whole table."""

from advisor.ops.registry import Call, Cost, aten, formula


@formula(*aten("embedding"), family="embedding")
def _embedding(call: Call) -> Cost:
    """Inputs (table (rows, dim), indices)."""
    table, indices = call.inputs
    gathered_bytes = call.outputs[0].numel * table.itemsize_bytes
    return Cost(flops=0.0, read_bytes=indices.size_bytes + gathered_bytes, write_bytes=call.write_bytes)


@formula(*aten("embedding_dense_backward"), family="embedding")
def _embedding_dense_backward(call: Call) -> Cost:
    """Inputs (grad_output, indices): 1 addition per element of the gradient into a table of zeros."""
    return call.streamed(flops=call.inputs[0].numel)


@formula(*aten("embedding_renorm"), family="embedding")
def _embedding_renorm(call: Call) -> Cost:
    """Inputs (table, indices): the rows looked up are read, squared, summed and scaled (3 FLOP), and written."""
    table, indices = call.inputs
    row_numel = table.shape[-1]
    touched_bytes = indices.numel * row_numel * table.itemsize_bytes
    return Cost(
        flops=3 * indices.numel * row_numel,
        read_bytes=indices.size_bytes + touched_bytes,
        write_bytes=touched_bytes,
    )


@formula(*aten("_embedding_bag _embedding_bag_forward_only"), family="embedding")
def _embedding_bag(call: Call) -> Cost:
    """Inputs (table (rows, dim), indices, offsets[, per_sample_weights]): 1 addition per gathered element."""
    table, indices, *others = call.inputs
    gathered_numel = indices.numel * table.shape[-1]
    read_bytes = gathered_numel * table.itemsize_bytes + sum(tensor.size_bytes for tensor in (indices, *others))
    return Cost(flops=gathered_numel, read_bytes=read_bytes, write_bytes=call.write_bytes)


@formula(*aten("_embedding_bag_dense_backward _embedding_bag_backward"), family="embedding")
def _embedding_bag_dense_backward(call: Call) -> Cost:
    """Inputs (grad (bags, dim), indices, ...): each index adds its bag's gradient to the row it looked up."""
    grad, indices = call.inputs[:2]
    return call.streamed(flops=indices.numel * grad.shape[-1])


@formula(*aten("_embedding_bag_per_sample_weights_backward"), family="embedding")
def _embedding_bag_per_sample_weights_backward(call: Call) -> Cost:
    """Inputs (grad (bags, dim), table, indices, ...): a dot product of bag gradient and row for each index."""
    grad, table, indices, *others = call.inputs
    gathered_numel = indices.numel * table.shape[-1]
    read_bytes = gathered_numel * table.itemsize_bytes + sum(tensor.size_bytes for tensor in (grad, indices, *others))
    return Cost(flops=2 * gathered_numel, read_bytes=read_bytes, write_bytes=call.write_bytes)
