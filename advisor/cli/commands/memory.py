"""`advise memory SOURCE`: show which devices have enough memory for a step of the model."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.progress import progress
from advisor.cli.source import SourceCommand, check_script_args
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from advisor.cli.output import Output

_OPTION_FLAGS = (
    "mode", "precision", "batch", "prompt_tokens", "output_tokens", "concurrency", "weights", "input", "attention",
    "provider", "region", "tier", "device", "price", "max_price_age", "drop_prices", "top", "timeout", "profiles",
    "prices",
)  # fmt: skip


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import option_flags
    from advisor.cli.output import output_flag

    return [
        click.Option(
            ["--on"],
            multiple=True,
            metavar="NAME",
            help="offer or device to check; repeat to compare several (default: every device on offer)",
        ),
        *option_flags(only=_OPTION_FLAGS),
        output_flag(
            {"table": ".txt", "json": ".json"},
            help_text="table, or json with every device, part and remedy, to stdout; or a file (.txt .json)",
        ),
    ]


@click.command(
    "memory",
    cls=SourceCommand,
    make_flags=_flags,
    exits=(ExitCode.NOTHING_FITS, ExitCode.LOAD),
    short_help="Check whether a step fits a device's memory.",
)
def command(
    source: str, script_args: tuple[str, ...], run: bool, output: "Output", on: tuple[str, ...], **params: Any
) -> int:
    """Check whether a step fits the memory of a device before you rent it, and what would make it fit.

    "advise rank --help" lists the forms of SOURCE. FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a separate process
    but with your permissions: name only files that you trust.

    For each device, the answer shows the peak memory with its range, the verdict (fits, tight, does not fit) and the
    largest batch. For the device closest to its limit, it also shows the parts of the peak, and what half precision, an
    8-bit optimizer, gradient accumulation, activation checkpointing and sharding would save on this model. --on takes
    the same names as in "advise explain".

    \b
    Examples:
      advise memory model.py --mode training
      advise memory model.py --mode training --batch 64 --on t4
      advise memory hf:./llama --on g5.xlarge --on a100-sxm4-80gb -o json
    """
    from advisor.answers.memory_fit import check_one_batch, memory_fit
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.question.from_source import question_from_source

    check_script_args(source, script_args, run=run)
    options = options_from(params)
    check_one_batch(options)
    with progress(f"reading {source}"):
        question = question_from_source(source, options, run=run, script_args=script_args, read_machine=None)
        answer = memory_fit(question, on=on)
    if output.format == "json":
        from advisor.report.as_json import to_json

        write(to_json(answer), output)
    else:
        from advisor.report.memory import memory_content
        from advisor.report.terminal import to_text

        write(to_text(memory_content(answer, top=options.top), view_of(output, top=options.top)), output)
    return (
        ExitCode.ANSWER if any(device.verdict != "does not fit" for device in answer.devices) else ExitCode.NOTHING_FITS
    )
