"""Finds the calibrations that are valid for this machine now, by their keys, and adds them to a catalog."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from importlib import metadata

from advisor.calibrate.store import Stored, code_of, read_stored
from advisor.devices.local_device import local_devices
from advisor.errors import UsageError
from advisor.files.own_code import code_digest
from advisor.records.calibration import Calibration, CalibrationKey
from advisor.records.device import Device
from advisor.records.machine import LocalDevice, LocalGpu, Machine
from advisor.records.price import Catalog
from advisor.report.devices import age_text, target_text

_UNRELATED = frozenset({"memory_bytes", "log_spread"})
"""Fields of a device that no predicted time depends on."""
_DIGITS = 12
"""Length of each digest, enough to make a collision among a few thousand unlikely."""


def targets(machine: Machine, catalog: Catalog, *, thread_count: int | None = None) -> tuple[LocalDevice, ...]:
    """Return the devices of this machine; with `thread_count` the CPU counts as having that many cores."""
    used = machine if thread_count is None else replace(machine, core_count=float(thread_count))
    return local_devices(used, catalog)


def device_called(on: str, devices: Sequence[LocalDevice]) -> LocalDevice:
    """Return the device that `--on` names ("cuda" means "cuda:0"); raise `UsageError` if there is none."""
    wanted = f"{on}:0" if on == "cuda" else on
    found = next((local for local in devices if local.id == wanted), None)
    if found is None:
        here = ", ".join(local.id for local in devices)
        raise UsageError(f"--on {on}: this machine has no such device", hint=f"found: {here}")
    return found


def key_of(local: LocalDevice, device: Device, machine: Machine, *, thread_count: int | None) -> CalibrationKey:
    """Return the key that a calibration of the device would have now."""
    gpu = next((gpu for gpu in machine.gpus if gpu.id == local.id), LocalGpu(id="", name=""))
    figures = {name: value for name, value in asdict(device).items() if name not in _UNRELATED}
    return CalibrationKey(
        device=device.id,
        core_count=device.core_count if device.kind == "cpu" else None,
        thread_count=thread_count,
        driver=gpu.driver,
        power_limit_w=gpu.power_limit_w,
        torch=torch_version(),
        program=f"{_code()}-{hashlib.sha256(repr(figures).encode()).hexdigest()[:_DIGITS]}",
    )


def torch_version() -> str:
    """Return the version of the installed torch, or "" if there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def is_of_this_program(key: CalibrationKey) -> bool:
    """Return whether the calibration was fitted with this version of the code, regardless of its datasheet."""
    return code_of(key) == _code()


def _code() -> str:
    """Return a digest of the code that turns coefficients into times."""
    return code_digest("ops", "predict", "records/device.py")[:_DIGITS]


def calibrations_in_force(machine: Machine, catalog: Catalog) -> Stored:
    """Return the calibrations valid for this machine's devices now, and the problems of all files."""
    found = read_stored()
    return replace(found, calibrations=tuple(one for one in found.calibrations if _holds(one, machine, catalog)))


def _holds(calibration: Calibration, machine: Machine, catalog: Catalog) -> bool:
    """Return whether a calibration of the same device made now would have the same key.

    Two thread counts are tried: that of all cores (a quota may leave only a part of a core), and the one in the key.
    """
    thread_count = calibration.key.thread_count
    return any(
        local.device is not None and key_of(local, local.device, machine, thread_count=thread_count) == calibration.key
        for asked in dict.fromkeys((None, thread_count))
        for local in targets(machine, catalog, thread_count=asked)
    )


def is_of(calibration: Calibration, device: Device) -> bool:
    """Return whether the calibration is of this device and of as many cores."""
    of_cores = device.core_count if device.kind == "cpu" else None
    return (calibration.key.device, calibration.key.core_count) == (device.id, of_cores)


def with_calibrations(catalog: Catalog, calibrations: Sequence[Calibration]) -> Catalog:
    """Add the calibrations to the catalog: their efficiencies and the measured host-to-device rates.

    The efficiencies come after the catalog's own, so that a profile named by the user wins. The host-to-device rates
    are valid only for this machine, not for a rented GPU of the same model.
    """
    own = tuple(efficiency for calibration in calibrations for efficiency in calibration.efficiencies)
    copies = {one.key.device: one.host_to_device_bytes_per_s for one in calibrations}
    timed = {name: rate for name, rate in copies.items() if rate is not None}
    return replace(catalog, efficiencies=(*catalog.efficiencies, *own), copies_at_hand=timed)


def calibration_notes(stored: Stored, *, used: frozenset[str], now: datetime | None = None) -> Iterator[str]:
    """Yield the notes of an answer on the calibrations of the devices `used`, and on the files left out."""
    for calibration in stored.calibrations:
        if calibration.key.device in used:
            yield f"{target_text(calibration)}: calibrated {age_text(calibration, now=now)}"
            yield from (f"{calibration.key.device}, calibration: {warning}" for warning in calibration.warnings)
    yield from stored.problems
