"""`advise validate --measurements FILE`: compare predictions with measured step times."""

import math
from typing import TYPE_CHECKING, Any

import click

from advisor.cli.lazy import LazyCommand
from advisor.cli.progress import counted_progress
from advisor.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.cli.output import Output

_OPTION_FLAGS = ("profiles", "prices", "timeout", "top")


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import measurements_flag, option_flags
    from advisor.cli.output import output_flag

    return [
        measurements_flag(),
        click.Option(
            ["--max-mape"],
            type=_ratio,
            default=None,
            metavar="RATIO",
            help="exit 3 if the mean error of all rows exceeds RATIO; 0.2 means 20 %",
        ),
        click.Option(["--rows"], is_flag=True, help="add every row to the JSON, with its prediction and measurement"),
        *option_flags(only=_OPTION_FLAGS),
        output_flag({"table": ".txt", "json": ".json"}, help_text="table, or json, to stdout; or a file (.txt .json)"),
    ]


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 <= ratio < math.inf:
        raise UsageError(f"--max-mape: {text!r} is not a ratio", hint="for example 0.2 for 20 %")
    return ratio


@click.command(
    "validate",
    cls=LazyCommand,
    make_flags=_flags,
    exits=(ExitCode.THRESHOLD, ExitCode.LOAD),
    short_help="Compare predictions with measured step times.",
)
def command(
    measurements: "tuple[Path, ...]", output: "Output", rows: bool, max_mape: float | None, **params: Any
) -> int:
    """Predict steps that have been measured, and show how far the predictions are from the measurements.

    Each measurement is one row of a CSV file with these columns:

    \b
      model       any SOURCE of "advise rank"; paths relative to the CSV
      mode        inference, forward_backward or training
      precision   fp32, tf32, amp-fp16, amp-bf16, bf16 or fp16
      layout      nchw (default) or nhwc
      compile     eager (default) or compile
      attention   auto (default), eager or fused
      batch       samples per step
      input       as --input, several separated by blanks; may be empty
      device      id or alias of a device; ID@4 for four physical cores of a CPU
      step_s      measured time of the step in seconds
      source      who measured it

    Python files among the models are EXECUTED, in separate processes but with your permissions. Each model is traced
    once and kept in your cache folder. A row that cannot be predicted is listed and counts as an error of 100 %. If a
    device profile has ratios fitted by "advise fit-device", the error without them is shown too.

    \b
    Examples:
      advise validate --measurements mine.csv
      advise validate --measurements a.csv --measurements b.csv -o accuracy.json
      advise validate --measurements mine.csv --max-mape 0.2
    """
    from advisor.answers.validation import validate
    from advisor.cli.flags import options_from
    from advisor.cli.output import view_of, write

    options = options_from(params)
    with counted_progress("tracing models") as on_progress:
        accuracy = validate(measurements, options, on_progress=on_progress)
    if output.format == "json":
        from advisor.report.accuracy import render_accuracy_json

        write(render_accuracy_json(accuracy, with_rows=rows), output)
    else:
        from advisor.report.accuracy import accuracy_content
        from advisor.report.terminal import to_text

        write(to_text(accuracy_content(accuracy, top=options.top), view_of(output, top=options.top)), output)
    return ExitCode.THRESHOLD if max_mape is not None and accuracy.overall.mape > max_mape else ExitCode.ANSWER
