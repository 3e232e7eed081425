"""Find where CPU and GPU cost the same."""

import click

from advisor.cli.command import Asked, SourceCommand
from advisor.cli.flags import flag, option_flags
from advisor.cli.output import Output, table_or_json_flag, write_answer
from advisor.cli.terminal import progress
from advisor.errors import ExitCode

_VARY_HELP = (
    "vary this parameter of the model's factory: width=64..4096 or depth=2,6,12 "
    "(default: a width and a depth, if the factory has such parameters)"
)


@click.command(
    "breakeven",
    cls=SourceCommand,
    params=[
        flag("--vary", _VARY_HELP, metavar="NAME=FROM..TO", multiple=True),
        *option_flags(without=("measure", "objective")),
        table_or_json_flag("json with every point"),
    ],
    exits=(ExitCode.NOTHING_FITS, ExitCode.LOAD),
)
def command(asked: Asked, output: Output, vary: tuple[str, ...]) -> int:
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
      advise breakeven hf:openai-community/gpt2 --mode training \\
        --samples 50000 -o curves.json
    """
    from advisor.answers.break_even import break_even
    from advisor.question.variations import trace_variations
    from advisor.report.break_even import break_even_content

    with progress(f"reading {asked.source}"):
        question = asked.question()
        variations = trace_variations(asked.source, asked.options, vary=vary, run=asked.run)
        answer = break_even(question, variations=variations)
    write_answer(answer, output, break_even_content)
    return ExitCode.ANSWER
