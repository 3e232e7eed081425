"""Which operators torch runs on a CPU one element at a time, in how many cycles, and on how many cores."""

from typing import Any

import numpy as np
import pytest
import torch

from advisor.ops.evaluate import call_at
from advisor.ops.registry import formula_of
from advisor.predict.composite_kernels import program_of
from advisor.predict.cpu_loops import LOOPS, Loop, loop_of
from advisor.predict.lowering import lower
from advisor.predict.row_work import count_rows
from advisor.records.device import CompileMode
from advisor.records.workload import Operand, Row
from tests.predict.toys import operand, row, workload

BATCHES = np.array([1.0, 20.0])
ROWS = operand((0.0, 1.0), 100, 64)  # 6,400 and 128,000 elements
LENGTHS = operand((0.0, 1.0), 100)


def loop(op: str, *operands: Operand, outputs: tuple[Operand, ...], **attributes: Any) -> Loop:
    toy = row(op, operands, outputs, family="gather", attributes=attributes)
    return loop_of(call_at(toy, batch=BATCHES))


def cycles(found: Loop) -> tuple[list[float], list[float]]:
    """Return those on one core, and those that all share, by batch size."""
    both = (np.broadcast_to(found.serial_cycles, 2), np.broadcast_to(found.shared_cycles, 2))
    return both[0].tolist(), both[1].tolist()


@pytest.mark.parametrize("op", LOOPS)
def test_a_loop_belongs_to_an_operator_that_torch_has_and_a_formula_counts(op: str) -> None:
    assert hasattr(torch.ops.aten, op.removeprefix("aten."))
    assert formula_of(op) is not None


@pytest.mark.parametrize(
    ("dtype", "alone", "shared_additions"),
    [
        ("float32", [5 * 6400.0, 0], [0, 128_000.0]),  # many elements: atomic additions by all cores
        ("bfloat16", [5 * 6400.0, 5 * 128_000.0], [0, 0]),  # no atomic addition
    ],
)
def test_elements_are_added_at_indices_by_all_cores_in_fp32_alone(
    dtype: str, alone: list[float], shared_additions: list[float]
) -> None:
    values = operand((0.0, 1.0), 100, 64, dtype=dtype)
    operands = (operand(50, 64, dtype=dtype), operand((0.0, 1.0), 100, dtype="int64"), values)
    found = loop("aten.index_put", *operands, outputs=(operands[0],), accumulate=True)
    assert cycles(found) == (alone, [0, 0])
    assert np.asarray(found.shared_additions).tolist() == shared_additions
    without = loop("aten.index_put", *operands, outputs=(operands[0],), accumulate=False)
    assert cycles(without) == ([0, 0], [0, 0])
    assert not np.any(without.shared_additions)


def test_random_numbers_come_from_one_core_however_many_there_are() -> None:
    for op, each in (("aten.bernoulli_", 20), ("aten.randn_like", 10), ("aten.exponential_", 65)):
        assert cycles(loop(op, ROWS, outputs=(ROWS,))) == ([each * 6400, each * 128_000], [0, 0])


@pytest.mark.parametrize(
    ("n", "k", "cycles_of_row"),
    [
        (512, 8, 6 * 512 + 26 * 8 * (1 + np.log(64)) * 4),  # a heap: 64 elements for each of the largest
        (512, 16, 30 * 512 + 13.5 * 16 * 4),  # a partition, and a sort of the largest
        (64, 1, 6 * 64 + 26 * (1 + np.log(64))),
    ],
)
def test_a_few_of_the_largest_take_a_heap_and_more_a_partition(n: int, k: int, cycles_of_row: float) -> None:
    source, largest = operand((0.0, 1.0), 10, n), operand((0.0, 1.0), 10, k)
    total = [sum(both) for both in zip(*cycles(loop("aten.topk", source, outputs=(largest, largest))), strict=True)]
    assert total == pytest.approx([10 * cycles_of_row, 200 * cycles_of_row])


def test_a_maximum_is_a_loop_only_if_it_also_returns_its_index() -> None:
    assert cycles(loop("aten.max", ROWS, outputs=(LENGTHS,))) == ([0, 0], [0, 0])
    expected = 4 * 6400 + 100 * 100
    assert cycles(loop("aten.max", ROWS, outputs=(LENGTHS, LENGTHS))) == ([expected, 0], [0, 20 * expected])


def test_the_index_of_a_maximum_takes_longest_along_another_dimension_than_the_last() -> None:
    last = cycles(loop("aten.argmax", ROWS, outputs=(LENGTHS,)))[0][0]
    assert last == 6 * 6400 + 110 * 100
    assert cycles(loop("aten.argmax", ROWS, outputs=(operand((0.0, 1.0), 100, 1),)))[0][0] == last  # keepdim
    across = cycles(loop("aten.argmax", ROWS, outputs=(operand((0.0, 1.0), 64),)))[0][0]
    assert across == 6 * 6400 + 800 * 64


