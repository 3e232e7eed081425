import pytest
import torch
from calls import cost, cost_of, indices, tensor
from observe import rows_on_fake_tensors
from torch.nn import functional

from advisor.ops.evaluate import row_cost

SOURCE = tensor(3, 4)


def test_a_copy_moves_and_computes_nothing():
    assert cost_of("aten.clone", [SOURCE], [SOURCE]) == cost(flops=0, read_bytes=48, write_bytes=48)


def test_a_cast_writes_the_new_type():
    half = tensor(3, 4, dtype="float16")
    assert cost_of("aten._to_copy", [SOURCE], [half]) == cost(flops=0, read_bytes=48, write_bytes=24)


def test_concatenating_reads_each_part_once():
    assert cost_of("aten.cat", [SOURCE, tensor(2, 4)], [tensor(5, 4)]) == cost(flops=0, read_bytes=80, write_bytes=80)


def test_copying_into_a_tensor_does_not_read_it():
    # Three rows from one that is broadcast: read 16.
    assert cost_of("aten.copy_", [SOURCE, tensor(1, 4)], [SOURCE]) == cost(flops=0, read_bytes=16, write_bytes=48)
    tensors = [SOURCE, tensor(5)]
    assert cost_of("aten._foreach_copy_", [*tensors, *tensors], tensors) == cost(flops=0, read_bytes=68, write_bytes=68)


def test_padding_writes_its_border():
    assert cost_of("aten.constant_pad_nd", [SOURCE], [tensor(5, 6)]) == cost(flops=0, read_bytes=48, write_bytes=120)


def test_the_gradient_of_a_slice_is_placed_in_zeros():
    assert cost_of("aten.slice_backward", [tensor(1, 4)], [SOURCE]) == cost(flops=0, read_bytes=16, write_bytes=48)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_the_gradient_of_a_border_is_added(mode):
    # 30 gradients meet in 12 places: 1 addition each. The gradients are read, 120 bytes, the source itself is not.
    def run():
        functional.pad(torch.rand(1, 3, 4, requires_grad=True), (1, 1, 1, 1), mode=mode).sum().backward()

    [row] = (row for row in rows_on_fake_tensors(run) if row.op.endswith("_pad2d_backward"))
    assert row_cost(row, batch=1) == cost(flops=30, read_bytes=120, write_bytes=48)


def test_the_gradients_of_overlapping_windows_are_added():
    assert cost_of("aten.col2im", [tensor(1, 4, 9)], [tensor(1, 1, 4, 4)]).flops == 36


def test_lists_of_indices_are_copies_too():
    assert cost_of("aten.repeat_interleave", [indices(3)], [indices(6)]) == cost(flops=0, read_bytes=24, write_bytes=48)


NOTHING = cost(flops=0, read_bytes=0, write_bytes=0)


@pytest.mark.parametrize("op", ["view", "t", "expand", "slice", "detach", "_unsafe_view", "squeeze_"])
def test_a_view_costs_nothing(op):
    assert cost_of(f"aten.{op}", [tensor(3, 4)], [tensor(12)]) == NOTHING


def test_asking_for_a_tensors_device_costs_nothing():
    assert cost_of("prim.device", [tensor(3, 4)], []) == NOTHING
