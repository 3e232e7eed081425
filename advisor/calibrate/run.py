"""Calibrating on one page: device -> timed operators -> efficiencies -> a file in the cache."""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from advisor.calibrate.fitting import fit_calibration
from advisor.calibrate.key import key_of, targets, thread_count_of
from advisor.calibrate.noise import noise_of
from advisor.calibrate.process import OnProgress, TimingRequest, time_operators
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

    Raises `UsageError` for a device that is not there or has no profile, more threads than this process may use, a
    precision that it does not run, and where time is too short for a single operator. Unless it is named, a device that
    cannot be timed is passed over with the reason.
    """
    _check(budget_s=budget_s, thread_count=thread_count, machine=machine)
    for local, device in _chosen(targets(machine, catalog, thread_count=thread_count), on):
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
    if thread_count is not None and thread_count > machine.thread_count:
        raise UsageError(
            f"--threads: this process may use {machine.thread_count} threads, not {thread_count}",
            hint="its affinity mask or its container's CPU quota says so",
        )


def _chosen(devices: Sequence[LocalDevice], on: str | None) -> list[tuple[LocalDevice, Device]]:
    """The one that is called `on`, else all that can be predicted."""
    wanted = f"{on}:0" if on == "cuda" else on
    named = [local for local in devices if on is None or local.id == wanted]
    usable = [(local, local.device) for local in named if local.device is not None]
    if usable:
        return usable
    if named:
        raise UsageError(f"{named[0].id}, {named[0].name}: {named[0].note}", hint="advise devices lists what was found")
    found = ", ".join(local.id for local in devices)
    raise UsageError(f"--on {on}: there is no such device here", hint=f"found: {found}")


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
    noise = noise_of(timings, spare_cpu_count=machine.thread_count - used, used_cpu_count=used)
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
    calibration = Calibration(
        key=key,
        at=now.isoformat(timespec="seconds"),
        n=len(timings.operators),
        planned_count=timings.planned_count,
        median_ape=fitted.median_ape,
        warnings=noise.warnings,
        host_to_device_bytes_per_s=timings.host_to_device_bytes_per_s,
        efficiencies=(*fitted.efficiencies, *_not_timed_again(earlier, fitted.efficiencies)),
    )
    if noise.is_too_much:
        problem = "disturbed too much to be better than the datasheet: not kept"
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
