"""`advise explain SOURCE`: show where the time of one step goes, on one or more devices."""

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
            ["--on"],
            multiple=True,
            metavar="NAME",
            help="offer or device to explain; repeat to compare several (default: the best offer)",
        ),
        *option_flags(without=("measure",)),
        output_flag(
            {"table": ".txt", "json": ".json"},
            help_text="table, or json with every group, to stdout; or a file (.txt .json)",
        ),
    ]


@click.command(
    "explain",
    cls=SourceCommand,
    make_flags=_flags,
    exits=(ExitCode.NOTHING_FITS, ExitCode.LOAD),
    short_help="Explain why a step takes as long as it does.",
)
def command(
    source: str, script_args: tuple[str, ...], run: bool, output: "Output", on: tuple[str, ...], **params: Any
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
    from advisor.answers.explanation import explain
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.question.from_source import question_from_source

    check_script_args(source, script_args, run=run)
    options = options_from(params)
    with progress(f"reading {source}"):
        explanation = explain(question_from_source(source, options, run=run, script_args=script_args, on=on), on=on)
    if output.format == "json":
        from advisor.report.as_json import to_json

        write(to_json(explanation), output)
    else:
        from advisor.report.explanation import explanation_content
        from advisor.report.terminal import to_text

        write(to_text(explanation_content(explanation, top=options.top), view_of(output, top=options.top)), output)
    return ExitCode.ANSWER
