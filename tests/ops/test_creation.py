import pytest
import torch
from calls import cost, cost_of, tensor
from observe import rows_on_fake_tensors

from advisor.ops.evaluate import row_cost

SOURCE = tensor(3, 4)


@pytest.mark.parametrize("op", ["zeros", "ones_like", "zero_", "fill_", "new_full", "_foreach_zero_"])
def test_a_fill_writes_and_reads_nothing(op):
    assert cost_of(f"aten.{op}", [SOURCE], [SOURCE]) == cost(flops=0, read_bytes=0, write_bytes=48)


@pytest.mark.parametrize("op", ["empty", "empty_like", "new_empty_strided"])
def test_empty_memory_costs_nothing(op):
    assert cost_of(f"aten.{op}", [SOURCE], [SOURCE]) == cost(flops=0, read_bytes=0, write_bytes=0)


def test_a_diagonal_is_placed_in_zeros():
    assert cost_of("aten.diag_embed", [tensor(3)], [tensor(3, 3)]) == cost(flops=0, read_bytes=12, write_bytes=36)


SOURCE = tensor(3, 4)


@pytest.mark.parametrize("op", ["rand", "randn_like", "uniform_", "normal_"])
def test_drawing_writes_and_reads_nothing(op):
    assert cost_of(f"aten.{op}", [SOURCE], [SOURCE]) == cost(flops=12, read_bytes=0, write_bytes=48)


def test_dropout_draws_a_mask_and_applies_it():
    # 12 elements and 12 of mask: 24 FLOP, 48 + 12 bytes written.
    outputs = [SOURCE, tensor(3, 4, dtype="bool")]
    assert cost_of("aten.native_dropout", [SOURCE], outputs) == cost(flops=24, read_bytes=48, write_bytes=60)


@pytest.mark.parametrize(
    ("draw", "read_bytes"),
    [
        (lambda x: torch.bernoulli(x), 48),
        (lambda x: x.bernoulli_(), 0),
        (lambda x: x.bernoulli_(0.3), 0),
        (lambda x: x.bernoulli_(torch.ones(3, 4)), 48),
    ],
)
def test_drawing_by_probabilities_reads_them_alone(draw, read_bytes):
    row = rows_on_fake_tensors(lambda: draw(torch.ones(3, 4)))[-1]
    assert row_cost(row, batch=1) == cost(flops=12, read_bytes=read_bytes, write_bytes=48)
