"""Calibrating on one page: device -> timed operators -> efficiencies -> a file in the cache."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from advisor.calibrate.cpu_load import spare_cpu_count
from advisor.calibrate.key import device_called, key_of, targets, thread_count_of
from advisor.calibrate.noise import noise_of
from advisor.calibrate.operator_process import OnProgress, TimingRequest, time_operators
from advisor.calibrate.own_efficiencies import fit_calibration
from advisor.calibrate.store import keep, read_stored
from advisor.errors import UsageError
from advisor.predict.precision import resolve_precision
from advisor.records.calibration import Calibrated, Calibration, NotCalibrated, Timings
from advisor.records.device import Device, Efficiency, Precision
from advisor.records.machine import LocalDevice, Machine
from advisor.records.options import PrecisionChoice
from advisor.records.price import Catalog

TimeOperators = Callable[[TimingRequest], Timings]
_FIT_S = 1.5
"""What fitting and writing take after the last operator, on two cores, with some reserve."""
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
    time_them: TimeOperators | None = None,
) -> Iterator[Calibrated | NotCalibrated]:
    """Calibrate the device that is called `on` ("cpu", "cuda:0", "mps"), or each that can be predicted, for `budget_s`.

    `catalog` holds the efficiencies that it starts from, without earlier calibrations. An interrupt ends it with what
    was timed until then.

    Raises `UsageError` for a device that is not there or has no profile, more threads than this process has cores, a
    precision that it does not run, and where time is too short for a single operator. Unless it is named, a device that
    cannot be timed is passed over with the reason.
    """
    _check(budget_s=budget_s, thread_count=thread_count, machine=machine)
    for local in _chosen(targets(machine, catalog, thread_count=thread_count), on):
        device = local.device
        if device is None:
            yield NotCalibrated(device=local.id, reason=f"{local.name}: {local.note}")
            continue
        threads = thread_count_of(local, machine, thread_count)
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
            f"--time-budget: {budget_s:g} s are too short to time anything", hint="give it 5s or more; 10s is usual"
        )
    core_count = max(1, int(machine.core_count))
    if thread_count is not None and thread_count > core_count:
        raise UsageError(
            f"--threads: this process may use {core_count} cores, each with a thread of torch, not {thread_count}",
            hint="the machine, its affinity mask or its container's CPU quota says so",
        )


def _chosen(devices: Sequence[LocalDevice], on: str | None) -> Sequence[LocalDevice]:
    """The one that is called `on`, which must be one that can be predicted, else all."""
    if on is None:
        return devices
    named = device_called(on, devices)
    if named.device is None:
        raise UsageError(f"{named.id}, {named.name}: {named.note}", hint="advise devices lists what was found")
    return [named]


def _precisions(device: Device, wanted: Sequence[PrecisionChoice]) -> tuple[Precision, ...]:
    """What the device makes of those wanted, each once."""
    found = {choice: resolve_precision(choice, device) for choice in wanted}
    missing = [choice for choice, precision in found.items() if precision is None]
    if missing:
        raise UsageError(f"--precision {missing[0]}: {device.name} does not run it", hint="leave it out")
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
    """The timings fitted, and kept where they are worth it."""
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
    kept = _not_timed_again(earlier, fitted.efficiencies)
    made_at = now.isoformat(timespec="seconds")
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
            "not kept, since other processes disturbed it too much to be better than the datasheet: answers rest on "
            "what they did before. Calibrate again when the machine is quiet"
        )
        return Calibrated(calibration=calibration, problem=problem, is_disturbed=True)
    if timings.is_interrupted and earlier is not None and earlier.n > calibration.n:
        return Calibrated(calibration=calibration, problem="interrupted: the former one, of more operators, stays")
    try:
        return Calibrated(calibration=calibration, file=keep(calibration))
    except OSError as error:
        return Calibrated(calibration=calibration, problem=f"cannot be kept: {error.strerror}")


def _not_timed_again(earlier: Calibration | None, made: Sequence[Efficiency]) -> tuple[Efficiency, ...]:
    """What an earlier calibration says of precisions that this one was not asked for."""
    timed = {one.precision for one in made}
    return () if earlier is None else tuple(one for one in earlier.efficiencies if one.precision not in timed)
