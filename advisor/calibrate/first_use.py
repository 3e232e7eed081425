"""Calibrates this machine's CPU once, in a few seconds, before its first ranking."""

from collections.abc import Callable
from dataclasses import replace

from advisor.calibrate import store
from advisor.calibrate.in_force import calibrations_in_force, is_of, targets
from advisor.calibrate.noise import TAKEN_CPU_COUNT, others_cpu_count, spare_cpu_count
from advisor.calibrate.store import Stored
from advisor.errors import UsageError
from advisor.files.whole_file import why_unwritable
from advisor.records.calibration import Calibrated, NotCalibrated
from advisor.records.machine import Machine
from advisor.records.price import Catalog

_BUDGET_S = 5.0


def calibrations_on_first_use(
    machine: Machine,
    catalog: Catalog,
    *,
    calibrate_cpu: Callable[[Machine, Catalog], Calibrated | NotCalibrated] | None = None,
    busy_cpu_count: Callable[[], float] = others_cpu_count,
) -> Stored:
    """Return the valid calibrations; if the CPU has none and is idle, calibrate it now.

    A failure is not an error of the ranking: the answer uses the datasheet then, and says so.
    """
    stored = calibrations_in_force(machine, catalog)
    here = next((local.device for local in targets(machine, catalog) if local.id == "cpu"), None)
    if here is None or any(is_of(one, here) for one in stored.calibrations):
        return stored

    def uncalibrated(problem: str) -> Stored:
        return replace(stored, problems=(*stored.problems, f"this CPU is not calibrated: {problem}"))

    if problem := why_unwritable(store.folder()):
        return uncalibrated(f"{problem}; set XDG_CACHE_HOME to another folder")
    others = busy_cpu_count()
    if others > TAKEN_CPU_COUNT + spare_cpu_count(machine, used_cpu_count=max(1, int(machine.core_count))):
        return uncalibrated(f"other processes keep {others:.1f} CPUs busy; run `advise calibrate` when they are done")
    try:
        made = (calibrate_cpu or _calibrate_cpu)(machine, catalog)
    except UsageError as error:
        return uncalibrated(error.message)
    if isinstance(made, NotCalibrated):
        return uncalibrated(made.reason)
    problems = (f"the calibration of this CPU: {made.problem}",) if made.problem else ()
    calibrations = () if made.is_disturbed else (made.calibration,)
    return Stored(calibrations=(*stored.calibrations, *calibrations), problems=(*stored.problems, *problems))


def _calibrate_cpu(machine: Machine, catalog: Catalog) -> Calibrated | NotCalibrated:
    from advisor.calibrate.calibration_run import calibrate  # imports the fit, which only a first run needs

    return next(calibrate("cpu", machine=machine, catalog=catalog, budget_s=_BUDGET_S))
