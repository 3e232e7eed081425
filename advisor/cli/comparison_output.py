"""A comparison in, its text, JSON or Markdown out, and an exit code: shared by `advise diff` and `--compare-to`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.output import Output, view_of, write
from advisor.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from advisor.records.change import Comparison

COMPARISON_SUFFIXES = {"table": ".txt", "json": ".json", "markdown": ".md"}


def threshold_flag() -> click.Option:
    """`--fail-if-cost-rises`."""
    from advisor.records.flag_values import reader
    from advisor.units import parse_ratio

    return click.Option(
        ["--fail-if-cost-rises"],
        type=reader("--fail-if-cost-rises", parse_ratio),
        metavar="PERCENT",
        help="exit with 3 if the job at its cheapest costs by more than that more: 10%",
    )


def compare_flags() -> list[click.Option]:
    """`--compare-to` and its threshold."""
    help_text = "answer with what changed since the answer in FILE, as table, json or markdown (`advise -o FILE.json`)"
    return [click.Option(["--compare-to"], type=Path, metavar="FILE", help=help_text), threshold_flag()]


def check_compared(
    *, compare_to: Path | None, fail_if_cost_rises: float | None, emit: str | None, output: Output
) -> None:
    """Raise `UsageError` where the flags do not go together, before work is done."""
    if compare_to is None:
        if fail_if_cost_rises is not None:
            raise UsageError("--fail-if-cost-rises: rises from what?", hint="add --compare-to BASE.json")
        return
    if emit is not None:
        raise UsageError("--compare-to and --emit both say what to answer with", hint="keep one of them")
    if output.format not in COMPARISON_SUFFIXES:
        listed = ", ".join(COMPARISON_SUFFIXES)
        raise UsageError(f"-o {output.format}: a comparison is not written so", hint=f"formats: {listed}")


def write_comparison(
    comparison: "Comparison", output: Output, *, top: int, fail_if_cost_rises: float | None
) -> ExitCode:
    """Write it; the code says whether the cost has risen by more than the threshold."""
    if output.format == "json":
        from advisor.report.as_json import to_json

        text = to_json(comparison)
    elif output.format == "markdown":
        from advisor.report.comparison_markdown import render_comparison_markdown

        text = render_comparison_markdown(comparison, top=top)
    else:
        from advisor.report.comparison_text import render_comparison

        text = render_comparison(comparison, view=view_of(output, top=top))
    write(text, output)
    if fail_if_cost_rises is None:
        return ExitCode.ANSWER

    from advisor.answers.answer_changes import cost_rise_ratio

    return ExitCode.THRESHOLD if cost_rise_ratio(comparison) > fail_if_cost_rises else ExitCode.ANSWER
