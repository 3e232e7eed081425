from calls import cost, cost_of, indices, tensor

TABLE = tensor(1000, 8)


def test_an_embedding_reads_the_rows_it_gathers_and_not_the_table():
    # 6 indices of 8 bytes and 6 rows of 8 floats: 48 + 192 = 240. Write 192.
    found = cost_of("aten.embedding", [TABLE, indices(2, 3)], [tensor(2, 3, 8)])
    assert (found.flops, found.read_bytes, found.write_bytes) == (0, 240, 192)


def test_rows_that_are_looked_up_again_are_read_again_from_those_that_were_read():
    # Three look-ups in two rows of 8 floats find 2 x (1 - 1/8) = 1.75 of them: 56 bytes of 96, and 40 again.
    for op in ("aten.embedding", "aten._embedding_bag"):
        found = cost_of(op, [tensor(2, 8), indices(3)], [tensor(3, 8)])
        assert (found.revisited_bytes, found.revisited_set_bytes) == (40, 56)


def test_its_dense_gradient_writes_the_whole_table():
    # 48 additions; read 48 * 4 + 48 = 240; write 8000 * 4.
    assert cost_of("aten.embedding_dense_backward", [tensor(2, 3, 8), indices(2, 3)], [TABLE]) == cost(
        flops=48, read_bytes=240, write_bytes=32000
    )


def test_an_embedding_bag_adds_the_rows_of_each_bag():
    # 6 indices in 2 bags: 6 * 8 additions. Read 192 of rows, 48 of indices, 16 of offsets. Write 2 * 8 * 4 = 64, and
    # the bookkeeping: offset2bag 6 * 8, bag_size 2 * 8, max_indices 2 * 8.
    outputs = [tensor(2, 8), indices(6), indices(2), indices(2)]
    found = cost_of("aten._embedding_bag", [TABLE, indices(6), indices(2)], outputs)
    assert (found.flops, found.read_bytes, found.write_bytes) == (48, 256, 144)


def test_weights_per_sample_are_read_too():
    # 6 more floats.
    inputs = [TABLE, indices(6), indices(2), tensor(6)]
    assert cost_of("aten._embedding_bag_forward_only", inputs, [tensor(2, 8)]).read_bytes == 280


def test_the_gradient_of_a_bag_goes_to_every_row_it_looked_up():
    # 6 * 8 additions; the whole table is written.
    found = cost_of("aten._embedding_bag_dense_backward", [tensor(2, 8), indices(6), indices(6)], [TABLE])
    assert (found.flops, found.write_bytes) == (48, 32000)


def test_the_gradient_of_a_weight_per_sample_is_a_dot_product():
    # 6 of 8 multiply-adds: 96. Read grad 64, rows 192, indices 48.
    inputs = [tensor(2, 8), TABLE, indices(6)]
    assert cost_of("aten._embedding_bag_per_sample_weights_backward", inputs, [tensor(6)]) == cost(
        flops=96, read_bytes=304, write_bytes=24
    )


def test_renormalising_touches_the_rows_looked_up():
    # 3 indices: 24 elements squared, summed, scaled. Read 24 of indices and 96 of rows, write 96.
    assert cost_of("aten.embedding_renorm_", [TABLE, indices(3)], [TABLE]) == cost(
        flops=72, read_bytes=120, write_bytes=96
    )
