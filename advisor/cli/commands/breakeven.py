"""`advise breakeven SOURCE`: find where the cheapest CPU and the cheapest GPU cost the same."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.progress import progress
from advisor.cli.source import SourceCommand, check_script_args
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from advisor.cli.output import Output


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import option_flags
    from advisor.cli.output import output_flag

    return [
        click.Option(
            ["--vary"],
            multiple=True,
            metavar="NAME=FROM..TO",
            help="vary this parameter of the model's factory: width=64..4096 or depth=2,6,12 "
            "(default: a width and a depth, if the factory has such parameters)",
        ),
        *option_flags(without=("measure",)),
        output_flag(
            {"table": ".txt", "json": ".json"},
            help_text="table, or json with every point, to stdout; or a file (.txt .json)",
        ),
    ]


@click.command(
    "breakeven",
    cls=SourceCommand,
    make_flags=_flags,
    exits=(ExitCode.NOTHING_FITS, ExitCode.LOAD),
    short_help="Find where CPU and GPU cost the same.",
)
def command(
    source: str, script_args: tuple[str, ...], run: bool, output: "Output", vary: tuple[str, ...], **params: Any
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
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.question.from_source import question_from_source
    from advisor.question.variations import trace_variations

    check_script_args(source, script_args, run=run)
    options = options_from(params)
    with progress(f"reading {source}"):
        question = question_from_source(source, options, run=run, script_args=script_args, use_trace_cache=True)
        answer = break_even(question, variations=trace_variations(source, options, vary=vary, run=run))
    if output.format == "json":
        from advisor.report.as_json import to_json

        write(to_json(answer), output)
    else:
        from advisor.report.break_even import break_even_content
        from advisor.report.terminal import to_text

        write(to_text(break_even_content(answer), view_of(output, top=options.top)), output)
    return ExitCode.ANSWER
