"""Writes a comparison and returns its exit code, for `advise diff` and `--compare-to`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.flags import flag
from advisor.cli.output import Output, write, write_answer
from advisor.errors import ExitCode, UsageError
from advisor.units import parse_ratio

if TYPE_CHECKING:
    from advisor.records.change import Comparison

COMPARISON_SUFFIXES = {"table": ".txt", "json": ".json", "markdown": ".md"}


def threshold_flag() -> click.Option:
    """Return the flag `--fail-if-cost-rises`."""
    help_text = "exit 3 if the cheapest cost rises by more than PERCENT, such as 10%"
    return flag("--fail-if-cost-rises", help_text, metavar="PERCENT", read=parse_ratio)


def compare_flags() -> list[click.Option]:
    """Return the flags `--compare-to` and `--fail-if-cost-rises`."""
    help_text = "show what changed since the answer in FILE (from `advise -o FILE.json`), as table, json or markdown"
    return [flag("--compare-to", help_text, metavar="FILE", read=Path), threshold_flag()]


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
    from advisor.report.comparison import comparison_content

    content = comparison_content(comparison, top=top)
    if output.format == "markdown":
        from advisor.report.as_markdown import to_markdown

        write(to_markdown(content), output)
    else:
        write_answer(comparison, output, lambda _: content)
    if fail_if_cost_rises is None:
        return ExitCode.ANSWER

    from advisor.answers.comparison import cost_rise_ratio

    return ExitCode.THRESHOLD if cost_rise_ratio(comparison) > fail_if_cost_rises else ExitCode.ANSWER
