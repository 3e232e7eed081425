"""Measure this machine, so that predictions for it use its own speed."""

from datetime import date
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from advisor.cli.command import Command
from advisor.cli.flags import flag, option_flags
from advisor.cli.output import STDOUT, Output, write, write_answer
from advisor.cli.terminal import counted_progress, say
from advisor.errors import ExitCode, UsageError
from advisor.files.whole_file import require_folder
from advisor.records.flag_values import comma_list
from advisor.records.options import Options, PrecisionChoice
from advisor.units import parse_count, parse_duration_s

if TYPE_CHECKING:
    from advisor.records.calibration import Calibrated
    from advisor.records.price import Catalog

_ON_HELP = "calibrate only this device (default: every device that torch sees)"
_BUDGET_HELP = "time to spend on each device, including the start of torch"
_FLEET_HELP = "write SkyPilot tasks that calibrate these machines, and print the commands to run; rents nothing"
_FOLDER_HELP = "with --fleet: folder for the task files and for the calibrations copied back"
_COLLECT_HELP = "merge the calibrations copied back to DIR into profiles, for use with --profiles DIR"
_PRECISION_HELP = "calibrate only these precisions (default: fp32, auto, and tf32 if the device supports it)"


@click.command(
    "calibrate",
    cls=Command,
    params=[
        flag("--on", _ON_HELP, metavar="cpu|cuda:0|mps"),
        flag("--time-budget", _BUDGET_HELP, metavar="TIME", read=parse_duration_s, default="10s"),
        flag("--threads", "CPU threads to use (default: one per core)", metavar="N", read=parse_count),
        flag("--precision", _PRECISION_HELP, choices=get_args(PrecisionChoice), multiple=True),
        click.Option(["--show"], is_flag=True, help="show the calibrations in force and measure nothing"),
        flag("--export", "write the measured efficiencies to a profile (.yaml)", metavar="FILE", read=Path),
        flag("--fleet", _FLEET_HELP, metavar="PROVIDER:INSTANCE,...", read=comma_list(str)),
        flag("--folder", _FOLDER_HELP, metavar="DIR", read=Path, default="fleet"),
        flag("--collect", _COLLECT_HELP, metavar="DIR", read=Path),
        *option_flags(only=("profiles",)),
    ],
    exits=(ExitCode.THRESHOLD,),
    meanings={ExitCode.THRESHOLD: "a device was disturbed too much, and its calibration is not kept"},
)
def command(
    on: str | None,
    time_budget: float,
    threads: int | None,
    precision: tuple[str, ...],
    show: bool,
    export: Path | None,
    fleet: tuple[str, ...] | None,
    folder: Path,
    collect: Path | None,
    options: Options,
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
    from advisor.calibrate.in_force import calibrations_in_force, device_called, targets
    from advisor.calibrate.store import profile_text
    from advisor.machine.this_machine import this_machine
    from advisor.question.from_source import catalog_of
    from advisor.report.devices import calibration_content

    _check_one_of(fleet=fleet, collect=collect, show=show, on=on, export=export, threads=threads, precision=precision)
    if export is not None:
        require_folder(export, flag="--export")
    catalog = catalog_of(options)
    if fleet is not None:
        _write_fleet(fleet, catalog, folder=folder, budget_s=time_budget)
        return ExitCode.ANSWER
    if collect is not None:
        _write_collected(collect, catalog)
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
        how = {"budget_s": time_budget, "thread_count": threads, "precisions": precision}
        made = _calibrated(on, machine=machine, catalog=catalog, **how)
        in_force = [one.calibration for one in made if not one.is_disturbed]
        is_refused = len(in_force) < len(made)
    write_answer(in_force, STDOUT, lambda found: chain.from_iterable(map(calibration_content, found)))
    if export is not None:
        if not in_force:
            raise UsageError(
                f"--export {export}: no measurement was stable enough", hint="calibrate while the machine is idle"
            )
        efficiencies = tuple(efficiency for one in in_force for efficiency in one.efficiencies)
        write(profile_text(efficiencies), Output(format="yaml", path=export))
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


def _calibrated(on: str | None, **how: Any) -> list["Calibrated"]:
    """Calibrate as `how` says; raise `UsageError` if no device could be measured."""
    from advisor.calibrate.calibration_run import calibrate
    from advisor.calibrate.operator_process import longer
    from advisor.records.calibration import NotCalibrated
    from advisor.report.devices import target_text

    found: list[Calibrated] = []
    passed_over: list[str] = []
    with counted_progress("timing operators") as on_progress:
        for one in calibrate(on, on_progress=on_progress, **how):
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
            hint=f"allow more time, such as {longer(how['budget_s'])}, or run again with --on NAME to see what would "
            "help; `advise devices` lists the names",
        )
    return found


def _write_fleet(names: tuple[str, ...], catalog: "Catalog", *, folder: Path, budget_s: float) -> None:
    """Write the task files and the wheel of this program to the folder, and print the commands that run them."""
    from advisor.answers.launch_file import PROGRAM, fleet_commands, fleet_tasks
    from advisor.calibrate.collection import BACK
    from advisor.catalog.overlay import shipped_profiles
    from advisor.launch.own_wheel import write_wheel

    tasks = fleet_tasks(names, catalog, folder=folder, budget_s=budget_s, today=date.today())
    try:
        for name in (BACK, PROGRAM):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_wheel(folder / PROGRAM, profiles=shipped_profiles())
        # Without a .skyignore, SkyPilot skips files that a .gitignore above the folder lists, such as *.whl.
        (folder / PROGRAM / ".skyignore").touch()
    except OSError as error:
        raise UsageError(f"--folder {folder}: {error.strerror}", hint="choose another folder") from error
    for task in tasks:
        write(task.text, Output(format="yaml", path=folder / f"{task.name}.yaml"))
    write("".join(f"{line}\n" for line in fleet_commands(tasks, folder=folder)), STDOUT)
    say(
        f"wrote {len(tasks)} task{'s' if len(tasks) > 1 else ''} to {folder}. Nothing is rented yet: advise has no "
        "cloud credentials. If SkyPilot has them (`sky check`), run the commands above to rent the machines.",
    )


def _write_collected(folder: Path, catalog: "Catalog") -> None:
    """Merge the calibrations in the folder into profiles there; report the unusable files on stderr."""
    from advisor.calibrate.collection import collect
    from advisor.report.devices import collected_content

    collected = collect(folder, catalog)
    for problem in collected.problems:
        say(f"warning: {problem}")
    write_answer(collected, STDOUT, collected_content)
    say(f"`advise MODEL --profiles {folder}` uses them")
