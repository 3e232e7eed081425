"""`advise diff BASE.json NEW.json`: two answers or two workloads in, what changed out."""

from typing import TYPE_CHECKING

import click

from advisor.cli.lazy import LazyCommand, path_of
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.cli.output import Output


def _flags() -> list[click.Parameter]:
    from advisor.cli.comparison_output import COMPARISON_SUFFIXES, threshold_flag
    from advisor.cli.flags import option_flags
    from advisor.cli.output import output_flag

    help_text = "table, json, or markdown for a pull request, to stdout; or a file (.txt .json .md)"
    return [threshold_flag(), *option_flags(only=("top",)), output_flag(COMPARISON_SUFFIXES, help_text=help_text)]


@click.command(
    "diff",
    cls=LazyCommand,
    make_flags=_flags,
    exits=(ExitCode.THRESHOLD, ExitCode.LOAD),
    short_help="Say what a change did to FLOP, memory, time and cost.",
)
@click.argument("base", type=path_of)
@click.argument("new", type=path_of)
def command(base: "Path", new: "Path", fail_if_cost_rises: float | None, top: int, output: "Output") -> int:
    """Say what a change did: FLOP, bytes, memory and parameters of a step, its time, and the cost of the job.

    BASE and NEW are what "advise SOURCE -o FILE.json" wrote before and after the change, or what "advise profile SOURCE
    -o FILE.json" did: these have no prices, and name the modules that changed. Counts are exact. A time or cost inside
    the 90 % interval of the old one is said to be so; that two predictions err alike on one device is not taken off.

    \b
    Examples:
      advise model.py --no-local -o base.json      on the base
      advise model.py --no-local -o new.json       with the change
      advise diff base.json new.json
      advise diff base.json new.json --fail-if-cost-rises 10% -o comment.md
    """
    from advisor.answers.comparison import compare_files
    from advisor.cli.comparison_output import write_comparison
    from advisor.errors import UsageError

    comparison = compare_files(base, new)
    if fail_if_cost_rises is not None and comparison.kind == "workloads":
        raise UsageError("--fail-if-cost-rises: workloads have no prices", hint="compare answers of `advise SOURCE`")
    return write_comparison(comparison, output, top=top, fail_if_cost_rises=fail_if_cost_rises)
