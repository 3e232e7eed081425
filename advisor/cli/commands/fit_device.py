"""`advise fit-device --measurements FILE --device NAME`: fit two ratios of a device to steps measured on it."""

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
            help="write the device's profile to FILE (.yaml) (default: stdout)",
        ),
    ]


@click.command(
    "fit-device",
    cls=LazyCommand,
    make_flags=_flags,
    exits=(ExitCode.LOAD,),
    short_help="Fit two ratios of a device to steps measured on it.",
)
def command(measurements: "tuple[Path, ...]", device: str, output: "Output", **params: Any) -> int:
    """Fit how fast the compute and the memory of a device really are, relative to the prediction from its datasheet.

    Two ratios, sustained_compute_ratio and sustained_memory_ratio, are fitted to the measurements of the device and
    put into its profile. For a CPU, measurements on any number of its cores count (ID@4). A ratio stays near 1 if the
    measurements do not determine it. The output shows the error without and with the ratios, and the error on each
    model with ratios fitted to the other models only.

    "advise validate --help" lists the columns of FILE. To use the profile, put it into DIR/devices/gpu or
    DIR/devices/cpu and pass --profiles DIR. Python files among the models are EXECUTED, in separate processes but with
    your permissions.

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
    from advisor.report.own_fit import own_fit_content, own_fit_sentences
    from advisor.report.terminal import to_text

    options = options_from(params)
    with counted_progress("tracing models") as on_progress:
        fit = fit_device(measurements, device, options, date=date.today().isoformat(), on_progress=on_progress)
    heading = f"{fit.profile.name}: device profile with two ratios fitted by `advise fit-device`."
    write(device_yaml(fit.profile, comments=(heading, *own_fit_sentences(fit))), output)
    if output.path is not None:
        stdout = Output(format="table", path=None)
        write(to_text(own_fit_content(fit, top=options.top), view_of(stdout, top=options.top)), stdout)
    return ExitCode.ANSWER
