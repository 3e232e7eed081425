"""Finds the calibrations that are valid for this machine now, and adds them to a catalog."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from advisor.calibrate.key import key_of, targets
from advisor.calibrate.store import Stored, read_stored
from advisor.records.calibration import Calibration
from advisor.records.device import Device
from advisor.records.machine import Machine
from advisor.records.price import Catalog
from advisor.report.devices import age_text, target_text


def calibrations_in_force(machine: Machine, catalog: Catalog, *, stored: Stored | None = None) -> Stored:
    """Return the calibrations valid for this machine's devices now; the problems are those of all files."""
    found = stored or read_stored()
    held = tuple(one for one in found.calibrations if _holds(one, machine, catalog))
    return Stored(calibrations=held, problems=found.problems)


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
