from calls import cost, cost_of, indices, tensor

# A gradient of 6 rows of 8, for a table of 1000 rows.
PLACES, VALUES, TABLE = indices(1, 6), tensor(6, 8), tensor(1000, 8)


def test_adding_a_sparse_gradient_moves_the_rows_that_it_has():
    # The indices (6 x 8 bytes), and table and gradient at 48 elements of 4 bytes; each is added and written.
    assert cost_of("aten.add[sparse]", [TABLE, PLACES, VALUES], [TABLE]) == cost(
        flops=48, read_bytes=48 + 2 * 192, write_bytes=192
    )


def test_the_sum_of_two_sparse_tensors_has_the_elements_of_both():
    both = [indices(1, 12), tensor(12, 8)]
    assert cost_of("aten.add[sparse]", [PLACES, VALUES] * 2, both) == cost(flops=0, read_bytes=480, write_bytes=480)


def test_a_mask_reads_the_rows_that_it_has():
    assert cost_of("aten.sparse_mask[sparse]", [TABLE, PLACES, VALUES], [PLACES, VALUES]) == cost(
        flops=0, read_bytes=48 + 192, write_bytes=48 + 192
    )


def test_a_copy_moves_indices_and_values():
    assert cost_of("aten.clone[sparse]", [PLACES, VALUES], [PLACES, VALUES]) == cost(
        flops=0, read_bytes=240, write_bytes=240
    )


def test_each_look_up_of_a_bag_takes_a_copy_of_its_gradient():
    bags = [tensor(2, 8), indices(6), indices(2)]
    assert cost_of("aten._embedding_bag_backward[sparse]", bags, [PLACES, VALUES]) == cost(
        flops=0, read_bytes=240, write_bytes=240
    )
