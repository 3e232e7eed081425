"""Makes the answer on the counts of a step: its totals, its FLOP and bytes by group, and a second count beside ours."""

from collections.abc import Iterator, Sequence

from advisor.records.answer import Group, GroupBy, WorkloadSummary
from advisor.records.workload import SecondCount
from advisor.report.amounts import count_text
from advisor.report.content import Block, Listing, Paragraph
from advisor.report.tables import ColumnOf, column, more_note, numbers, table_of
from advisor.units import format_bytes, format_count, format_flops, format_ratio

_FVCORE_OPS = {
    "conv": "conv",
    "matmul": "addmm bmm einsum linear matmul mm",
    "norm": "batch_norm group_norm instance_norm layer_norm",
    "pool": "adaptive_avg_pool2d",
    "interpolate": "grid_sampler upsample_bicubic2d upsample_bilinear2d upsample_linear1d upsample_nearest1d "
    "upsample_nearest2d upsample_nearest3d upsample_trilinear3d",
}
_FAMILIES = {op: family for family, ops in _FVCORE_OPS.items() for op in ops.split()}
"""Our family of each operator that fvcore counts (fvcore/nn/flop_count.py, _DEFAULT_SUPPORTED_OPS)."""


def profile_content(summary: WorkloadSummary, groups: Sequence[Group], *, by: GroupBy, top: int) -> Iterator[Block]:
    """Yield the totals of one step, its `top` largest groups, and how the step was traced."""
    totals = summary.totals
    yield Paragraph(
        title=(
            f"{summary.name}: {format_flops(totals.flops)} per step at batch {totals.batch:,}, "
            f"{format_count(totals.parameter_count)} parameters, "
            f"reads {format_bytes(totals.read_bytes)}, writes {format_bytes(totals.write_bytes)}, "
            f"{format_bytes(totals.peak_memory_bytes)} at the peak, {totals.op_count:,} operator calls."
        )
    )
    rest = f" with {format_ratio(sum(group.flops_ratio for group in groups[top:]))} of the FLOP"
    columns: tuple[ColumnOf[Group], ...] = (
        column(by, lambda group: group.name or "(the model itself)"),
        numbers("FLOP", lambda group: group.flops, format_flops),
        numbers("share", lambda group: group.flops_ratio, format_ratio),
        numbers("read", lambda group: group.read_bytes, format_bytes),
        numbers("written", lambda group: group.write_bytes, format_bytes),
        numbers("calls", lambda group: group.op_count, count_text),
    )
    notes = more_note(len(groups), top=top, what=rest)
    yield table_of(groups[:top], columns, notes=notes, highlighted=0)
    yield Listing(title="Counted", items=_counting(summary))


def _counting(summary: WorkloadSummary) -> tuple[str, ...]:
    """Return how the step was traced and which operators have no formula."""
    methods = {
        "fake": "traced on fake tensors, without computing anything",
        "symbolic": "traced on fake tensors, with assumed values for data-dependent sizes",
        "cpu_step": "counted in a real step on this machine's CPU",
    }
    lines = [f"{methods[summary.method]}; formulas cover {format_ratio(summary.coverage_ratio)} of the operator calls."]
    lines += [f"no formula for {op} ({count:,} calls)." for op, count in sorted(summary.unknown_ops.items())]
    if summary.optimizer and not any(line.startswith("optimizer:") for line in summary.assumptions):
        lines.append(f"optimizer: {summary.optimizer}.")
    return (*lines, *summary.assumptions)


def second_count_content(second: SecondCount, forward: Sequence[Group]) -> Iterator[Block]:
    """Yield both counts by family, largest difference first; `forward` is our count at the same batch size."""
    ours = {group.name: group.flops for group in forward}
    theirs: dict[str, float] = {}
    for op, count in second.flops_by_op.items():
        family = _FAMILIES.get(op, op)
        theirs[family] = theirs.get(family, 0.0) + count
    rows = [(name, ours.get(name, 0.0), theirs.get(name, 0.0)) for name in ours.keys() | theirs.keys()]
    rows.sort(key=lambda row: (-abs(row[1] - row[2]), row[0]))
    yield table_of(
        [("all", sum(ours.values()), second.flops), *(row for row in rows if row[1] or row[2])],
        (
            column("family", lambda row: row[0]),
            numbers("FLOP", lambda row: row[1], format_flops),
            numbers("fvcore", lambda row: row[2], format_flops),
            numbers("fvcore / ours", lambda row: row[2] / row[1] if row[1] else None, format_ratio),
        ),
        title=f"Second count: fvcore on the real model, forward at batch {second.batch:,}.",
        highlighted=0,
    )
    missing = sorted(second.unsupported_ops.items(), key=lambda item: (-item[1], item[0]))
    yield Listing(
        title="Operators that fvcore does not count", items=tuple(f"{op} x{count:,}" for op, count in missing)
    )
