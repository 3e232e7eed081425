"""Compare predictions with measured step times."""

from datetime import date
from functools import partial
from pathlib import Path

import click

from advisor.cli.command import Command
from advisor.cli.flags import flag, measurements_flag, option_flags
from advisor.cli.output import PAGE_SUFFIXES, TABLE_OR_JSON, Output, output_flag, write, write_answer
from advisor.cli.terminal import counted_progress
from advisor.errors import ExitCode
from advisor.records.options import Options
from advisor.units import parse_ratio

_MAX_HELP = "exit 3 if the mean error of all rows exceeds RATIO: 0.2 or 20%"
_OUTPUT_HELP = (
    "table, json, html, or svg (chart of predicted against measured), to stdout; or a file (.txt .json .html .svg)"
)


@click.command(
    "validate",
    cls=Command,
    params=[
        measurements_flag(),
        flag("--max-mape", _MAX_HELP, metavar="RATIO", read=parse_ratio),
        click.Option(["--rows"], is_flag=True, help="add every row to the JSON, with its prediction and measurement"),
        *option_flags(only=("profiles", "prices", "timeout", "top")),
        output_flag({**TABLE_OR_JSON, **PAGE_SUFFIXES, "svg": ".svg"}, help_text=_OUTPUT_HELP),
    ],
    exits=(ExitCode.THRESHOLD, ExitCode.LOAD),
)
def command(
    measurements: tuple[Path, ...], output: Output, rows: bool, max_mape: float | None, options: Options
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
      torch       release of PyTorch that was timed, as 2.4; may be empty
      batch       samples per step
      input       as --input, several separated by blanks; may be empty
      device      id or alias of a device; ID@4 for four physical cores of a CPU
      step_s      measured time of the step in seconds
      source      who measured it

    A file with the column prompt_tokens has measured requests to served language models, and one with the column
    finetune has fine-tuning runs; the hint for a wrong column lists theirs.

    Python files among the models are EXECUTED, in separate processes but with your permissions. Each model is traced
    once and kept in your cache folder. A row that cannot be predicted is listed and counts as an error of 100 %. If a
    device profile has ratios fitted by "advise fit-device", the error without them is shown too.

    \b
    Examples:
      advise validate --measurements mine.csv
      advise validate --measurements a.csv --measurements b.csv -o accuracy.json
      advise validate --measurements mine.csv -o accuracy.svg
      advise validate --measurements mine.csv --max-mape 0.2
    """
    from advisor.answers.validation import validate
    from advisor.report.accuracy import accuracy_content, render_accuracy_json

    with counted_progress("tracing models") as on_progress:
        accuracy = validate(measurements, options, on_progress=on_progress)
    match output.format:
        case "svg":
            from advisor.report.accuracy_page import predicted_against_measured
            from advisor.report.svg import chart_svg

            write(chart_svg(predicted_against_measured(accuracy)), output)
        case "html":
            from advisor.report.accuracy_page import accuracy_document
            from advisor.report.html import render_document

            write(render_document(accuracy_document(accuracy, made_on=date.today())), output)
        case _:
            content = partial(accuracy_content, top=options.top)
            write_answer(accuracy, output, content, as_json=partial(render_accuracy_json, with_rows=rows))
    return ExitCode.THRESHOLD if max_mape is not None and accuracy.overall.mape > max_mape else ExitCode.ANSWER
