"""Against the plain loops over all rows, and how often rows are read."""

from random import Random
from typing import Any

import numpy as np
import pytest

from advisor.ops.evaluate import call_at
from advisor.ops.registry import autocast_of
from advisor.predict import row_memory as module
from advisor.predict.precision import Width, computed_dtype, stored_dtype
from advisor.predict.row_memory import row_memory
from advisor.predict.row_work import constant_bytes, is_constant, operand_bytes
from advisor.predict.step_memory import step_memory
from advisor.records.workload import Row
from tests.predict.toys import linear_row, memory_line, operand, row, workload

BATCHES = np.array([1.0, 3.0, 1024.0])
WIDTHS: tuple[Width, ...] = ("full", "autocast", "half")


def random_operand(chance: Random, rank: int) -> Any:
    dims = [chance.choice([chance.randint(1, 300), (float(chance.randint(0, 9)), 1.0)]) for _ in range(rank)]
    return operand(*dims, dtype=chance.choice(["float32", "float16", "int64"]), low=chance.random() < 0.5)


def random_row(chance: Random) -> Row:
    kind = chance.choice(["conv", "matmul", "attention", "attention_backward"])
    inputs = tuple(random_operand(chance, 4) for _ in range(chance.randint(2, 4)))
    changes: dict[str, Any] = {"phase": chance.choice(["forward", "backward"]), "count": chance.randint(1, 5)}
    if kind.startswith("attention"):
        attributes = {"dropout_ratio": chance.choice([0.0, 0.1])}
        return row(kind, inputs, inputs[:1], family="attention", attributes=attributes, **changes)
    op = "aten.convolution" if kind == "conv" else "aten.mm"
    return row(op, inputs, inputs[: chance.randint(1, 2)], family=kind, **changes)


def plain_largest_convolution(rows: tuple[Row, ...], width: Width) -> Any:
    dtype_of = computed_dtype(width=width, autocast="low")
    largest = np.zeros(len(BATCHES))
    for one in rows:
        if one.family == "conv":
            every = [operand_bytes(each, batches=BATCHES, dtype=dtype_of(each)) for each in (*one.inputs, *one.outputs)]
            largest = np.maximum(largest, np.sum(every, axis=0))
    return largest


def plain_scores(rows: tuple[Row, ...], width: Width) -> Any:
    total = np.zeros(len(BATCHES))
    for one in rows:
        if one.op == "attention" and one.attributes["dropout_ratio"] and one.phase == "forward":
            query, key = call_at(one, batch=BATCHES).inputs[:2]
            scores = query.numel / query.shape[-1] * key.shape[-2]
            total = total + one.count * 3 * scores * (4.0 if width == "full" else 2.0)
    return total if any(one.op == "attention_backward" for one in rows) else np.zeros(len(BATCHES))


def plain_half_copies(rows: tuple[Row, ...]) -> float:
    return sum(
        one.count * constant_bytes(each, dtype="float16")
        for one in rows
        if one.phase == "forward" and autocast_of(one.op, one.attributes, on_cpu=False) == "low"
        for each in one.inputs
        if is_constant(each) and stored_dtype(each, width="autocast") == "float32"
    )


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("at_once", [1, 2**20])
def test_it_is_what_loops_over_all_rows_give(width: Width, at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ELEMENTS_AT_ONCE", at_once)
    for seed in range(40):
        chance = Random(seed)
        rows = tuple(random_row(chance) for _ in range(chance.randint(0, 30)))
        found = row_memory(workload(*rows), width=width)
        assert found.largest_convolution_bytes(BATCHES).tolist() == plain_largest_convolution(rows, width).tolist()
        assert found.dropout_scores_bytes(BATCHES) == pytest.approx(plain_scores(rows, width), rel=1e-14)
        assert found.half_copies_bytes == (plain_half_copies(rows) if width == "autocast" else 0.0)
        assert found.has_product == any(one.family in ("matmul", "attention") for one in rows)


def test_rows_are_read_once_for_all_moments_and_all_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []
    monkeypatch.setattr(module, "is_constant", lambda each: read.append(each) or is_constant(each))
    step = workload(*(linear_row() for _ in range(50)), memory=(memory_line(),) * 20)
    for batch in range(1, 30):
        step_memory(step, batches=np.array([float(batch)]), width="autocast", kind="gpu")
    assert len(read) == 50 * 3  # bias, data and weight of each row


def test_workloads_with_equal_rows_of_their_own_are_told_apart() -> None:
    first, second = workload(linear_row()), workload(linear_row(count=2))
    # A weight of 8 x 16 and a bias of 16, 2 bytes each: 288.
    assert [row_memory(one, width="autocast").half_copies_bytes for one in (first, second)] == [288, 576]
