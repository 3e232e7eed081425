"""Show how a change affects FLOP, memory, time and cost."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.command import Command
from advisor.cli.flags import flag, option_flags
from advisor.cli.output import Output, output_flag, write, write_answer
from advisor.cli.terminal import say
from advisor.errors import ExitCode, UsageError
from advisor.records.options import Options
from advisor.units import format_significant, parse_ratio

if TYPE_CHECKING:
    from advisor.records.change import Comparison

COMPARISON_SUFFIXES = {"table": ".txt", "json": ".json", "markdown": ".md"}
_OUTPUT_HELP = "table, json, or markdown for a pull request, to stdout; or a file (.txt .json .md)"


def threshold_flag() -> click.Option:
    """Return the flag `--fail-if-cost-rises`."""
    help_text = "exit 3 if the cheapest cost rises by more than PERCENT, such as 10%"
    return flag("--fail-if-cost-rises", help_text, metavar="PERCENT", read=parse_ratio)


@click.command(
    "diff",
    cls=Command,
    params=[threshold_flag(), *option_flags(only=("top",)), output_flag(COMPARISON_SUFFIXES, help_text=_OUTPUT_HELP)],
    exits=(ExitCode.THRESHOLD, ExitCode.LOAD),
)
@click.argument("base", type=Path)
@click.argument("new", type=Path)
def command(base: Path, new: Path, fail_if_cost_rises: float | None, output: Output, options: Options) -> int:
    """Show how a change affects the FLOP, bytes, memory, parameters and time of a step, and the cost of the job.

    BASE and NEW are two answers, written by "advise SOURCE -o FILE.json" before and after the change, or two workloads,
    written by "advise profile SOURCE -o FILE.json". Workloads have no prices, but the comparison names the modules that
    changed. Counts are exact. A time or cost within the 90 % interval of the old one is marked as such. The interval is
    conservative: both predictions tend to err in the same direction on one device, and this is not taken into account.

    \b
    Examples:
      advise model.py --no-local -o base.json      on the base
      advise model.py --no-local -o new.json       with the change
      advise diff base.json new.json
      advise diff base.json new.json --fail-if-cost-rises 10% -o comment.md
    """
    from advisor.answers.comparison import compare_files

    comparison = compare_files(base, new)
    if fail_if_cost_rises is not None and comparison.kind == "workloads":
        raise UsageError(
            "--fail-if-cost-rises: workloads have no prices", hint="compare two answers of `advise SOURCE -o FILE.json`"
        )
    return write_comparison(comparison, output, top=options.top, fail_if_cost_rises=fail_if_cost_rises)


def write_comparison(
    comparison: "Comparison", output: Output, *, top: int, fail_if_cost_rises: float | None
) -> ExitCode:
    """Write the comparison; return `ExitCode.THRESHOLD` if the cost has risen by more than the threshold."""
    from advisor.answers.comparison import cost_rise_ratio
    from advisor.report.as_markdown import to_markdown
    from advisor.report.comparison import comparison_content

    content = comparison_content(comparison, top=top)
    if output.format == "markdown":
        write(to_markdown(content), output)
    else:
        write_answer(comparison, output, lambda _: content)
    rise = cost_rise_ratio(comparison)
    if fail_if_cost_rises is None or rise <= fail_if_cost_rises:
        return ExitCode.ANSWER
    if not comparison.new_fits:
        say("error: --fail-if-cost-rises: no instance can do the new job")
        return ExitCode.THRESHOLD
    limit = format_significant(100 * fail_if_cost_rises, digits=6)
    risen = f"rises by {_above(100 * rise, limit)} %" if math.isfinite(rise) else "was 0"
    say(f"error: the cheapest cost {risen}, over --fail-if-cost-rises {limit} %")
    return ExitCode.THRESHOLD


def _above(value: float, limit: str) -> str:
    """Format a value with as few digits, at least 2, as show that it is above the limit."""
    texts = [format_significant(value, digits=digits) for digits in range(2, 18)]
    return next((text for text in texts if float(text) > float(limit)), texts[-1])