@pytest.mark.parametrize(
    ("op", "each"), [("aten._softmax", 48), ("aten._log_softmax", 48), ("aten._softmax_backward_data", 22)]
)
def test_rows_shorter_than_a_register_take_a_softmax_one_element_at_a_time(op: str, each: float) -> None:
    short, long = operand((0.0, 1.0), 100, 15), operand((0.0, 1.0), 100, 16)
    for dim in (-1, 2):
        assert cycles(loop(op, short, outputs=(short,), dim=dim))[0][0] == each * 1500
    for other, dim in ((long, -1), (short, 1)):
        assert cycles(loop(op, other, outputs=(other,), dim=dim)) == ([0, 0], [0, 0])


def test_a_scan_takes_longest_along_another_dimension_than_the_last() -> None:
    assert cycles(loop("aten.cumsum", ROWS, outputs=(ROWS,), dim=2))[1] == [0, 1.5 * 128_000]
    assert cycles(loop("aten.cumsum", ROWS, outputs=(ROWS,), dim=1))[1] == [0, 10 * 128_000]


def test_a_cumulative_maximum_takes_one_core_cycles_for_each_row() -> None:
    found = cycles(loop("aten.cummax", ROWS, outputs=(ROWS, ROWS)))
    assert found == ([pytest.approx(3.3 * 6400 + 250 * 100), pytest.approx(20 * (3.3 * 6400 + 250 * 100))], [0, 0])


@pytest.mark.parametrize(
    ("kept", "expected"),
    [
        ((100,), 0.0),  # along the last dimension, or the last two, kept or not
        ((100, 1), 0.0),
        ((1, 1), 0.0),
        ((64,), 3 * 128_000 + 340 * 20 * 64),
        ((1, 64), 3 * 128_000 + 340 * 20 * 64),
    ],
)
def test_a_vector_norm_takes_simd_along_the_last_dimension_alone(kept: tuple[int, ...], expected: float) -> None:
    found = cycles(loop("aten.linalg_vector_norm", ROWS, outputs=(operand((0.0, 1.0), *kept),)))
    assert found[1][1] == expected


def test_tensors_are_stacked_one_element_at_a_time_along_a_new_last_dimension() -> None:
    last, first = operand((0.0, 1.0), 100, 64, 2), operand(2, (0.0, 1.0), 100, 64)
    assert cycles(loop("aten.stack", ROWS, ROWS, outputs=(last,)))[1] == [0, 5 * 256_000]
    assert cycles(loop("aten.stack", ROWS, ROWS, outputs=(first,))) == ([0, 0], [0, 0])


@pytest.mark.parametrize(
    ("mode", "size", "expected"),
    [
        # Halves each: 2 x the taps of an image that is not made smaller, first along the width.
        ("bilinear", (20, 20), 16 * (40 * 20 + 20 * 20) * (3 + 1.2 * 4)),
        ("bicubic", (80, 160), 16 * (40 * 160 + 80 * 160) * (3 + 1.2 * 4)),
    ],
)
def test_an_antialiased_image_is_resized_along_one_dimension_after_the_other(
    mode: str, size: tuple[int, int], expected: float
) -> None:
    source, result = operand((0.0, 20.0), 16, 40, 40), operand((0.0, 20.0), 16, *size)
    found = cycles(loop(f"aten._upsample_{mode}2d_aa", source, outputs=(result,)))
    assert found[1] == pytest.approx([20 * expected, 400 * expected])


@pytest.mark.parametrize(("mode", "each"), [(0, 7.0), (1, 2.4), (2, 40.0)])
def test_a_sample_at_a_grid_costs_by_its_interpolation(mode: int, each: float) -> None:
    image, grid = operand((0.0, 1.0), 16, 40, 40), operand((0.0, 1.0), 50, 50, 2)
    result = operand((0.0, 1.0), 16, 50, 50)
    found = cycles(loop("aten.grid_sampler_2d", image, grid, outputs=(result,), interpolation_mode=mode))
    assert found[1] == pytest.approx([each * 40_000, each * 800_000])


