"""The cycles in which a GPU's cores issue instructions, by hand for small calls at batch sizes 1 and 2."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.ops.evaluate import call_at
from advisor.predict.issued import Issued, depthwise_issue_cycles, issued_of
from advisor.records.workload import Operand, Row
from tests.predict.toys import operand, row

BATCHES = np.array([1.0, 2.0])
IMAGES = operand((0.0, 1.0), 8, 10, 10)
TOKENS = operand((0.0, 1.0), 4, 32)
MEANS = operand((0.0, 1.0), 4, 1)


def in_half(plain: Operand) -> Operand:
    return replace(plain, dtype="float16")


def issued(toy: Row) -> Issued:
    found = issued_of(call_at(toy, batch=BATCHES))
    assert found is not None
    return found


def pointwise(op: str, *inputs: Operand, **attributes: str) -> Row:
    return row(f"aten.{op}", inputs, (inputs[0],), family="pointwise", attributes=attributes)


def copy(op: str, source: Operand, **attributes: Any) -> Row:
    return row(f"aten.{op}", (source,), (source,), family="copy", attributes=attributes)


@pytest.mark.parametrize(
    ("toy", "cycles"),
    [
        (pointwise("add", TOKENS, operand(32)), 0.8 * 128),
        (pointwise("add", TOKENS, operand()), 0.8 * 128),  # one element, with a stride of 0
        (pointwise("add", TOKENS, in_half(TOKENS)), 0.97 * 128),
        (pointwise("add", TOKENS, replace(TOKENS, dtype="bfloat16")), 0.97 * 128),
        (pointwise("gelu", in_half(TOKENS)), 0.33 * 128),
        (pointwise("mul", TOKENS, strided="rows"), 0.8 * 128),
        (pointwise("add", TOKENS, TOKENS, strided="transposed"), 1.8 * 128),
        (pointwise("add", in_half(TOKENS), in_half(TOKENS), strided="transposed"), 1.5 * 128),
        (copy("clone", TOKENS, strided="rows"), 1.0 * 128),
        (copy("clone", in_half(TOKENS), strided="transposed"), 0.72 * 128),
        (copy("cat", TOKENS, strided="rows"), 1.0 * 128),
        (copy("stack", in_half(TOKENS), strided="rows"), 1.0 * 128),
        (copy("pixel_shuffle", TOKENS), 1.0 * 128),
        (copy("roll", TOKENS, dims=(1, 2)), 2 * 1.24 * 128),
        (copy("roll", TOKENS, dims=(1,)), 1.24 * 128),
        (copy("roll", TOKENS), 1.24 * 128),
        (row("aten.native_layer_norm", (TOKENS,), (TOKENS, MEANS, MEANS), family="norm"), 4 * 344 + 0.52 * 128),
        (
            row("aten.native_layer_norm_backward", (TOKENS, TOKENS, MEANS, MEANS), (TOKENS,), family="norm"),
            4 * 133 + 2.1 * 128,
        ),
        (row("aten.mean", (TOKENS,), (MEANS,), family="reduction"), 50 * 4 + 0.2 * 128),
        (row("aten.index", (operand(100, 32), operand(4)), (TOKENS,), family="gather"), 1.1 * 128),
        (row("aten.index_add", (operand(100, 32), operand(4), TOKENS), (TOKENS,), family="gather"), 2.0 * 128),
        (
            row("aten._embedding_bag", (operand(100, 32), operand((0.0, 4.0))), (TOKENS,), family="embedding"),
            0.56 * 4 * 32,
        ),
    ],
    ids=lambda value: value.op if isinstance(value, Row) else "",
)
def test_each_element_takes_its_cycles_in_any_layout(toy: Row, cycles: float) -> None:
    found = issued(toy)
    assert np.asarray(found.cycles).tolist() == pytest.approx([cycles, 2 * cycles])
    assert found.nchw_cycles == 0


@pytest.mark.parametrize(
    "toy",
    [
        pointwise("relu", TOKENS),
        pointwise("gelu", TOKENS),  # as fast as memory in fp32
        pointwise("add", TOKENS, TOKENS),
        pointwise("unknown", TOKENS, operand(4)),
        copy("clone", TOKENS),
        copy("cat", TOKENS),
        row("finetune.rotary", (TOKENS, operand(4)), (TOKENS,), family="pointwise"),  # no kernel of torch
        row("aten._foreach_mul", (TOKENS, operand(4)), (TOKENS, operand(4)), family="pointwise"),
        row("aten.mean", (TOKENS,), (operand(),), family="reduction"),
        row("aten.sum", (TOKENS,), (operand(1, 32),), family="reduction"),  # of columns
        row("aten.mean", (TOKENS,), (operand((0.0, 1.0), 32),), family="reduction"),  # over tokens
        row("aten.native_batch_norm", (IMAGES,), (IMAGES,), family="norm", attributes={"training": True}),
        row("aten.relu", family="pointwise"),
    ],
    ids=lambda toy: toy.op,
)
def test_what_streams_through_memory_takes_none(toy: Row) -> None:
    assert issued_of(call_at(toy, batch=BATCHES)) is None


def test_at_batch_one_an_operand_for_each_sample_is_not_broadcast() -> None:
    positions = operand(1, 4, 32)
    assert np.asarray(issued(pointwise("add", TOKENS, positions)).cycles).tolist() == [0, pytest.approx(0.8 * 256)]


@pytest.mark.parametrize(
    ("size", "dtype", "plane_cycles"),
    [(7, "float16", 160), (14, "float32", 75 + 0.66 * 196), (28, "float16", 75 + 0.53 * 784)],
)
def test_a_batch_norm_with_running_statistics_takes_the_planes_of_nchw_one_by_one(
    size: int, dtype: str, plane_cycles: float
) -> None:
    images = operand((0.0, 1.0), 8, size, size, dtype=dtype)
    found = issued(row("aten._native_batch_norm_legit_no_training", (images,), (images,), family="norm"))
    expected = 8 * max(plane_cycles, 160)
    assert np.asarray(found.nchw_cycles).tolist() == pytest.approx([expected, 2 * expected])
    assert found.cycles == 0


@pytest.mark.parametrize("kernel_size", [2, (2,), (2, 2)])
def test_a_max_pool_of_nchw_images_takes_cycles_for_its_windows(kernel_size: Any) -> None:
    pooled = operand((0.0, 1.0), 8, 5, 5)
    forward = row(
        "aten.max_pool2d_with_indices", (IMAGES,), (pooled,), family="pool", attributes={"kernel_size": kernel_size}
    )
    backward = row("aten.max_pool2d_with_indices_backward", (pooled, IMAGES), (IMAGES,), family="pool")
    assert np.asarray(issued(forward).nchw_cycles)[0] == pytest.approx(200 * (2.3 + 4 * 0.21))
    assert np.asarray(issued(backward).nchw_cycles)[0] == pytest.approx(800 * 2.7)


def test_a_depthwise_convolution_takes_cycles_for_the_elements_of_its_kernel() -> None:
    weight = operand(8, 1, 3, 3)
    call = call_at(row("aten.convolution", (IMAGES, weight), (IMAGES,), family="conv"), batch=BATCHES)
    assert np.asarray(depthwise_issue_cycles(call))[0] == pytest.approx(800 * (1.6 + 9 * 0.11))


def test_the_cycles_at_one_batch_size_do_not_depend_on_the_others() -> None:
    of_one = row("aten.sum", (operand((0.0, 1.0), 32),), (operand(1, 32),), family="reduction")
    # Sums of one element at batch 1, of columns at batch 2.
    assert issued(of_one).cycles.tolist() == [50 * 32 + 0.2 * 32, 0]
    alone = issued_of(call_at(of_one, batch=BATCHES[:1]))
    assert alone is not None
    assert alone.cycles.tolist() == [50 * 32 + 0.2 * 32]
