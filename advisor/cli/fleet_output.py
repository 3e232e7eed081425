"""Writes the files of `advise calibrate --fleet` and merges the results with `--collect`."""

from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING

import click

from advisor.cli.flags import flag
from advisor.cli.output import STDOUT, Output, view_of, write
from advisor.cli.terminal import say
from advisor.errors import UsageError
from advisor.records.flag_values import comma_list

if TYPE_CHECKING:
    from advisor.records.price import Catalog


def fleet_flags() -> list[click.Option]:
    """Return the flags `--fleet`, `--folder` and `--collect`."""
    fleet_help = "write SkyPilot tasks that calibrate these machines, and print the commands to run; rents nothing"
    folder_help = "with --fleet: folder for the task files and for the calibrations copied back"
    collect_help = "merge the calibrations copied back to DIR into profiles, for use with --profiles DIR"
    return [
        flag("--fleet", fleet_help, metavar="PROVIDER:INSTANCE,...", read=comma_list(str)),
        flag("--folder", folder_help, metavar="DIR", read=Path, default="fleet"),
        flag("--collect", collect_help, metavar="DIR", read=Path),
    ]


def write_fleet(names: tuple[str, ...], catalog: "Catalog", *, folder: Path, budget_s: float) -> None:
    """Write the task files and the wheel of this program to the folder, and print the commands that run them."""
    from advisor.answers.calibration_fleet import PROGRAM, fleet_commands, fleet_tasks
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


def write_collected(folder: Path, catalog: "Catalog") -> None:
    """Merge the calibrations in the folder into profiles there; report the unusable files on stderr."""
    from advisor.calibrate.collection import collect
    from advisor.report.calibration import collected_content
    from advisor.report.terminal import to_text

    collected = collect(folder, catalog)
    for problem in collected.problems:
        say(f"warning: {problem}")
    write(to_text(collected_content(collected), view_of(STDOUT)), STDOUT)
    say(f"`advise MODEL --profiles {folder}` uses them")
