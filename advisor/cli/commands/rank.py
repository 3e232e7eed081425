"""Rank instances by the cost of the job (the default command)."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.command import SourceCommand
from advisor.cli.terminal import progress
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.cli.output import Output
    from advisor.records.options import Options
    from advisor.workload.source_trace import SourceTrace


def _flags() -> list[click.Parameter]:
    from advisor.cli.comparison_output import compare_flags
    from advisor.cli.flags import option_flags
    from advisor.cli.output import PAGE_SUFFIXES, output_flag
    from advisor.cli.task_output import TASK_SUFFIXES, emit_flags
    from advisor.report.formats import format_suffixes

    output_help = (
        "print this format to stdout, or write FILE in the format of its suffix (.txt .json .csv .md .html); json, csv "
        "and html contain every row"
    )
    formats = {**format_suffixes(), **PAGE_SUFFIXES, **TASK_SUFFIXES}
    return [*option_flags(), *emit_flags(), *compare_flags(), output_flag(formats, help_text=output_help)]


@click.command(
    "rank",
    cls=SourceCommand,
    make_flags=_flags,
    exits=(ExitCode.NOTHING_FITS, ExitCode.THRESHOLD, ExitCode.LOAD),
    traces_early=True,
    short_help=__doc__,
)
def command(
    source: str,
    script_args: tuple[str, ...],
    run: bool,
    output: "Output",
    emit: str | None,
    idle_minutes: int,
    port: int,
    compare_to: "Path | None",
    fail_if_cost_rises: float | None,
    options: "Options",
    trace: "SourceTrace | None",
) -> int:
    """Rank CPU and GPU instances by what the job costs on them, and say why.

    SOURCE is one of

    \b
      FILE.py[::NAME]    a module, a class or a factory in a Python file
      SCRIPT.py --run    a training or inference script, run up to its first step
      torchvision:NAME   timm:NAME[@SIZE]   hf:CONFIG_DIR_OR_JSON
      FILE.pt2           an exported program
      FILE.json          a workload saved by "advise profile -o"

    FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a separate process but with your permissions: name only files that
    you trust. Their output goes to stderr, and they are stopped after --timeout.

    Without flags, the job is inference of 1,000,000 samples, at the cheapest batch size and the fastest safe precision
    of each device. Prices are on-demand, each instance type in its cheapest region, without marketplaces. The answer
    lists these assumptions. The first run takes 5 s longer, because it measures this machine's CPU (see "advise
    calibrate"); --no-calibrate skips this.

    --provider, --region, --tier and --device take several values, separated by commas or by repeating the flag.

    \b
    Examples:
      advise model.py
      advise model.py::Net --input 3x224x224 --batch 32
      advise model.py --mode training --samples 50000 --epochs 90 --batch 256
      advise train.py --run -- --epochs 3 --data /tmp/data
      advise hf:./llama --input input_ids=2048:int64 --precision bf16
      advise model.py --region EU --tier hyperscaler --price spot --top 20
      advise model.py -o answer.json
      advise model.py -o report.html
      advise model.py --compare-to answer.json --fail-if-cost-rises 10%
      advise train.py --run --emit skypilot -o task.yaml -- --epochs 3
    """
    from advisor.answers.comparison import read_base
    from advisor.calibrate.first_use import calibrations_on_first_use
    from advisor.cli.comparison_output import check_compared, write_comparison
    from advisor.cli.output import PAGE_SUFFIXES, view_of, write
    from advisor.cli.task_output import check_task_output, write_task
    from advisor.question.from_source import question_from_source
    from advisor.report.formats import format_module

    check_compared(compare_to=compare_to, fail_if_cost_rises=fail_if_cost_rises, emit=emit, output=output)
    check_task_output(source, emit=emit, output=output)
    base = None if compare_to is None else read_base(compare_to)  # before anything is traced
    how: dict[str, Any] = {
        "run": run,
        "script_args": script_args,
        "trace": trace,
        "read_calibrations": calibrations_on_first_use,
    }
    if output.format in PAGE_SUFFIXES:
        from advisor.answers.full_report import report
        from advisor.report.html import render_report

        with progress(f"reading {source}"):
            found = report(question_from_source(source, options, **how))
        write(render_report(found), output)
        return ExitCode.ANSWER if found.recommendation.best else ExitCode.NOTHING_FITS
    from advisor.answers.ranking import rank

    with progress(f"reading {source}"):
        question = question_from_source(source, options, **how)
        recommendation = rank(question)
    if emit is not None:
        write_task(
            recommendation,
            engine=emit,
            source=source,
            script_args=script_args,
            idle_minutes=idle_minutes,
            port=port,
            captured=question.workload.script,
            output=output,
        )
        return ExitCode.ANSWER
    if base is not None:
        from advisor.answers.comparison import compare_answers

        comparison = compare_answers(base, recommendation)
        return write_comparison(comparison, output, top=options.top, fail_if_cost_rises=fail_if_cost_rises)
    write(format_module(output.format).render(recommendation, view_of(output, top=options.top)), output)
    return ExitCode.ANSWER if recommendation.best else ExitCode.NOTHING_FITS
