"""Finds attention whose scores are written to memory, because no fused kernel runs it, and says why."""

from collections.abc import Iterable, Iterator, Sequence

from advisor.ops.attention import FAST_PATHS
from advisor.ops.registry import UNFUSED, counted_as
from advisor.records.device import DeviceKind
from advisor.records.explained_step import UnfusedAttention, WhyUnfused
from advisor.records.workload import Row

_BY_TRACE: tuple[WhyUnfused, ...] = ("asked", "dims", "rows", "shared")
"""The causes that a trace finds."""
_FIRST_OPERAND = {"aten.bmm": 0, "aten.baddbmm": 1}
"""Batched products -> the input whose rows they multiply by columns."""


def unfused_attention(rows: Sequence[Row], *, kind: DeviceKind) -> tuple[UnfusedAttention, ...]:
    """Return the modules with such attention on this kind of device, those with the same cause together."""
    modules: dict[WhyUnfused, dict[str, None]] = {}
    for module, why in _found([row for row in rows if row.phase == "forward"], kind=kind):
        modules.setdefault(why, {}).setdefault(module)
    return tuple(UnfusedAttention(why=why, modules=tuple(names)) for why, names in modules.items())


def _found(rows: Sequence[Row], *, kind: DeviceKind) -> Iterator[tuple[str, WhyUnfused]]:
    """Yield the module of each attention that runs unfused, and the cause.

    CPUs have a fused kernel for masks whose rows are strided (`caught_composites`), so that this is no cause there.
    """
    for row in rows:
        cause = next((why for why in _BY_TRACE if row.attributes.get(UNFUSED) == why), None)
        if cause is not None:
            if cause != "rows" or kind == "gpu":
                yield row.module, cause
        elif row.family == "softmax":
            around = (row.module, row.module.rpartition(".")[0])  # the softmax may be a module of its own
            own = next((module for module in around if _is_between_products(row, rows, module=module)), None)
            if own is not None:
                yield own, "own"
        elif kind == "cpu" and row.op == "attention" and row.attributes.get("dropout_ratio"):
            yield row.module, "dropout"
        elif kind == "cpu" and row.op in FAST_PATHS:
            yield row.module, "fast path"


def _is_between_products(softmax: Row, rows: Iterable[Row], *, module: str) -> bool:
    """Return whether a product of the module has the scores as result, and another has them as operand.

    Their last dimension is the number of keys.
    """
    key_count = softmax.outputs[0].shape[-1:]
    products = [row for row in rows if counted_as(row.op) in _FIRST_OPERAND and row.module == module]
    operands = [row.inputs[_FIRST_OPERAND[counted_as(row.op)]] for row in products]
    makes_scores = any(row.outputs[0].shape[-1:] == key_count for row in products)
    return makes_scores and any(operand.shape[-1:] == key_count for operand in operands)
