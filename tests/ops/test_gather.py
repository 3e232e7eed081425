import numpy as np
from calls import cost, cost_of, indices, tensor

TABLE = tensor(1000, 8)


def test_indexing_reads_the_elements_it_picks():
    # 3 rows of 8: 96 bytes, and 24 of indices.
    expected = cost(flops=0, read_bytes=120, write_bytes=96)
    assert cost_of("aten.index", [TABLE, indices(3)], [tensor(3, 8)]) == expected
    assert cost_of("aten.index_select", [TABLE, indices(3)], [tensor(3, 8)]) == expected


def test_gathering_reads_one_element_per_index():
    # 3 * 2 indices: 48 bytes, 24 picked, 24 written.
    assert cost_of("aten.gather", [TABLE, indices(3, 2)], [tensor(3, 2)]) == cost(
        flops=0, read_bytes=72, write_bytes=24
    )


def test_scattering_touches_one_element_per_index():
    # 6 indices: read 48, 24 from the source, 24 of the destination; write 24; 6 additions.
    inputs = [TABLE, indices(3, 2), tensor(3, 8)]
    assert cost_of("aten.scatter_add_", inputs, [TABLE]) == cost(flops=6, read_bytes=96, write_bytes=24)


def test_an_expanded_index_is_read_as_it_is_stored_and_counts_as_expanded():
    # 3 indices of 8 elements each: read 24 of the index, 96 of the source, 96 of the destination; write 96.
    inputs = [TABLE, indices(3, 1), tensor(3, 8)]
    assert cost_of("aten.scatter_add_", inputs, [TABLE]) == cost(flops=24, read_bytes=216, write_bytes=96)


def test_scattering_a_number_reads_no_source():
    # 6 indices: read 48, write 24; only an addition reads what it replaces.
    assert cost_of("aten.scatter_", [TABLE, indices(3, 2)], [TABLE]) == cost(flops=0, read_bytes=48, write_bytes=24)


def test_putting_rows_writes_those_rows():
    # 3 rows of 8: read 96 of values and 24 of indices, to add also 96 of the destination; write 96.
    inputs = [TABLE, indices(3), tensor(3, 8)]
    written, added = cost(flops=0, read_bytes=120, write_bytes=96), cost(flops=24, read_bytes=216, write_bytes=96)
    assert cost_of("aten.index_put_", inputs, [TABLE], accumulate=False) == written
    assert cost_of("aten.index_put_", inputs, [TABLE], accumulate=True) == added
    assert cost_of("aten.index_copy", inputs, [TABLE]) == written
    assert cost_of("aten.index_add", inputs, [TABLE]) == added


def test_a_write_out_of_place_copies_the_whole_destination_first():
    # 1000 rows of 8: 32,000 bytes read and written beside the 216 and 96 of adding 3 rows in place.
    inputs = [TABLE, indices(3), tensor(3, 8)]
    found = cost_of("aten.index_add", inputs, [TABLE], copies_destination=True)
    assert found == cost(flops=24, read_bytes=32216, write_bytes=32096)


def test_putting_one_value_writes_whatever_the_indices_name():
    # 3 rows of 8 from one number: read 24 + 4, write 96.
    inputs = [TABLE, indices(3), tensor()]
    assert cost_of("aten.index_put_", inputs, [TABLE]) == cost(flops=0, read_bytes=28, write_bytes=96)


def test_indices_are_broadcast_against_each_other():
    # Rows (3, 1) with columns (1, 2): 6 places.
    inputs = [TABLE, indices(3, 1), indices(1, 2), tensor()]
    assert cost_of("aten.index_put_", inputs, [TABLE]).write_bytes == 24


def test_a_mask_of_the_first_dimension_counts_as_all_true():
    # 1000 rows of 8.
    inputs = [TABLE, tensor(1000, dtype="bool"), tensor()]
    assert cost_of("aten.index_put_", inputs, [TABLE]).write_bytes == 32000


def test_filling_by_index_writes_the_slices_named():
    # 2 of the middle dimension's slices of 3 * 5 elements: 120 bytes; read the indices.
    volume = tensor(3, 4, 5)
    expected = cost(flops=0, read_bytes=16, write_bytes=120)
    assert cost_of("aten.index_fill", [volume, indices(2)], [volume], dim=1) == expected
    assert cost_of("aten.index_fill", [volume, indices(2), tensor()], [volume], dim=-2) == expected


def test_putting_by_flat_index_touches_one_element_each():
    # 3 indices 24, values 12, places 12.
    inputs = [TABLE, indices(3), tensor(3)]
    assert cost_of("aten.put", inputs, [TABLE]) == cost(flops=0, read_bytes=36, write_bytes=12)
    assert cost_of("aten.put", inputs, [TABLE], accumulate=True) == cost(flops=3, read_bytes=48, write_bytes=12)


def test_accumulating_under_a_mask_touches_as_many_as_there_are_values():
    inputs = [TABLE, tensor(3, dtype="bool"), indices(3), tensor(3, 8)]
    # 24 values: read 96 of places, 3 of mask, 24 of indices, 96 of values.
    assert cost_of("aten._unsafe_masked_index_put_accumulate", inputs, [TABLE]) == cost(
        flops=24, read_bytes=219, write_bytes=96
    )


def test_a_masked_copy_looks_at_every_element():
    mask = tensor(4, dtype="bool")
    assert cost_of("aten.masked_scatter", [tensor(4), mask, tensor(4)], [tensor(4)]) == cost(
        flops=0, read_bytes=36, write_bytes=16
    )


def test_searching_what_is_not_zero_compares_each_element():
    assert cost_of("aten.nonzero", [tensor(10)], [indices(7, 1)]) == cost(flops=10, read_bytes=40, write_bytes=56)


def test_the_number_of_indices_may_be_an_array_over_the_batch():
    count = np.array([3.0, 1.0])
    inputs = [TABLE, tensor(count, dtype="int64"), tensor(count, 8)]
    assert cost_of("aten.index_put_", inputs, [TABLE]).write_bytes.tolist() == [96, 32]
