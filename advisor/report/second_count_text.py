"""Renders our FLOP count of a forward pass beside fvcore's."""

from collections.abc import Iterable, Sequence

from advisor import units
from advisor.records.answer import Group
from advisor.records.workload import SecondCount
from advisor.report.text_page import Heading, Page
from advisor.report.view import View

_FAMILIES = {
    "conv": "conv",
    "addmm": "matmul",
    "bmm": "matmul",
    "einsum": "matmul",
    "linear": "matmul",
    "matmul": "matmul",
    "mm": "matmul",
    "batch_norm": "norm",
    "group_norm": "norm",
    "instance_norm": "norm",
    "layer_norm": "norm",
    "adaptive_avg_pool2d": "pool",
    "grid_sampler": "interpolate",
    "upsample_bicubic2d": "interpolate",
    "upsample_bilinear2d": "interpolate",
    "upsample_linear1d": "interpolate",
    "upsample_nearest1d": "interpolate",
    "upsample_nearest2d": "interpolate",
    "upsample_nearest3d": "interpolate",
    "upsample_trilinear3d": "interpolate",
}
"""Our family of each operator that fvcore counts (fvcore/nn/flop_count.py, _DEFAULT_SUPPORTED_OPS)."""


def render_second_count(second: SecondCount, forward: Sequence[Group], *, view: View) -> str:
    """Return both counts by family, largest difference first; `forward` is our count at the same batch size."""
    ours = {group.name: group.flops for group in forward}
    theirs = _by_family(second)
    families = sorted(ours.keys() | theirs.keys(), key=lambda name: (-abs(_difference(name, ours, theirs)), name))
    counted = [name for name in families if ours.get(name) or theirs.get(name)]
    page = Page(width=view.width, color=view.color)
    page.line(f"Second count: fvcore on the real model, forward at batch {second.batch:,}.", style="bold")
    page.table(
        [Heading(text="family"), *(Heading(text=text, is_number=True) for text in ("FLOP", "fvcore", "fvcore / ours"))],
        [
            _cells("all", sum(ours.values()), second.flops),
            *(_cells(name, ours.get(name, 0.0), theirs.get(name, 0.0)) for name in counted),
        ],
    )
    page.titled_list("Operators that fvcore does not count:", _unsupported(second.unsupported_ops.items()))
    return page.text()


def _by_family(second: SecondCount) -> dict[str, float]:
    """Return fvcore's FLOP by our families; an operator without a family keeps its own name."""
    flops: dict[str, float] = {}
    for op, count in second.flops_by_op.items():
        family = _FAMILIES.get(op, op)
        flops[family] = flops.get(family, 0.0) + count
    return flops


def _difference(name: str, ours: dict[str, float], theirs: dict[str, float]) -> float:
    return ours.get(name, 0.0) - theirs.get(name, 0.0)


def _cells(name: str, ours: float, theirs: float) -> tuple[str, ...]:
    ratio = units.format_ratio(theirs / ours) if ours else "-"
    return (name, units.format_flops(ours), units.format_flops(theirs), ratio)


def _unsupported(ops: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{op} x{count:,}" for op, count in sorted(ops, key=lambda item: (-item[1], item[0]))]
