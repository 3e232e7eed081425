"""Check whether a step fits a device's memory."""

from typing import TYPE_CHECKING

import click

from advisor.cli.command import SourceCommand
from advisor.cli.terminal import progress
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from advisor.cli.output import Output
    from advisor.records.options import Options
    from advisor.workload.source_trace import SourceTrace

_OPTION_FLAGS = (
    "mode", "precision", "batch", "prompt_tokens", "output_tokens", "concurrency", "weights", "input", "attention",
    "provider", "region", "tier", "arch", "instance", "device", "price", "max_price_age", "drop_prices", "top",
    "timeout", "profiles", "prices",
)  # fmt: skip


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import flag, option_flags
    from advisor.cli.output import table_or_json_flag

    on_help = "offer or device to check; repeat to compare several (default: every device on offer)"
    return [
        flag("--on", on_help, metavar="NAME", multiple=True),
        *option_flags(only=_OPTION_FLAGS),
        table_or_json_flag("json with every device, part and remedy"),
    ]


@click.command(
    "memory",
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
    from functools import partial

    from advisor.answers.memory_fit import check_one_batch, memory_fit
    from advisor.cli.output import write_answer
    from advisor.question.from_source import question_from_source
    from advisor.report.memory import memory_content

    check_one_batch(options)
    with progress(f"reading {source}"):
        question = question_from_source(
            source, options, run=run, script_args=script_args, trace=trace, read_machine=None
        )
        answer = memory_fit(question, on=on)
    write_answer(answer, output, partial(memory_content, top=options.top))
    fits = any(device.verdict != "does not fit" for device in answer.devices)
    return ExitCode.ANSWER if fits else ExitCode.NOTHING_FITS
