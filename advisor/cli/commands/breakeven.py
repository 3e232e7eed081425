"""Find where CPU and GPU cost the same."""

from typing import TYPE_CHECKING

import click

from advisor.cli.command import SourceCommand
from advisor.cli.terminal import progress
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from advisor.cli.output import Output
    from advisor.records.options import Options


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import flag, option_flags
    from advisor.cli.output import table_or_json_flag

    vary_help = (
        "vary this parameter of the model's factory: width=64..4096 or depth=2,6,12 "
        "(default: a width and a depth, if the factory has such parameters)"
    )
    return [
        flag("--vary", vary_help, metavar="NAME=FROM..TO", multiple=True),
        *option_flags(without=("measure",)),
        table_or_json_flag("json with every point"),
    ]


@click.command(
    "breakeven", cls=SourceCommand, make_flags=_flags, exits=(ExitCode.NOTHING_FITS, ExitCode.LOAD), short_help=__doc__
)
def command(
    source: str, script_args: tuple[str, ...], run: bool, output: "Output", vary: tuple[str, ...], options: "Options"
) -> int:
    """Find where the cheapest CPU and the cheapest GPU cost the same, and which is cheaper on each side.

    "advise rank --help" lists the forms of SOURCE. FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a separate process
    but with your permissions: name only files that you trust.

    The answer has four curves: cost over the batch size (limit it with --batch A..B), over the requests per day of a
    service that is always on, over the number of samples (with start-up time and minimum billing), and over a width or
    depth parameter of the model's factory. At each point, CPU and GPU each use their cheapest offer within your limits.

    \b
    Examples:
      advise breakeven model.py
      advise breakeven model.py --batch 1..512 --provider aws
      advise breakeven model.py::get_model --vary width=64..4096
      advise breakeven hf:./gpt2 --mode training --samples 50000 -o curves.json
    """
    from advisor.answers.break_even import break_even
    from advisor.cli.output import write_answer
    from advisor.question.from_source import question_from_source
    from advisor.question.variations import trace_variations
    from advisor.report.break_even import break_even_content

    with progress(f"reading {source}"):
        question = question_from_source(source, options, run=run, script_args=script_args)
        answer = break_even(question, variations=trace_variations(source, options, vary=vary, run=run))
    write_answer(answer, output, break_even_content)
    return ExitCode.ANSWER
