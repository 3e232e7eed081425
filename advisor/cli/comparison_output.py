"""Writes a comparison and returns its exit code, for `advise diff` and `--compare-to`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.output import Output, view_of, write
from advisor.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from advisor.records.change import Comparison

COMPARISON_SUFFIXES = {"table": ".txt", "json": ".json", "markdown": ".md"}


def threshold_flag() -> click.Option:
    """Return the flag `--fail-if-cost-rises`."""
    from advisor.records.flag_values import reader
    from advisor.units import parse_ratio

    return click.Option(
        ["--fail-if-cost-rises"],
        type=reader("--fail-if-cost-rises", parse_ratio),
        metavar="PERCENT",
        help="exit 3 if the cheapest cost rises by more than PERCENT, such as 10%",
    )


def compare_flags() -> list[click.Option]:
    """Return the flags `--compare-to` and `--fail-if-cost-rises`."""
    help_text = "show what changed since the answer in FILE (from `advise -o FILE.json`), as table, json or markdown"
    return [click.Option(["--compare-to"], type=Path, metavar="FILE", help=help_text), threshold_flag()]


def check_compared(
    *, compare_to: Path | None, fail_if_cost_rises: float | None, emit: str | None, output: Output
) -> None:
    """Raise `UsageError` for flags that cannot be combined, before any work is done."""
    if compare_to is None:
        if fail_if_cost_rises is not None:
            raise UsageError("--fail-if-cost-rises needs an answer to compare with", hint="add --compare-to BASE.json")
        return
    if emit is not None:
        raise UsageError("--compare-to and --emit cannot be used together", hint="remove one of them")
    if output.format not in COMPARISON_SUFFIXES:
        listed = ", ".join(COMPARISON_SUFFIXES)
        raise UsageError(f"-o {output.format}: a comparison has no such format", hint=f"formats: {listed}")


def write_comparison(
    comparison: "Comparison", output: Output, *, top: int, fail_if_cost_rises: float | None
) -> ExitCode:
    """Write the comparison; return `ExitCode.THRESHOLD` if the cost has risen by more than the threshold."""
    if output.format == "json":
        from advisor.report.as_json import to_json

        text = to_json(comparison)
    elif output.format == "markdown":
        from advisor.report.as_markdown import to_markdown
        from advisor.report.comparison import comparison_content

        text = to_markdown(comparison_content(comparison, top=top))
    else:
        from advisor.report.comparison import comparison_content
        from advisor.report.terminal import to_text

        text = to_text(comparison_content(comparison, top=top), view_of(output, top=top))
    write(text, output)
    if fail_if_cost_rises is None:
        return ExitCode.ANSWER

    from advisor.answers.answer_changes import cost_rise_ratio

    return ExitCode.THRESHOLD if cost_rise_ratio(comparison) > fail_if_cost_rises else ExitCode.ANSWER
