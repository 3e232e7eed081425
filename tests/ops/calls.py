"""Operator calls by hand, for the tests of their formulas."""

from typing import Any

from advisor.ops.registry import Call, Cost, Tensor, formula_of


def tensor(*shape: Any, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype)


def indices(*shape: Any) -> Tensor:
    return tensor(*shape, dtype="int64")


def cost_of(op: str, inputs: list[Tensor], outputs: list[Tensor], **attributes: Any) -> Cost:
    formula = formula_of(op)
    assert formula is not None, f"{op} has no formula"
    call = Call(op=formula.op, inputs=tuple(inputs), outputs=tuple(outputs), attributes=attributes)
    return formula.cost(call)


def cost(*, flops: float, read_bytes: float, write_bytes: float) -> Cost:
    return Cost(flops=flops, read_bytes=read_bytes, write_bytes=write_bytes)
