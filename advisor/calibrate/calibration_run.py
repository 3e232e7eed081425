"""Runs a calibration: device -> timed operators -> efficiencies -> a file in the cache."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from advisor.calibrate.in_force import device_called, key_of, targets
from advisor.calibrate.noise import noise_of, spare_cpu_count
from advisor.calibrate.operator_process import OnProgress, TimingRequest, time_operators
from advisor.calibrate.own_efficiencies import fit_calibration
from advisor.calibrate.store import keep, read_stored
from advisor.errors import UsageError
from advisor.predict.precision import resolve_precision
from advisor.records.calibration import Calibrated, Calibration, NotCalibrated, Timings
from advisor.records.device import Device, Precision
from advisor.records.machine import LocalDevice, Machine
from advisor.records.options import PrecisionChoice
from advisor.records.price import Catalog

_FIT_S = 1.5
"""Time for fitting and writing after the last operator, on two cores, with some reserve."""
_USUAL_PRECISIONS: tuple[PrecisionChoice, ...] = ("fp32", "tf32", "auto")


def calibrate(
    on: str | None,
    *,
    machine: Machine,
    catalog: Catalog,
    budget_s: float,
    thread_count: int | None = None,
    precisions: tuple[PrecisionChoice, ...] = (),
    on_progress: OnProgress | None = None,
    time_them: Callable[[TimingRequest], Timings] | None = None,
) -> Iterator[Calibrated | NotCalibrated]:
    """Calibrate the device called `on` ("cpu", "cuda:0", "mps"), or each device that can be predicted, for `budget_s`.

    `catalog` has the efficiencies to start from, without earlier calibrations. An interrupt ends it with the operators
    timed so far.

    Raises `UsageError` for a device that is missing or has no profile, for more threads than this process has cores,
    for a precision that the device does not run, and if time is too short for a single operator. If `on` is None, a
    device that cannot be timed is skipped with the reason.
    """
    _check(budget_s=budget_s, thread_count=thread_count, machine=machine)
    for local in _chosen(targets(machine, catalog, thread_count=thread_count), on):
        device = local.device
        if device is None:
            yield NotCalibrated(device=local.id, reason=f"{local.name}: {local.note}")
            continue
        threads = None if local.id != "cpu" else thread_count or max(1, int(machine.core_count))  # as in torch
        try:
            request = TimingRequest(
                device=local.id,
                thread_count=threads,
                precisions=_precisions(device, precisions or _USUAL_PRECISIONS),
                budget_s=budget_s - _FIT_S,
            )
            timings = time_them(request) if time_them else time_operators(request, on_progress=on_progress)
        except UsageError as error:
            if on is not None:
                raise
            yield NotCalibrated(device=device.id, reason=error.message)
            continue
        yield _calibrated(timings, request, local, device, machine=machine, catalog=catalog)
        if timings.is_interrupted:
            return


def _check(*, budget_s: float, thread_count: int | None, machine: Machine) -> None:
    if budget_s <= _FIT_S:
        raise UsageError(
            f"--time-budget: {budget_s:g} s is too short to time anything", hint="use 5s or more; 10s is usual"
        )
    core_count = max(1, int(machine.core_count))
    if thread_count is not None and thread_count > core_count:
        raise UsageError(
            f"--threads {thread_count}: this process may use only {core_count} cores, with one thread each",
            hint="the machine, its affinity mask or its container's CPU quota sets this limit",
        )


def _chosen(devices: Sequence[LocalDevice], on: str | None) -> Sequence[LocalDevice]:
    """Return the device called `on`, which must be predictable, or all devices if `on` is None."""
    if on is None:
        return devices
    named = device_called(on, devices)
    if named.device is None:
        raise UsageError(f"{named.id}, {named.name}: {named.note}", hint="`advise devices` lists what was found")
    return [named]


def _precisions(device: Device, wanted: Sequence[PrecisionChoice]) -> tuple[Precision, ...]:
    """Return the precisions that the device runs for the wanted ones, each once."""
    found = {choice: resolve_precision(choice, device) for choice in wanted}
    missing = [choice for choice, precision in found.items() if precision is None]
    if missing:
        raise UsageError(f"--precision {missing[0]}: {device.name} does not support it", hint="leave it out")
    return tuple(dict.fromkeys(precision for precision in found.values() if precision is not None))


def _calibrated(
    timings: Timings,
    request: TimingRequest,
    local: LocalDevice,
    device: Device,
    *,
    machine: Machine,
    catalog: Catalog,
) -> Calibrated:
    """Fit the timings, and store the result if it is good enough."""
    used = request.thread_count or 1
    noise = noise_of(timings, spare_cpu_count=spare_cpu_count(machine, used_cpu_count=used), used_cpu_count=used)
    now = datetime.now(UTC)
    fitted = fit_calibration(
        timings.operators,
        device,
        catalog.efficiencies,
        precisions=request.precisions,
        noise_log=noise.log_spread,
        date=now.date().isoformat(),
    )
    key = key_of(local, device, machine, thread_count=request.thread_count)
    earlier = next((one for one in read_stored().calibrations if one.key == key), None)
    made_at = now.isoformat(timespec="seconds")
    timed = {one.precision for one in fitted.efficiencies}
    kept = tuple(one for one in earlier.efficiencies if one.precision not in timed) if earlier else ()
    calibration = Calibration(
        key=key,
        at=min(earlier.at, made_at) if earlier and kept else made_at,
        n=len(timings.operators),
        planned_count=timings.planned_count,
        median_ape=fitted.median_ape,
        warnings=tuple(dict.fromkeys((*noise.warnings, *(earlier.warnings if earlier and kept else ())))),
        host_to_device_bytes_per_s=timings.host_to_device_bytes_per_s,
        efficiencies=(*fitted.efficiencies, *kept),
    )
    if noise.is_too_much:
        problem = (
            "not kept: other processes disturbed it so much that it is no better than the datasheet, and answers stay "
            "as they were. Calibrate again when the machine is quiet"
        )
        return Calibrated(calibration=calibration, problem=problem, is_disturbed=True)
    if timings.is_interrupted and earlier is not None and earlier.n > calibration.n:
        return Calibrated(calibration=calibration, problem="interrupted: the earlier one, with more operators, is kept")
    try:
        return Calibrated(calibration=calibration, file=keep(calibration))
    except OSError as error:
        return Calibrated(calibration=calibration, problem=f"cannot be written: {error.strerror}")
