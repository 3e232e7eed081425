"""Explain why a step takes as long as it does."""

from functools import partial

import click

from advisor.cli.command import Asked, SourceCommand
from advisor.cli.flags import flag, option_flags
from advisor.cli.output import Output, table_or_json_flag, write_answer
from advisor.cli.terminal import progress
from advisor.errors import ExitCode

_ON_HELP = "offer or device to explain; repeat to compare several (default: the best offer)"


@click.command(
    "explain",
    cls=SourceCommand,
    params=[
        flag("--on", _ON_HELP, metavar="NAME", multiple=True),
        *option_flags(without=("measure",)),
        table_or_json_flag("json with every group"),
    ],
    exits=(ExitCode.NOTHING_FITS, ExitCode.LOAD),
    traces_early=True,
)
def command(asked: Asked, output: Output, on: tuple[str, ...]) -> int:
    """Explain the predicted time of a step: where it goes, by operator family and by module.

    "advise rank --help" lists the forms of SOURCE. FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a separate process
    but with your permissions: name only files that you trust.

    For each part, the answer shows what bounds it (compute, memory, launch, dispatch, transfer, loader or
    communication), its FLOP and bytes, its arithmetic intensity beside the ridge point of the device, and the share of
    the plain roofline that it reaches.

    --on takes an instance (g6.xlarge, "novita RTX 4090 24GB PCIe"), the id of an offer, or a device: t4, or xeon-8380@4
    for four physical cores. With two or more, the table shows which parts get faster from one to the next.

    \b
    Examples:
      advise explain model.py
      advise explain model.py --mode training --batch 32 --on h100-sxm5-80gb
      advise explain model.py --on c7a.xlarge --on g6.xlarge
      advise explain model.py --on l4 -o explanation.json
    """
    from advisor.answers.explanation import explain
    from advisor.report.explanation import explanation_content

    with progress(f"reading {asked.source}"):
        explanation = explain(asked.question(on=on), on=on)
    write_answer(explanation, output, partial(explanation_content, top=asked.options.top))
    return ExitCode.ANSWER
