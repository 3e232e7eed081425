"""Check whether a step fits a device's memory."""

from functools import partial

import click

from advisor.cli.command import Asked, SourceCommand
from advisor.cli.flags import flag, for_one_batch, option_flags
from advisor.cli.output import Output, table_or_json_flag, write_answer
from advisor.cli.terminal import progress
from advisor.errors import ExitCode
from advisor.records.options import OF_MEMORY

_ON_HELP = "offer or device to check; repeat to compare several (default: every device on offer)"


@click.command(
    "memory",
    cls=SourceCommand,
    params=[
        flag("--on", _ON_HELP, metavar="NAME", multiple=True),
        *for_one_batch(option_flags(only=OF_MEMORY)),
        table_or_json_flag("json with every device, part and remedy"),
    ],
    exits=(ExitCode.NOTHING_FITS, ExitCode.LOAD),
    traces_early=True,
)
def command(asked: Asked, output: Output, on: tuple[str, ...]) -> int:
    """Check whether a step fits the memory of a device before you rent it, and what would make it fit.

    "advise rank --help" lists the forms of SOURCE. FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a separate process
    but with your permissions: name only files that you trust.

    For each device, the answer shows the peak memory with its range, the verdict (fits, tight, does not fit) and the
    largest batch. For the device closest to its limit, it also shows the parts of the peak, and what half precision, an
    8-bit optimizer, logits in chunks, gradient accumulation, activation checkpointing and sharding would save on this
    model. --on takes the same names as in "advise explain".

    \b
    Examples:
      advise memory model.py --mode training
      advise memory model.py --mode training --batch 64 --on t4
      advise memory hf:Qwen/Qwen2.5-7B --on g5.xlarge --on a100-sxm4-80gb -o json
    """
    from advisor.answers.memory_fit import check_one_batch, memory_fit, reading_here
    from advisor.report.memory import memory_content

    check_one_batch(asked.options)
    with progress(f"reading {asked.source}"):
        answer = memory_fit(asked.question(**reading_here(on)), on=on)
    write_answer(answer, output, partial(memory_content, top=asked.options.top))
    fits = any(device.verdict != "does not fit" for device in answer.devices)
    return ExitCode.ANSWER if fits else ExitCode.NOTHING_FITS
