from dataclasses import replace

import pytest

from advisor.predict.blocks import block_of, is_inner, outermost, part_of
from advisor.records.prediction import PARTS
from advisor.records.workload import Blocks, Operand, Row, StoredBytes


def row(module: str, *, family: str = "matmul", phase: str = "forward") -> Row:
    return Row(op="aten.mm", family=family, phase=phase, module=module, inputs=(), outputs=(), attributes={}, count=1)  # type: ignore[arg-type]


def blocks(path: str) -> Blocks:
    nothing = StoredBytes()
    return Blocks(
        path=path,
        count=2,
        parameter_bytes=2,
        largest_parameter_bytes=1,
        kept=nothing,
        largest_kept=nothing,
        results=nothing,
    )


def test_a_block_is_the_outermost_that_repeats() -> None:
    assert block_of(row("h.*.attn.heads.*.proj")) == "h.*"
    assert block_of(row("lm_head")) == ""


def test_norms_and_residual_additions_are_not_inside_a_block() -> None:
    assert is_inner(row("h.*.mlp.act", family="pointwise"))
    assert not is_inner(row("h.*", family="pointwise"))
    assert not is_inner(row("h.*.ln_1", family="norm"))
    assert not is_inner(row("h.*.ln_1", family="rms_norm"))
    assert not is_inner(row("lm_head"))


@pytest.mark.parametrize(
    ("module", "family", "phase", "part"),
    [
        ("h.*.mlp", "matmul", "forward", "inner_forward"),
        ("h.*.ln", "norm", "backward", "block_backward"),
        ("lm_head", "matmul", "loss", "forward"),
        ("", "optimizer", "optimizer", "optimizer"),
    ],
)
def test_every_row_is_of_one_part(module: str, family: str, phase: str, part: str) -> None:
    assert PARTS[part_of(row(module, family=family, phase=phase))] == part


def test_blocks_within_blocks_are_not_outermost() -> None:
    outer, inner = blocks("h.*"), blocks("h.*.experts.*")
    assert outermost([inner, outer]) == [outer]


def test_attention_to_a_cache_is_a_part_of_its_own() -> None:
    cached = Operand(shape=((0.0, 1.0), 2, 150, 64), dtype="float32", kept=True)
    decode = replace(row("h.*.attn", family="attention", phase="decode"), op="attention", inputs=(cached, cached))
    assert PARTS[part_of(decode)] == "cached_forward"
    assert PARTS[part_of(replace(decode, phase="prefill", inputs=()))] == "inner_forward"
