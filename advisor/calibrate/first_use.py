"""A first ranking on this machine: its CPU is calibrated before, in a few seconds and once."""

from collections.abc import Callable
from dataclasses import replace

from advisor.calibrate.cpu_load import others_cpu_count, spare_cpu_count
from advisor.calibrate.in_force import calibrations_in_force, is_of
from advisor.calibrate.key import targets
from advisor.calibrate.store import Stored, unwritable
from advisor.errors import UsageError
from advisor.records.calibration import Calibrated, NotCalibrated
from advisor.records.machine import Machine
from advisor.records.price import Catalog

_BUDGET_S = 5.0
_BUSY_CPU_COUNT = 0.3
"""Of others: what is timed beside them would say less than the datasheet does."""


def calibrations_on_first_use(
    machine: Machine,
    catalog: Catalog,
    *,
    calibrate_cpu: Callable[[Machine, Catalog], Calibrated | NotCalibrated] | None = None,
    busy_cpu_count: Callable[[], float] = others_cpu_count,
) -> Stored:
    """The calibrations in force; where none is of the CPU, and others leave it alone, it is calibrated now.

    What goes wrong is no error of whoever asked for a ranking: the answer rests on the datasheet then, and says so.
    """
    stored = calibrations_in_force(machine, catalog)
    here = next((local.device for local in targets(machine, catalog) if local.id == "cpu"), None)
    if here is None or any(is_of(one, here) for one in stored.calibrations):
        return stored
    if problem := unwritable():
        remedy = "XDG_CACHE_HOME names another folder"
        return _with_problem(stored, f"the CPU here is not calibrated: {problem}; {remedy}")
    others = busy_cpu_count()
    if others > _BUSY_CPU_COUNT + spare_cpu_count(machine, used_cpu_count=max(1, int(machine.core_count))):
        remedy = "when they are done, `advise calibrate` times it"
        return _with_problem(
            stored, f"the CPU here is not calibrated: other processes keep {others:.1f} CPUs busy; {remedy}"
        )
    try:
        made = (calibrate_cpu or _calibrate_cpu)(machine, catalog)
    except UsageError as error:
        return _with_problem(stored, f"the CPU here is not calibrated: {error.message}")
    if isinstance(made, NotCalibrated):
        return _with_problem(stored, f"the CPU here is not calibrated: {made.reason}")
    if made.problem:
        stored = _with_problem(stored, f"the calibration of the CPU here: {made.problem}")
    calibrations = stored.calibrations if made.is_disturbed else (*stored.calibrations, made.calibration)
    return replace(stored, calibrations=calibrations)


def _calibrate_cpu(machine: Machine, catalog: Catalog) -> Calibrated | NotCalibrated:
    from advisor.calibrate.calibration_run import calibrate  # with SciPy, which only a first run needs

    return next(calibrate("cpu", machine=machine, catalog=catalog, budget_s=_BUDGET_S))


def _with_problem(stored: Stored, problem: str) -> Stored:
    return replace(stored, problems=(*stored.problems, problem))
