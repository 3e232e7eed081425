"""`advise calibrate --fleet` and `--collect`: the files of a fleet written, and what came back from it merged."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.output import Output, view_of, write
from advisor.cli.terminal import say
from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.records.price import Catalog

_STDOUT = Output(format="table", path=None)
_DEFAULT_FOLDER = "fleet"


def fleet_flags() -> list[click.Option]:
    """`--fleet`, the folder of its files, and `--collect`."""
    from advisor.records.flag_values import comma_list

    return [
        click.Option(
            ["--fleet"],
            type=comma_list(str),
            metavar="PROVIDER:INSTANCE,...",
            help="write the SkyPilot tasks that calibrate these machines, and print the commands; rents nothing",
        ),
        click.Option(
            ["--folder"],
            type=Path,
            default=_DEFAULT_FOLDER,
            show_default=True,
            metavar="DIR",
            help="with --fleet: where its files stand, and where the calibrations come back to",
        ),
        click.Option(
            ["--collect"],
            type=Path,
            metavar="DIR",
            help="merge the calibrations that came back into profiles, for --profiles DIR",
        ),
    ]


def write_fleet(names: tuple[str, ...], catalog: "Catalog", *, folder: Path, budget_s: float) -> None:
    """The task files and the program's wheel into the folder; the commands that run them are the answer."""
    from advisor.answers.calibration_fleet import PROGRAM, fleet_commands, fleet_tasks
    from advisor.calibrate.collection import BACK
    from advisor.catalog.locate import shipped_profiles
    from advisor.launch.own_wheel import write_wheel

    tasks = fleet_tasks(names, catalog, folder=folder, budget_s=budget_s, today=date.today())
    try:
        for name in (BACK, PROGRAM):
            (folder / name).mkdir(parents=True, exist_ok=True)
        write_wheel(folder / PROGRAM, profiles=shipped_profiles())
        # Without one SkyPilot leaves out what a .gitignore above the folder names, such as *.whl.
        (folder / PROGRAM / ".skyignore").touch()
    except OSError as error:
        raise UsageError(f"--folder {folder}: {error.strerror}", hint="choose another folder") from error
    for task in tasks:
        write(task.text, Output(format="yaml", path=folder / f"{task.name}.yaml"))
    write("".join(f"{line}\n" for line in fleet_commands(tasks, folder=folder)), _STDOUT)
    say(
        f"wrote {len(tasks)} task{'s' if len(tasks) > 1 else ''} to {folder}. Nothing is rented: advise has no keys of "
        "clouds. Where SkyPilot has them (`sky check`), the lines above do.",
    )


def write_collected(folder: Path, catalog: "Catalog") -> None:
    """The profiles into the folder; what was left out goes to stderr."""
    from advisor.calibrate.collection import collect
    from advisor.report.collected_text import render_collected

    collected = collect(folder, catalog)
    for problem in collected.problems:
        say(f"warning: {problem}")
    write(render_collected(collected, view=view_of(_STDOUT, top=len(collected.devices))), _STDOUT)
    say(f"`advise MODEL --profiles {folder}` rests on them")
