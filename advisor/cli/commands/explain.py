"""Explain why a step takes as long as it does."""

from typing import TYPE_CHECKING

import click

from advisor.cli.command import SourceCommand
from advisor.cli.terminal import progress
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from advisor.cli.output import Output
    from advisor.records.options import Options
    from advisor.workload.source_trace import SourceTrace


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import flag, option_flags
    from advisor.cli.output import table_or_json_flag

    on_help = "offer or device to explain; repeat to compare several (default: the best offer)"
    return [
        flag("--on", on_help, metavar="NAME", multiple=True),
        *option_flags(without=("measure",)),
        table_or_json_flag("json with every group"),
    ]


@click.command(
    "explain",
    cls=SourceCommand,
    make_flags=_flags,
    exits=(ExitCode.NOTHING_FITS, ExitCode.LOAD),
    traces_early=True,
    short_help=__doc__,
)
def command(
    source: str,
    script_args: tuple[str, ...],
    run: bool,
    output: "Output",
    on: tuple[str, ...],
    options: "Options",
    trace: "SourceTrace | None",
) -> int:
    """Explain the predicted time of a step: where it goes, by operator family and by module.

    "advise rank --help" lists the forms of SOURCE. FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a separate process
    but with your permissions: name only files that you trust.

    For each part, the answer shows what bounds it (compute, memory, launch, dispatch, transfer), its FLOP and bytes,
    its arithmetic intensity beside the ridge point of the device, and the share of the plain roofline that it reaches.

    --on takes an instance (g6.xlarge, "novita RTX 4090 24GB PCIe"), the id of an offer, or a device: t4, or xeon-8380@4
    for four physical cores. With two or more, the table shows which parts get faster from one to the next.

    \b
    Examples:
      advise explain model.py
      advise explain model.py --mode training --batch 32 --on h100-sxm5-80gb
      advise explain model.py --on c7a.xlarge --on g6.xlarge
      advise explain model.py --on l4 -o explanation.json
    """
    from functools import partial

    from advisor.answers.explanation import explain
    from advisor.cli.output import write_answer
    from advisor.question.from_source import question_from_source
    from advisor.report.explanation import explanation_content

    with progress(f"reading {source}"):
        question = question_from_source(source, options, run=run, script_args=script_args, on=on, trace=trace)
        explanation = explain(question, on=on)
    write_answer(explanation, output, partial(explanation_content, top=options.top))
    return ExitCode.ANSWER
