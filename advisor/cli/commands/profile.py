"""Count the FLOP, bytes and memory of one step."""

from functools import partial
from typing import TYPE_CHECKING

import click

from advisor.cli.command import Asked, SourceCommand
from advisor.cli.flags import flag, for_one_batch, option_flags
from advisor.cli.output import Output, table_or_json_flag, write_answer
from advisor.cli.terminal import progress
from advisor.errors import ExitCode
from advisor.records.answer import Group, GroupBy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from advisor.question.from_source import Profile
    from advisor.report.content import Block

_OPTION_FLAGS = (
    "mode", "batch", "prompt_tokens", "output_tokens", "finetune", "lora_rank", "lora_targets", "sequence", "optim",
    "trainer_kernels", "model_config", "input", "attention", "top", "strict", "timeout",
)  # fmt: skip
_SECOND_HELP = "also count with fvcore on the real model, and show where the two counts differ"


@click.command(
    "profile",
    cls=SourceCommand,
    params=[
        *for_one_batch(option_flags(only=_OPTION_FLAGS)),
        flag("--by", "what each row of the table stands for", choices=("module", "family", "phase"), default="module"),
        click.Option(["--second-count"], is_flag=True, help=_SECOND_HELP),
        table_or_json_flag("json for the whole workload"),
    ],
    exits=(ExitCode.LOAD,),
)
def command(asked: Asked, output: Output, by: GroupBy, second_count: bool) -> int:
    """Count what one step of a model does: FLOP, bytes read and written, peak memory.

    "advise rank --help" lists the forms of SOURCE. FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a separate process
    but with your permissions: name only files that you trust.

    One multiply-add is two FLOP. The count does not depend on a device. A saved count can be ranked on any machine,
    without torch.

    \b
    Examples:
      advise profile model.py
      advise profile model.py --mode training --batch 32 --by phase
      advise profile hf:Qwen/Qwen2.5-7B -o workload.json && advise workload.json
      advise profile model.py --second-count
    """
    from advisor.question.from_source import profile_source

    source, run, script_args, options, _ = asked
    with progress(f"reading {source}"):
        profile = profile_source(source, options, run=run, script_args=script_args, second_count=second_count)
    write_answer(profile, output, partial(_content, by=by, top=options.top), as_json=_json)
    return ExitCode.ANSWER


def _content(profile: "Profile", /, *, by: GroupBy, top: int) -> "Iterator[Block]":
    from advisor.report.profile import profile_content, second_count_content

    yield from profile_content(profile.summary, profile.groups(by), by=by, top=top)
    if profile.second_count is not None:
        yield from second_count_content(profile.second_count, _forward_families(profile))


def _forward_families(profile: "Profile") -> tuple[Group, ...]:
    """Return our count of what fvcore counts: only the forward pass, at the batch size that fvcore used."""
    from dataclasses import replace

    workload = profile.workload
    batch = workload.batch if profile.second_count is None else profile.second_count.batch
    rows = tuple(row for row in workload.rows if row.phase == "forward")
    forward = replace(workload, rows=rows, batch=batch)
    return replace(profile, workload=forward).groups("family")


def _json(profile: "Profile") -> str:
    import json
    from dataclasses import asdict

    from advisor.workload.file import workload_to_json

    count = {} if profile.second_count is None else {"second_count": asdict(profile.second_count)}
    return json.dumps(workload_to_json(profile.workload) | count, allow_nan=False) + "\n"
