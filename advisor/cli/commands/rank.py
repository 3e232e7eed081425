"""`advise rank SOURCE`: a model in, the ranked and priced answer out."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.progress import progress
from advisor.cli.source import SourceCommand, check_script_args
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from advisor.cli.output import Output


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import option_flags
    from advisor.cli.output import output_flag, report_suffixes

    output_help = (
        "a format, to stdout, or a file whose suffix names it (.txt .json .csv .md); json and csv hold every row"
    )
    return [*option_flags(), output_flag(report_suffixes(), help_text=output_help)]


@click.command(
    "rank",
    cls=SourceCommand,
    make_flags=_flags,
    short_help="Rank instances by what the job costs on them (the default).",
)
def command(source: str, script_args: tuple[str, ...], run: bool, output: "Output", **params: Any) -> int:
    """Rank CPU and GPU instances by what the job costs on them, with the reason.

    SOURCE is one of

    \b
      FILE.py[::NAME]    a module, a class or a factory in a Python file
      SCRIPT.py --run    a training or inference script, up to its first step
      torchvision:NAME   timm:NAME[@SIZE]   hf:CONFIG_DIR_OR_JSON
      FILE.pt2           an exported program
      FILE.json          a workload that "advise profile -o" has saved

    FILE.py, SCRIPT.py and FILE.pt2 are EXECUTED, in a process of their own but with your rights: name only files that
    you trust. What they print goes to stderr; they are stopped after --timeout.

    Without flags the job is inference of 1,000,000 samples in the cheapest batch and the fastest safe precision of each
    device, on demand, each type in its cheapest region, without marketplaces. The answer says what it assumed. The
    first one takes 5 s longer: it times this machine's CPU (see "advise calibrate"; --no-calibrate does without).

    --provider, --region, --tier and --device take several values: with commas, or repeated.

    \b
    Examples:
      advise model.py
      advise model.py::Net --input 3x224x224 --batch 32
      advise model.py --mode training --samples 50000 --epochs 90 --batch 256
      advise train.py --run --mode training -- --epochs 3 --data /tmp/data
      advise hf:./llama --input input_ids=2048:int64 --precision bf16
      advise model.py --region EU --tier hyperscaler --price spot --top 20
      advise model.py -o answer.json
    """
    from advisor.calibrate.first_use import calibrations_on_first_use
    from advisor.cli.flags import options_from
    from advisor.cli.output import format_module, view_of, write
    from advisor.pipeline import rank_source

    check_script_args(source, script_args, run=run)
    options = options_from(params)
    with progress(f"reading {source}"):
        recommendation = rank_source(
            source, options, run=run, script_args=script_args, read_calibrations=calibrations_on_first_use
        )
    write(format_module(output.format).render(recommendation, view_of(output, top=options.top)), output)
    return ExitCode.ANSWER if recommendation.best else ExitCode.NOTHING_FITS
