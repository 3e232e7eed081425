"""`advise fit-device --measurements FILE --device NAME`: steps measured on a device in, its profile with what it
sustains out."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.lazy import LazyCommand
from advisor.cli.progress import counted_progress
from advisor.errors import ExitCode

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.cli.output import Output

_OPTION_FLAGS = ("profiles", "timeout", "top")
_FORMATS = {"yaml": ".yaml"}


def _flags() -> list[click.Parameter]:
    from advisor.cli.flags import measurements_flag, option_flags
    from advisor.cli.output import parse_output

    return [
        measurements_flag(),
        click.Option(["--device"], required=True, metavar="NAME", help="id, name or alias of the device"),
        *option_flags(only=_OPTION_FLAGS),
        click.Option(
            ["-o", "--output"],
            type=lambda text: parse_output(text, _FORMATS),
            default="yaml",
            metavar="FILE",
            help="file for the device's profile (.yaml); without it the profile goes to stdout",
        ),
    ]


@click.command(
    "fit-device",
    cls=LazyCommand,
    make_flags=_flags,
    exits=(ExitCode.LOAD,),
    short_help="Fit two figures of a device on steps measured on it.",
)
def command(measurements: "tuple[Path, ...]", device: str, output: "Output", **params: Any) -> int:
    """Fit what a device sustains, of its compute and of its memory, beside what is predicted from its datasheet.

    Two ratios, sustained_compute_ratio and sustained_memory_ratio, are fitted on the rows of the device (of a CPU on
    those of all its sizes, ID@4) and put into its profile. Each stays near 1 where the rows say nothing of it. The
    error is shown without and with them, and for each model with ratios that were fitted on the other models.

    "advise validate --help" lists the columns. The profile counts where it stands in DIR/devices/gpu or DIR/devices/cpu
    and --profiles names DIR. Python files among the models are EXECUTED, in processes of their own but with your
    rights.

    \b
    Examples:
      advise fit-device --measurements mine.csv --device rtx-4090
      advise fit-device --measurements mine.csv --device t4 \\
        -o own/devices/gpu/t4.yaml
      advise validate --measurements mine.csv --profiles own
    """
    from datetime import date

    from advisor.answers.device_fit import fit_device
    from advisor.catalog.device_text import device_yaml
    from advisor.cli.flags import options_from
    from advisor.cli.output import Output, view_of, write
    from advisor.report.own_fit_text import own_fit_sentences, render_own_fit

    options = options_from(params)
    with counted_progress("tracing models") as on_progress:
        fit = fit_device(measurements, device, options, date=date.today().isoformat(), on_progress=on_progress)
    heading = f"{fit.profile.name}: its profile with two figures of its own, by `advise fit-device`."
    write(device_yaml(fit.profile, comments=(heading, *own_fit_sentences(fit))), output)
    if output.path is not None:
        stdout = Output(format="table", path=None)
        write(render_own_fit(fit, view=view_of(stdout, top=options.top)), stdout)
    return ExitCode.ANSWER
