"""Costs of embedding look-ups: they read only the gathered rows, but a dense gradient writes the whole table.

A row is read again for every look-up, from cache if all distinct rows fit into one.
"""

from advisor.ops.registry import Call, Cost, aten, formula, streaming


@formula(*aten("embedding _embedding_bag _embedding_bag_forward_only"), family="embedding")
def _embedding(call: Call) -> Cost:
    """Inputs (table (rows, dim), indices[, offsets, per_sample_weights]); a bag adds its elements, 1 FLOP for each.

    If all r rows are equally likely, r (1 - (1 - 1 / r)^lookups) distinct ones are read; real look-ups repeat more
    often (Zipf's law).
    """
    table, indices, *others = call.inputs
    is_bag = call.op != "aten.embedding"
    gathered_numel = indices.numel * table.shape[-1] if is_bag else call.outputs[0].numel
    gathered_bytes, rows = gathered_numel * table.itemsize_bytes, table.shape[0]
    distinct_bytes = rows * (1 - (1 - 1 / rows) ** indices.numel) * table.shape[-1] * table.itemsize_bytes
    return Cost(
        flops=gathered_numel if is_bag else 0.0,
        read_bytes=gathered_bytes + sum(tensor.size_bytes for tensor in (indices, *others)),
        write_bytes=call.write_bytes,
        revisited_bytes=gathered_bytes - distinct_bytes,
        revisited_set_bytes=distinct_bytes,
    )


# Inputs (grad_output, indices): 1 addition per element of the gradient into a table of zeros.
streaming(*aten("embedding_dense_backward"), family="embedding", flops=1, per=0)
# Inputs (grad (bags, dim), indices, ...): each index adds its bag's gradient to the row it looked up.
streaming(
    *aten("_embedding_bag_dense_backward _embedding_bag_backward"),
    family="embedding",
    flops=lambda call: call.inputs[1].numel * call.inputs[0].shape[-1],
)


@formula(*aten("embedding_renorm"), family="embedding")
def _embedding_renorm(call: Call) -> Cost:
    """Inputs (table, indices): the indexed rows are read, squared, summed and scaled (3 FLOP), and written."""
    table, indices = call.inputs
    touched_bytes = indices.numel * table.shape[-1] * table.itemsize_bytes
    return Cost(
        flops=3 * indices.numel * table.shape[-1],
        read_bytes=indices.size_bytes + touched_bytes,
        write_bytes=touched_bytes,
    )


@formula(*aten("_embedding_bag_per_sample_weights_backward"), family="embedding")
def _embedding_bag_per_sample_weights_backward(call: Call) -> Cost:
    """Inputs (grad (bags, dim), table, indices, ...): one dot product of bag gradient and row per index."""
    grad, table, indices, *others = call.inputs
    gathered_numel = indices.numel * table.shape[-1]
    gathered_bytes = gathered_numel * table.itemsize_bytes
    return call.reading(grad, indices, *others, read_bytes=gathered_bytes, flops=2 * gathered_numel)
