"""Unfused attention in rows of 8 heads, with 10 queries and 12 keys of 16 numbers, and values of 24."""

from typing import Any

import pytest

from advisor.predict.unfused_attention import unfused_attention
from advisor.records.device import DeviceKind
from advisor.records.explained_step import UnfusedAttention
from advisor.records.workload import Operand, Row


def row(
    op: str, *, family: str, module: str = "attn", takes: Any = (), gives: tuple[int, ...], **attributes: Any
) -> Row:
    return Row(
        op=op,
        family=family,
        phase="forward",
        module=module,
        inputs=tuple(Operand(shape=shape, dtype="float32") for shape in takes),
        outputs=(Operand(shape=gives, dtype="float32"),),
        attributes=attributes,
        count=1,
    )


SCORES = row("aten.bmm", family="matmul", takes=((8, 10, 16), (8, 16, 12)), gives=(8, 10, 12))
VALUES = row("aten.bmm", family="matmul", takes=((8, 10, 12), (8, 12, 24)), gives=(8, 10, 24))


def softmax(*, module: str = "attn", **attributes: Any) -> Row:
    return row("aten._softmax", family="softmax", module=module, takes=((8, 10, 12),), gives=(8, 10, 12), **attributes)


def fused(op: str = "attention", **attributes: Any) -> Row:
    return row(op, family="attention", takes=((1, 8, 10, 16),) * 3, gives=(1, 8, 10, 16), **attributes)


def causes(*rows: Row, kind: DeviceKind = "gpu") -> list[str]:
    return [one.why for one in unfused_attention(rows, kind=kind)]


@pytest.mark.parametrize("module", ["attn", "attn.softmax"])
def test_a_softmax_between_two_products_of_its_module_is_attention_of_the_models_own(module: str) -> None:
    found = unfused_attention([SCORES, softmax(module=module), VALUES], kind="gpu")
    assert found == (UnfusedAttention(why="own", modules=("attn",)),)


@pytest.mark.parametrize(
    "rows",
    [
        (SCORES, softmax()),  # nothing reads the scores
        (softmax(), VALUES),
        (SCORES, softmax(module="router"), VALUES),
        (fused(), softmax()),
    ],
)
def test_another_softmax_is_none(rows: tuple[Row, ...]) -> None:
    assert causes(*rows) == []


def test_what_the_trace_noted_counts_and_modules_with_one_cause_are_together() -> None:
    noted = [softmax(module=module, unfused=why) for module, why in (("a", "dims"), ("b", "shared"), ("c", "dims"))]
    assert unfused_attention(noted, kind="gpu") == (
        UnfusedAttention(why="dims", modules=("a", "c")),
        UnfusedAttention(why="shared", modules=("b",)),
    )


def test_cpus_fuse_attention_with_permuted_masks_but_not_with_dropout_nor_in_the_fast_path() -> None:
    rows = (softmax(unfused="rows"), fused(dropout_ratio=0.1), fused("native_multi_head_attention"))
    assert causes(*rows, kind="gpu") == ["rows"]
    assert causes(*rows, kind="cpu") == ["dropout", "fast path"]


def test_fused_attention_is_not_listed() -> None:
    assert causes(fused(dropout_ratio=0.0), kind="cpu") == []
