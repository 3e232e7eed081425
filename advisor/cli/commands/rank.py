"""Rank instances by the cost of the job (the default command)."""

from datetime import date
from pathlib import Path

import click

from advisor.cli.command import Asked, SourceCommand
from advisor.cli.commands.diff import COMPARISON_SUFFIXES, threshold_flag, write_comparison
from advisor.cli.flags import flag, option_flags
from advisor.cli.output import PAGE_SUFFIXES, STDOUT, Output, output_flag, view_of, write
from advisor.cli.terminal import progress, say
from advisor.errors import ExitCode, UsageError
from advisor.launch.engines import engine_names
from advisor.report.formats import format_module, format_suffixes
from advisor.units import parse_count

_TASK_SUFFIXES = {"yaml": ".yaml", "yml": ".yml"}
_EMIT_HELP = (
    "write a task file that runs SOURCE on the best instance, with --requests-per-day or --requests-per-second as a "
    "service, to stdout or to -o FILE (.yaml .yml)"
)
_COMPARE_HELP = "show what changed since the answer in FILE (from `advise -o FILE.json`), as table, json or markdown"
_OUTPUT_HELP = (
    "print this format to stdout, or write FILE in the format of its suffix (.txt .json .csv .md .html); json, csv "
    "and html contain every row"
)
_IMAGE_HELP = "with --emit kubernetes or karpenter: container image that has the current folder as /workflow"
_PORT_HELP = "with --emit: the port on which a service's script listens"


