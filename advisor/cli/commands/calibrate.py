"""Measure this machine, so that predictions for it use its own speed."""

from typing import TYPE_CHECKING, Any

import click

from advisor.cli.command import Command
from advisor.cli.terminal import counted_progress, say
from advisor.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from advisor.records.calibration import Calibrated, Calibration
    from advisor.records.machine import Machine
    from advisor.records.options import Options
    from advisor.records.price import Catalog


def _flags() -> list[click.Parameter]:
    from pathlib import Path
    from typing import get_args

    from advisor.cli.flags import flag, option_flags
    from advisor.cli.fleet_output import fleet_flags
    from advisor.records.options import PrecisionChoice
    from advisor.units import parse_count, parse_duration_s

    on_help = "calibrate only this device (default: every device that torch sees)"
    budget_help = "time to spend on each device, including the start of torch"
    precision_help = "calibrate only these precisions (default: fp32, auto, and tf32 if the device supports it)"
    return [
        flag("--on", on_help, metavar="cpu|cuda:0|mps"),
        flag("--time-budget", budget_help, metavar="TIME", read=parse_duration_s, default="10s"),
        flag("--threads", "CPU threads to use (default: one per core)", metavar="N", read=parse_count),
        flag("--precision", precision_help, choices=get_args(PrecisionChoice), multiple=True),
        click.Option(["--show"], is_flag=True, help="show the calibrations in force and measure nothing"),
        flag("--export", "write the measured efficiencies to a profile (.yaml)", metavar="FILE", read=Path),
        *fleet_flags(),
        *option_flags(only=("profiles",)),
    ]


@click.command(
    "calibrate",
    cls=Command,
    make_flags=_flags,
    exits=(ExitCode.THRESHOLD,),
    meanings={ExitCode.THRESHOLD: "a device was disturbed too much, and its calibration is not kept"},
    short_help=__doc__,
)
def command(
    on: str | None,
    time_budget: float,
    threads: int | None,
    precision: tuple[str, ...],
    show: bool,
    export: "Path | None",
    fleet: tuple[str, ...] | None,
    folder: "Path",
    collect: "Path | None",
    options: "Options",
) -> int:
    """Time a fixed set of operators on this machine and fit what its CPU and GPUs sustain.

    The result is kept in your cache folder, per device, driver, torch version, thread count and power limit. From then
    on "advise MODEL" uses it to predict this machine and offers with the same device. It is not used for a saved
    workload, with --no-local or with --no-calibrate. If you interrupt the run, the measurements so far are kept.

    --export writes the calibration in force to a profile, after a calibration or with --show. To use the profile, put
    it into DIR/efficiency and pass --profiles DIR.

    --fleet writes a SkyPilot task for each machine that you name. It prints the commands that rent the machine,
    calibrate it, copy the calibration back and release it. --collect merges the copied calibrations into profiles, and
    reports each file that it cannot use and each one that a better one replaces.

    \b
    Examples:
      advise calibrate
      advise calibrate --on cuda:0 --time-budget 20s
      advise calibrate --on cpu --threads 1
      advise calibrate --show
      advise calibrate --show --export own/efficiency/here.yaml
      advise calibrate --fleet aws:g6.xlarge,gcp:g2-standard-4
      advise calibrate --collect fleet
    """
    from pathlib import Path

    from advisor.calibrate.in_force import calibrations_in_force, device_called, targets
    from advisor.catalog.load import load_catalog
    from advisor.cli.fleet_output import write_collected, write_fleet
    from advisor.cli.output import STDOUT, view_of, write
    from advisor.machine.this_machine import this_machine
    from advisor.report.calibration import calibration_content
    from advisor.report.terminal import to_text

    _check_one_of(fleet=fleet, collect=collect, show=show, on=on, export=export, threads=threads, precision=precision)
    if export is not None and not export.parent.is_dir():
        raise UsageError(f"--export {export}: folder {export.parent} does not exist", hint="create the folder first")
    catalog = load_catalog(profiles=Path(options.profiles) if options.profiles else None)
    if fleet is not None:
        write_fleet(fleet, catalog, folder=folder, budget_s=time_budget)
        return ExitCode.ANSWER
    if collect is not None:
        write_collected(collect, catalog)
        return ExitCode.ANSWER
    machine = this_machine()
    is_refused = False
    if show:
        stored = calibrations_in_force(machine, catalog)
        wanted = None if on is None else device_called(on, targets(machine, catalog)).device
        in_force = [one for one in stored.calibrations if on is None or (wanted and one.key.device == wanted.id)]
        for problem in stored.problems:
            say(f"warning: {problem}")
        if not in_force:
            raise UsageError("no calibration is in force for this machine", hint="run `advise calibrate` first")
    else:
        made = _calibrated(on, machine, catalog, time_budget=time_budget, threads=threads, precisions=precision)
        in_force = [one.calibration for one in made if not one.is_disturbed]
        is_refused = len(in_force) < len(made)
    view = view_of(STDOUT)
    write("\n".join(to_text(calibration_content(one), view) for one in in_force), STDOUT)
    if export is not None:
        if not in_force:
            raise UsageError(
                f"--export {export}: no measurement was stable enough", hint="calibrate while the machine is idle"
            )
        _export(in_force, export)
    return ExitCode.THRESHOLD if is_refused else ExitCode.ANSWER


def _check_one_of(**given: Any) -> None:
    """Raise `UsageError` for flags that exclude each other.

    `--fleet` and `--collect` exclude every flag that measures or shows this machine; `--show` excludes the flags that
    say how to measure it.
    """
    named = [f"--{name}" for name, value in given.items() if value]
    beside_show = [name for name in named if name in ("--threads", "--precision")]
    excluded = {"--fleet": named[1:], "--collect": named[1:], "--show": beside_show}.get(named[0] if named else "", [])
    if excluded:
        raise UsageError(f"{named[0]} and {excluded[0]} cannot be used together", hint="remove one of them")


def _calibrated(
    on: str | None,
    machine: "Machine",
    catalog: "Catalog",
    *,
    time_budget: float,
    threads: int | None,
    precisions: tuple[Any, ...],
) -> list["Calibrated"]:
    from advisor.calibrate.calibration_run import calibrate
    from advisor.records.calibration import NotCalibrated
    from advisor.report.calibration import target_text

    found: list[Calibrated] = []
    passed_over: list[str] = []
    with counted_progress("timing operators") as on_progress:
        for one in calibrate(
            on,
            machine=machine,
            catalog=catalog,
            budget_s=time_budget,
            thread_count=threads,
            precisions=precisions,
            on_progress=on_progress,
        ):
            if isinstance(one, NotCalibrated):
                say(f"warning: skipped {one.device}: {one.reason}")
                passed_over.append(f"{one.device} ({one.reason})")
                continue
            if one.problem:
                say(f"warning: {target_text(one.calibration)}: {one.problem}")
            found.append(one)
    if not found:
        raise UsageError(
            f"no device on this machine could be measured: {', '.join(passed_over)}",
            hint="run again with --on NAME to see what would help; `advise devices` lists the names",
        )
    return found


def _export(calibrations: list["Calibration"], path: "Path") -> None:
    from advisor.calibrate.store import profile_text
    from advisor.cli.output import Output, write

    efficiencies = tuple(efficiency for one in calibrations for efficiency in one.efficiencies)
    write(profile_text(efficiencies), Output(format="yaml", path=path))
