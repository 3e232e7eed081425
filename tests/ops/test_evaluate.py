import numpy as np
import pytest
import torch
from observe import rows_on_fake_tensors

from advisor.ops.evaluate import bytes_at, call_at, falls, row_cost
from advisor.ops.registry import formula_of
from advisor.records.workload import Operand, Row


def row(op, inputs, outputs, *, family="matmul"):
    return Row(
        op=op,
        family=family,
        phase="forward",
        module="",
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attributes={},
        count=3,
    )


# (2 x batch, 3) x (3, 4)
LINEAR = row(
    "aten.mm",
    [Operand(shape=((0.0, 2.0), 3), dtype="float32", low=True), Operand(shape=(3, 4), dtype="float32", low=True)],
    [Operand(shape=((0.0, 2.0), 4), dtype="float32", low=True)],
)


def test_a_dimension_is_its_constant_part_and_its_share_of_the_batch():
    source = Operand(shape=((1.0, 2.0), 3), dtype="int64")
    call = call_at(row("aten.clone", [source], [source]), batch=5)
    # 1 + 2 * 5
    assert call.inputs[0].shape == (11, 3)


def test_a_row_is_the_cost_of_one_call_whatever_its_count():
    # At batch 5: 2 * 10 * 3 * 4 = 240; read (30 + 12) * 4, write 40 * 4.
    found = row_cost(LINEAR, batch=5)
    assert (found.flops, found.read_bytes, found.write_bytes) == (240, 168, 160)


def test_many_batch_sizes_are_evaluated_at_once():
    found = row_cost(LINEAR, batch=np.array([1.0, 5.0]))
    assert found.flops.tolist() == [48, 240]
    assert found.read_bytes.tolist() == [72, 168]


def test_operands_can_be_stored_in_another_type():
    found = row_cost(LINEAR, batch=5, dtype_of=lambda operand: "bfloat16" if operand.low else operand.dtype)
    assert (found.flops, found.read_bytes, found.write_bytes) == (240, 84, 80)


def test_large_integer_dimensions_do_not_overflow():
    size = 2**20
    square = Operand(shape=(size, size, 8), dtype="float32")
    batch = np.array([1, 2])
    found = row_cost(row("aten.bmm", [square, square], [square]), batch=batch)
    # 2 * 2^20 * 2^20 * 8 * 8
    assert found.flops == pytest.approx(128 * 2.0**40)


def test_an_operator_without_a_formula_moves_its_operands():
    operand = Operand(shape=((0.0, 1.0), 4), dtype="float32")
    unknown = row("mine.op", [operand, operand], [operand], family="unknown")
    assert formula_of("mine.op") is None
    found = row_cost(unknown, batch=2)
    assert (found.flops, found.read_bytes, found.write_bytes) == (0, 64, 32)


def test_one_that_torch_calls_pointwise_is_a_flop_per_element():
    operand = Operand(shape=((0.0, 1.0), 4), dtype="float32")
    assert row_cost(row("mine.op", [operand], [operand], family="pointwise"), batch=2).flops == 8


@pytest.mark.parametrize(
    ("run", "ratio"),
    [
        (lambda x: x @ x, 4),
        (torch.linalg.lu_factor_ex, 4),
        (lambda x: torch.linalg.solve_ex(x, x), 4),
        (lambda x: x * x, 6),
        (lambda x: x.clone().mul_(x), 6),
        (lambda x: x.cumprod(0), 6),
        (lambda x: x + x, 2),
        (lambda x: x.sum(), 2),
        (lambda x: x.cumsum(0), 2),
    ],
)
def test_complex_numbers_take_more_flops_than_real_ones(run, ratio):
    # A multiplication has 4 real ones and 2 additions, an addition 2, and a multiply-add 4 + 4 instead of 1 + 1.
    def flops(dtype):
        rows = rows_on_fake_tensors(lambda: run(torch.ones(6, 6, dtype=dtype)))
        return sum(row_cost(row, batch=1).flops for row in rows)

    assert flops(torch.complex64) == ratio * flops(torch.float32) > 0


def test_bytes_are_a_constant_a_share_of_the_batch_and_one_of_its_square():
    # 7 + 3 x 5, and 2 x 25 more.
    assert (bytes_at((7.0, 3.0), batch=5), bytes_at((7.0, 3.0, 2.0), batch=5)) == (22, 72)
    np.testing.assert_array_equal(bytes_at((7.0, 3.0, 2.0), batch=np.array([0.0, 5.0])), [7, 72])


@pytest.mark.parametrize(
    ("growth", "expected"),
    [
        ((9.0, -1.0), True),
        ((9.0, 0.0), False),
        ((0.0, 9.0, -1.0), True),  # from a batch of 5 on
        ((9.0, -4.0, 1.0), True),  # 6 at 1, 5 at 2
        ((2.0, -3.0, 1.0), False),  # (batch - 1) x (batch - 2): 0 at 1 and at 2, then more
    ],
)
def test_bytes_fall_if_some_batch_has_fewer_than_the_one_before(growth, expected):
    assert falls(growth) is expected
