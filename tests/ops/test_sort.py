import numpy as np
import pytest
from calls import cost, cost_of, indices, tensor


def test_sorting_is_n_log_n_comparisons_per_row():
    # 3 rows of 8: 24 * 3. Write the values and their places: 96 + 192.
    outputs = [tensor(3, 8), indices(3, 8)]
    assert cost_of("aten.sort", [tensor(3, 8)], outputs, dim=-1) == cost(flops=72, read_bytes=96, write_bytes=288)
    assert cost_of("aten.sort", [tensor(3, 8)], outputs).flops == 72
    # Along the first dimension 8 rows of 4: 32 * 2.
    assert cost_of("aten.sort", [tensor(4, 8)], outputs, dim=0).flops == 64


def test_sorting_a_number_or_nothing_is_no_comparison():
    assert cost_of("aten.sort", [tensor()], [tensor(), indices()], dim=-1).flops == 0
    assert cost_of("aten.sort", [tensor(3, 0)], [tensor(3, 0), indices(3, 0)], dim=-1).flops == 0


def test_the_row_may_grow_with_the_batch():
    rows = tensor(np.array([2.0, 8.0]))
    # 2 * 1 and 8 * 3.
    assert cost_of("aten.sort", [rows], [rows], dim=0).flops.tolist() == [2, 24]


def test_unique_sorts_everything():
    # 32 elements: 32 * 5.
    assert cost_of("aten._unique2", [tensor(4, 8)], [tensor(7)]).flops == 160


@pytest.mark.parametrize("op", ["aten.topk", "aten.kthvalue", "aten.median", "aten.mode"])
def test_selecting_looks_at_every_element(op):
    assert cost_of(op, [tensor(3, 8)], [tensor(3, 2), indices(3, 2)]).flops == 24


def test_spreading_a_selections_gradient_computes_nothing():
    inputs = [tensor(3, 2), indices(3, 2)]
    assert cost_of("aten.value_selecting_reduction_backward", inputs, [tensor(3, 8)]).flops == 0


def test_searching_is_a_bisection_per_value():
    # 5 values in 16: 5 * 4. The sequence comes first in searchsorted and last in bucketize.
    assert cost_of("aten.searchsorted", [tensor(16), tensor(5)], [indices(5)]).flops == 20
    assert cost_of("aten.bucketize", [tensor(5), tensor(16)], [indices(5)]).flops == 20
    # Membership in a set of 8: 5 * 3.
    assert cost_of("aten.isin", [tensor(5), tensor(8)], [tensor(5, dtype="bool")]).flops == 15


def test_suppressing_boxes_compares_every_pair():
    # 10 * 9 / 2 = 45 pairs of 12 operations.
    assert cost_of("torchvision.nms", [tensor(10, 4), tensor(10)], [indices(3)]).flops == 540
