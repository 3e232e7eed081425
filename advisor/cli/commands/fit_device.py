"""Fit the sustained speed of a device to steps measured on it."""

from datetime import date
from functools import partial
from pathlib import Path

import click

from advisor.cli.command import Command
from advisor.cli.flags import flag, measurements_flag, option_flags
from advisor.cli.output import STDOUT, Output, output_flag, write, write_answer
from advisor.cli.terminal import counted_progress
from advisor.errors import ExitCode
from advisor.records.options import Options

_OUTPUT_HELP = "write the device's profile to FILE (.yaml) (default: stdout)"


@click.command(
    "fit-device",
    cls=Command,
    params=[
        measurements_flag(),
        flag("--device", "id, name or alias of the device", metavar="NAME", required=True),
        *option_flags(only=("profiles", "timeout", "top")),
        output_flag({"yaml": ".yaml"}, metavar="FILE", help_text=_OUTPUT_HELP),
    ],
    exits=(ExitCode.LOAD,),
)
def command(measurements: tuple[Path, ...], device: str, output: Output, options: Options) -> int:
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
    from advisor.answers.device_fit import fit_device
    from advisor.catalog.yaml_text import device_yaml
    from advisor.report.devices import own_fit_content, own_fit_sentences

    with counted_progress("tracing models") as on_progress:
        fit = fit_device(measurements, device, options, date=date.today().isoformat(), on_progress=on_progress)
    heading = f"{fit.profile.name}: device profile with two ratios fitted by `advise fit-device`."
    write(device_yaml(fit.profile, comments=(heading, *own_fit_sentences(fit))), output)
    if output.path is not None:
        write_answer(fit, STDOUT, partial(own_fit_content, top=options.top))
    return ExitCode.ANSWER