def test_an_adaptive_average_costs_as_much_backward_as_forward() -> None:
    large, small = operand((0.0, 1.0), 4, 40, 40), operand((0.0, 1.0), 4, 5, 5)
    expected = [1.6 * 6400 + 28 * 100, 20 * (1.6 * 6400 + 28 * 100)]  # all cores share its images, however small
    assert cycles(loop("aten._adaptive_avg_pool2d", large, outputs=(small,)))[1] == pytest.approx(expected)
    backward = loop("aten._adaptive_avg_pool2d_backward", small, large, outputs=(large,))
    assert cycles(backward)[1] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("mode", "size", "each"),
    [
        # Torch copies images whose height and width sum up to 128 to channels-last and back: a quarter and the whole.
        ("nearest", 64, {"float32": 5.5 * 1.25, "bfloat16": 4.0 * 1.25}),
        ("nearest", 66, {"float32": 2.1, "bfloat16": 2.6}),
        ("bilinear", 66, {"float32": 5.0, "bfloat16": 11.0}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_small_images_are_interpolated_channels_last_and_large_ones_by_element(
    mode: str, size: int, each: dict[str, float], dtype: str
) -> None:
    half = size // 2
    small, large = operand((0.0, 1.0), 16, half, half, dtype=dtype), operand((0.0, 1.0), 16, size, size, dtype=dtype)
    (_, many) = cycles(loop(f"aten.upsample_{mode}2d", small, outputs=(large,)))
    assert many == pytest.approx([each[dtype] * 16 * size * size, each[dtype] * 320 * size * size])


@pytest.mark.parametrize(
    ("op", "has_vectors"),
    [
        ("upsample_nearest2d", True), ("_upsample_nearest_exact3d", True), ("upsample_bilinear2d_backward", True),
        ("upsample_bicubic2d", False), ("upsample_linear1d", False), ("_upsample_nearest_exact1d_backward", False),
    ],
)  # fmt: skip
def test_channels_last_images_take_simd_in_all_interpolations_but_bicubic(op: str, has_vectors: bool) -> None:
    images = operand((0.0, 1.0), 8, 10, 10)
    toy = row(f"aten.{op}", (images,), (images,), family="interpolate")
    found = program_of(call_at(toy, batch=BATCHES), kind="cpu", itemsize_bytes=4.0)
    assert found.has_vectors_nhwc == has_vectors
    assert found.flop_ratio < 1  # its FLOP are of elements in registers


def lowered_cycles(toy: Row, *, compile_mode: CompileMode) -> float:
    """Return the cycles of the loops of a row that no other is fused with, for the larger batch."""
    counts = count_rows(workload(toy), batches=BATCHES, width="full", compile_mode=compile_mode)
    kernels = lower(counts, kind="cpu", precision="fp32")
    return float(np.max(kernels.scalar_cycles + kernels.serial_cycles))


@pytest.mark.parametrize(
    ("op", "outputs", "attributes", "eager", "compiled"),
    [
        ("masked_fill", (ROWS,), {}, 15.0 * 128_000, 0.0),  # generated, with SIMD
        ("bernoulli", (ROWS,), {}, 20.0 * 128_000, 20.0 * 128_000),  # generated, one element at a time
        ("upsample_nearest1d", (ROWS,), {}, 2.1 * 128_000, 2.1 * 128_000),
        ("upsample_nearest3d", (ROWS,), {}, 2.1 * 128_000, 0.0),  # compiled images are channels-last
        ("asinh", (ROWS,), {}, 79.0 * 128_000, 0.0),
        ("count_nonzero", (LENGTHS,), {}, 3.0 * 128_000, 0.0),
        ("any", (LENGTHS,), {}, 4.0 * 128_000, 4.0 * 128_000),
        ("kthvalue", (LENGTHS,), {}, 47.0 * 128_000, 47.0 * 128_000),  # left to torch
    ],
)
def test_compiled_code_takes_simd_where_it_is_generated_for_it(
    op: str, outputs: tuple[Operand, ...], attributes: dict[str, Any], eager: float, compiled: float
) -> None:
    formula = formula_of(f"aten.{op}")
    assert formula is not None
    toy = row(f"aten.{op}", (ROWS,), outputs, family=formula.family, attributes=attributes)
    assert lowered_cycles(toy, compile_mode="eager") == pytest.approx(eager)
    assert lowered_cycles(toy, compile_mode="compile") == pytest.approx(compiled)


def test_compiled_adaptive_pools_take_simd_if_all_windows_are_as_large() -> None:
    images = operand((0.0, 1.0), 4, 40, 40)
    for size, has_vectors in ((5, True), (7, False)):
        pooled = row("aten._adaptive_avg_pool2d", (images,), (operand((0.0, 1.0), 4, size, size),), family="pool")
        assert lowered_cycles(pooled, compile_mode="eager") > 0
        assert (lowered_cycles(pooled, compile_mode="compile") == 0) == has_vectors


def test_a_gpu_has_no_such_loops() -> None:
    toy = row("aten.masked_fill", (ROWS, ROWS), (ROWS,), family="pointwise")
    assert program_of(call_at(toy, batch=BATCHES), kind="gpu", itemsize_bytes=4.0).scalar_cycles == 0
