"""`advise profile SOURCE`: count the FLOP, bytes and memory of one step."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.progress import progress
from advisor.cli.source import SourceCommand, check_script_args
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from advisor.cli.output import Output
    from advisor.question.from_source import Profile
    from advisor.records.answer import Group, GroupBy
    from advisor.report.view import View

_OPTION_FLAGS = (
    "mode", "batch", "prompt_tokens", "output_tokens", "input", "attention", "top", "strict", "timeout",
)  # fmt: skip
_GROUPINGS = ("module", "family", "phase")


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import option_flags
    from advisor.cli.output import output_flag
    from advisor.records.flag_values import choice

    return [
        *option_flags(only=_OPTION_FLAGS),
        click.Option(
            ["--by"],
            type=choice("--by", _GROUPINGS),
            default="module",
            show_default=True,
            metavar="|".join(_GROUPINGS),
            help="what each row of the table stands for",
        ),
        click.Option(
            ["--second-count"],
            is_flag=True,
            help="also count with fvcore on the real model, and show where the two counts differ",
        ),
        output_flag(
            {"table": ".txt", "json": ".json"},
            help_text="table, or json for the whole workload, to stdout; or a file (.txt .json)",
        ),
    ]


@click.command(
    "profile",
    cls=SourceCommand,
    make_flags=_flags,
    exits=(ExitCode.LOAD,),
    short_help="Count the FLOP, bytes and memory of one step.",
)
def command(
    source: str,
    script_args: tuple[str, ...],
    run: bool,
    output: "Output",
    by: "GroupBy",
    second_count: bool,
    **params: Any,
) -> int:
    """Count what one step of a model does: FLOP, bytes read and written, peak memory.

    "advise rank --help" lists the forms of SOURCE. FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a separate process
    but with your permissions: name only files that you trust.

    One multiply-add is two FLOP. The count does not depend on a device. A saved count can be ranked on any machine,
    without torch.

    \b
    Examples:
      advise profile model.py
      advise profile model.py --mode training --batch 32 --by phase
      advise profile hf:./llama -o workload.json && advise workload.json
      advise profile model.py --second-count
    """
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write
    from advisor.question.from_source import profile_source

    check_script_args(source, script_args, run=run)
    options = options_from(params)
    with progress(f"reading {source}"):
        profile = profile_source(source, options, run=run, script_args=script_args, second_count=second_count)
    if output.format == "json":
        write(_json(profile), output)
    else:
        write(_text(profile, by=by, view=view_of(output, top=options.top)), output)
    return ExitCode.ANSWER


def _text(profile: "Profile", *, by: "GroupBy", view: "View") -> str:
    from advisor.report.profile import profile_content, second_count_content
    from advisor.report.terminal import to_text

    content = [*profile_content(profile.summary, profile.groups(by), by=by, top=view.top)]
    if profile.second_count is not None:
        content += second_count_content(profile.second_count, _forward_families(profile))
    return to_text(content, view)


def _forward_families(profile: "Profile") -> "tuple[Group, ...]":
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
