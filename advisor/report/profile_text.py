"""A profiled workload as text for a terminal: the totals, then where FLOP and bytes go."""

from collections.abc import Sequence
from typing import Protocol

from advisor import units
from advisor.records.answer import WorkloadSummary
from advisor.report.text import captured, capturing_console, plain_table, print_line, print_list
from advisor.report.view import View


class Group(Protocol):
    """The rows of one module, family or phase, added up over one step."""

    @property
    def name(self) -> str:
        """The module's path, the family or the phase."""

    @property
    def flops(self) -> float:
        """FLOP; a multiply-add is two."""

    @property
    def read_bytes(self) -> float:
        """Bytes that operators read."""

    @property
    def write_bytes(self) -> float:
        """Bytes that operators write."""

    @property
    def count(self) -> int:
        """Operator calls."""

    @property
    def share(self) -> float:
        """Its part of the FLOP of the step."""


def render_profile(summary: WorkloadSummary, groups: Sequence[Group], *, by: str, view: View) -> str:
    """The totals of one step and its `view.top` largest groups."""
    totals = summary.totals
    console = capturing_console(width=view.width, color=view.color)
    print_line(
        console,
        f"{summary.name}: {units.format_flops(totals.flops)} a step at batch {totals.batch:,}, "
        f"{units.format_count(totals.parameter_count)} parameters, "
        f"reads {units.format_bytes(totals.read_bytes)}, writes {units.format_bytes(totals.write_bytes)}, "
        f"{units.format_bytes(totals.peak_memory_bytes)} at the peak, {totals.op_count:,} operator calls.",
        style="bold",
    )
    console.print()
    shown = groups[: view.top]
    console.print(
        plain_table(
            (by, "FLOP", "share", "read", "written", "calls"),
            [_cells(group) for group in shown],
            numbers=(False, True, True, True, True, True),
        )
    )
    if len(groups) > len(shown):
        rest = sum(group.share for group in groups[len(shown) :])
        print_line(
            console,
            f"{len(groups) - len(shown):,} more with {units.format_ratio(rest)} of the FLOP "
            f"(--top {len(groups)} shows all).",
            style="dim",
        )
    print_list(console, "Counted:", _counting(summary))
    return captured(console)


def _cells(group: Group) -> tuple[str, ...]:
    return (
        group.name or "(the model itself)",
        units.format_flops(group.flops),
        units.format_ratio(group.share),
        units.format_bytes(group.read_bytes),
        units.format_bytes(group.write_bytes),
        f"{group.count:,}",
    )


def _counting(summary: WorkloadSummary) -> tuple[str, ...]:
    """How the step was traced and what has no formula."""
    methods = {
        "fake": "traced on fake tensors: nothing was computed",
        "symbolic": "traced on fake tensors, with sizes assumed that depend on the data",
        "cpu_step": "counted in a real step on this machine's CPU",
    }
    lines = [f"{methods[summary.method]}; formulas cover {units.format_ratio(summary.coverage_ratio)} of the calls."]
    lines += [f"no formula for {op} ({count:,} calls)." for op, count in sorted(summary.unknown_ops.items())]
    if summary.optimizer:
        lines.append(f"optimizer: {summary.optimizer}.")
    return (*lines, *summary.assumptions)