@click.command(
    "rank",
    cls=SourceCommand,
    params=[
        *option_flags(),
        flag("--emit", _EMIT_HELP, choices=engine_names()),
        flag(
            "--idle-minutes",
            "with --emit: stop the machine after N idle minutes",
            metavar="N",
            read=parse_count,
            default="10",
        ),
        flag("--port", _PORT_HELP, metavar="N", read=parse_count, default="8000"),
        flag("--image", _IMAGE_HELP, metavar="IMAGE"),
        flag("--compare-to", _COMPARE_HELP, metavar="FILE", read=Path),
        threshold_flag(),
        click.Option(
            ["--details"], is_flag=True, help="print every assumption, note and reason; files have them anyway"
        ),
        output_flag({**format_suffixes(), **PAGE_SUFFIXES, **_TASK_SUFFIXES}, help_text=_OUTPUT_HELP),
    ],
    exits=(ExitCode.NOTHING_FITS, ExitCode.THRESHOLD, ExitCode.LOAD),
    traces_early=True,
)
def command(
    asked: Asked,
    output: Output,
    emit: str | None,
    idle_minutes: int,
    port: int,
    image: str | None,
    compare_to: Path | None,
    fail_if_cost_rises: float | None,
    details: bool,
) -> int:
    """Rank CPU and GPU instances by what the job costs on them, and say why.

    SOURCE is one of

    \b
      FILE.py[::NAME]    a module, a class or a factory in a Python file
      SCRIPT.py --run    a training or inference script, run up to its first step
      torchvision:NAME   timm:NAME[@SIZE]   hf:ID_OR_CONFIG
      FILE.pt2           an exported program
      FILE.onnx          an ONNX graph, for inference
      FILE.json          a workload saved by "advise profile -o"
      FILE.yaml          a fine-tuning run of axolotl, LLaMA-Factory or torchtune

    FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a separate process but with your permissions: name only files that
    you trust. Their output goes to stderr, and they are stopped after --timeout.

    Without flags, the job is inference of 1,000,000 samples, at the batch size and the precision (fp32 or autocast)
    that cost least on each device. Prices are on-demand, each instance type in its cheapest region, without
    marketplaces. The answer lists these assumptions. The first run takes 5 s longer, because it measures this machine's
    CPU (see "advise calibrate"); --no-calibrate skips this.

    --provider, --region, --tier, --arch, --instance and --device take several values, separated by commas or by
    repeating the flag.

    \b
    Examples:
      advise model.py
      advise model.py::Net --input 3x224x224 --batch 32
      advise model.py --mode training --samples 50000 --epochs 90 --batch 256
      advise train.py --run -- --epochs 3 --data /tmp/data
      advise hf:Qwen/Qwen2.5-7B --input input_ids=2048:int64 --precision bf16
      advise model.py --region EU --tier hyperscaler --price spot --top 20
      advise model.py -o answer.json
      advise model.py -o report.html
      advise model.py --compare-to answer.json --fail-if-cost-rises 10%
      advise train.py --run --emit skypilot -o task.yaml -- --epochs 3
    """
    from advisor.answers.comparison import compare_answers, read_base
    from advisor.answers.ranking import rank
    from advisor.calibrate.first_use import calibrations_on_first_use

    source, options = asked.source, asked.options
    _check_compared(compare_to=compare_to, fail_if_cost_rises=fail_if_cost_rises, emit=emit, output=output)
    _check_task(source, emit=emit, output=output)
    base = None if compare_to is None else read_base(compare_to)  # before anything is traced
    with progress(f"reading {source}"):
        question = asked.question(read_calibrations=calibrations_on_first_use)
        if output.format in PAGE_SUFFIXES:
            from advisor.answers.full_report import report
            from advisor.report.html import render_report

            found = report(question)
            recommendation = found.recommendation
        else:
            recommendation = rank(question)
    if output.format in PAGE_SUFFIXES:
        write(render_report(found), output)
    elif emit is not None:
        from advisor.answers.launch_file import task_file

        task = task_file(
            recommendation,
            engine=emit,
            gpus=question.catalog.gpus,
            source=source,
            script_args=asked.script_args,
            idle_minutes=idle_minutes,
            port=port,
            image=image or "",
            captured=question.workload.script,
            file=output.path,
            today=date.today(),
        )
        write(task.text, output)
        for note in task.notes:
            say(f"note: {note}")
        if output.path is not None:
            say(f"wrote {output.path}: run it with `{task.command} {output.path}`")
        return ExitCode.ANSWER
    elif base is not None:
        comparison = compare_answers(base, recommendation)
        return write_comparison(comparison, output, top=options.top, fail_if_cost_rises=fail_if_cost_rises)
    else:
        view = view_of(output, top=options.top, folded="--details" if output.path is None and not details else "")
        write(format_module(output.format).render(recommendation, view), output)
    return ExitCode.ANSWER if recommendation.best else ExitCode.NOTHING_FITS


def _check_compared(
    *, compare_to: Path | None, fail_if_cost_rises: float | None, emit: str | None, output: Output
) -> None:
    """Raise `UsageError` for flags that cannot be combined, before any work is done."""
    if compare_to is None:
        if fail_if_cost_rises is not None:
            raise UsageError("--fail-if-cost-rises needs an answer to compare with", hint="add --compare-to BASE.json")
    elif emit is not None:
        raise UsageError("--compare-to and --emit cannot be used together", hint="remove one of them")
    elif output.format not in COMPARISON_SUFFIXES:
        listed = ", ".join(COMPARISON_SUFFIXES)
        raise UsageError(f"-o {output.format}: a comparison has no such format", hint=f"formats: {listed}")


def _check_task(source: str, *, emit: str | None, output: Output) -> None:
    """Raise `UsageError` if `--emit`, `-o` and the source cannot be combined, before any work is done."""
    is_task_file = output.format in _TASK_SUFFIXES
    if emit is not None:
        from advisor.answers.launch_file import check_launchable

        if not is_task_file and output != STDOUT:
            raise UsageError(f"-o {output.path or output.format}: a task file is YAML", hint="write -o task.yaml")
        check_launchable(source)
    elif is_task_file:
        raise UsageError(
            f"-o {output.format}: only a task file is YAML", hint="add --emit skypilot, dstack, kubernetes or karpenter"
        )
