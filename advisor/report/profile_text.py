"""Renders a profiled workload as text: the totals, then the FLOP and bytes by group."""

from collections.abc import Sequence

from advisor import units
from advisor.records.answer import Group, GroupBy, WorkloadSummary
from advisor.report.text_page import Heading, Page
from advisor.report.view import View


def render_profile(summary: WorkloadSummary, groups: Sequence[Group], *, by: GroupBy, view: View) -> str:
    """Return the totals of one step and its `view.top` largest groups."""
    totals = summary.totals
    page = Page(width=view.width, color=view.color)
    page.line(
        f"{summary.name}: {units.format_flops(totals.flops)} per step at batch {totals.batch:,}, "
        f"{units.format_count(totals.parameter_count)} parameters, "
        f"reads {units.format_bytes(totals.read_bytes)}, writes {units.format_bytes(totals.write_bytes)}, "
        f"{units.format_bytes(totals.peak_memory_bytes)} at the peak, {totals.op_count:,} operator calls.",
        style="bold",
    )
    page.blank()
    shown, rest = groups[: view.top], groups[view.top :]
    headings = [Heading(text=text, is_number=True) for text in ("FLOP", "share", "read", "written", "calls")]
    page.table([Heading(text=by), *headings], [_cells(group) for group in shown])
    if rest:
        share = units.format_ratio(sum(group.flops_ratio for group in rest))
        page.line(f"{len(rest):,} more with {share} of the FLOP (--top {len(groups)} shows all).", style="dim")
    page.titled_list("Counted:", _counting(summary))
    return page.text()


def _cells(group: Group) -> tuple[str, ...]:
    return (
        group.name or "(the model itself)",
        units.format_flops(group.flops),
        units.format_ratio(group.flops_ratio),
        units.format_bytes(group.read_bytes),
        units.format_bytes(group.write_bytes),
        f"{group.op_count:,}",
    )


def _counting(summary: WorkloadSummary) -> tuple[str, ...]:
    """Return how the step was traced and which operators have no formula."""
    methods = {
        "fake": "traced on fake tensors, without computing anything",
        "symbolic": "traced on fake tensors, with assumed values for data-dependent sizes",
        "cpu_step": "counted in a real step on this machine's CPU",
    }
    lines = [
        f"{methods[summary.method]}; formulas cover {units.format_ratio(summary.coverage_ratio)} of the operator calls."
    ]
    lines += [f"no formula for {op} ({count:,} calls)." for op, count in sorted(summary.unknown_ops.items())]
    if summary.optimizer and not any(line.startswith("optimizer:") for line in summary.assumptions):
        lines.append(f"optimizer: {summary.optimizer}.")
    return (*lines, *summary.assumptions)
