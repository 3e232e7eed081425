"""The machine at hand in, the calibrations that hold for it now out, and a catalog that has them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from advisor.calibrate.key import key_of, targets
from advisor.calibrate.store import Stored, read_stored
from advisor.records.calibration import Calibration
from advisor.records.device import Device
from advisor.records.machine import Machine
from advisor.records.price import Catalog
from advisor.report.calibration_text import age_text, target_text


def calibrations_in_force(machine: Machine, catalog: Catalog, *, stored: Stored | None = None) -> Stored:
    """Those of this machine's devices as they are now; the problems are those of all files."""
    found = stored or read_stored()
    held = tuple(one for one in found.calibrations if _holds(one, machine, catalog))
    return Stored(calibrations=held, problems=found.problems)


def _holds(calibration: Calibration, machine: Machine, catalog: Catalog) -> bool:
    """Whether a calibration of the same device made now would have the same key, at as many threads: those of all its
    cores, which a quota may leave a share of one, or those that it was asked for."""
    thread_count = calibration.key.thread_count
    return any(
        local.device is not None and key_of(local, local.device, machine, thread_count=thread_count) == calibration.key
        for asked in dict.fromkeys((None, thread_count))
        for local in targets(machine, catalog, thread_count=asked)
    )


def is_of(calibration: Calibration, device: Device) -> bool:
    """Whether it says how fast the device is: it is of that one, and of as many cores."""
    of_cores = device.core_count if device.kind == "cpu" else None
    return (calibration.key.device, calibration.key.core_count) == (device.id, of_cores)


def with_calibrations(catalog: Catalog, calibrations: Sequence[Calibration]) -> Catalog:
    """The catalog with their efficiencies behind its own, so that a profile which the user names wins, and with the
    copies that were timed, which are this machine's alone: a rented GPU is plugged in elsewhere."""
    own = tuple(efficiency for calibration in calibrations for efficiency in calibration.efficiencies)
    copies = {one.key.device: one.host_to_device_bytes_per_s for one in calibrations}
    timed = {name: rate for name, rate in copies.items() if rate is not None}
    return replace(catalog, efficiencies=(*catalog.efficiencies, *own), copies_at_hand=timed)


def calibration_notes(stored: Stored, *, used: frozenset[str], now: datetime | None = None) -> Iterator[str]:
    """What an answer that rests on the calibrations of the devices `used` says of them, and the files left out."""
    for calibration in stored.calibrations:
        if calibration.key.device in used:
            yield f"{target_text(calibration)}: calibrated {age_text(calibration, now=now)}"
            yield from (f"{calibration.key.device}, calibration: {warning}" for warning in calibration.warnings)
    yield from stored.problems
