"""Builds the key of a calibration: the device and the conditions that its timings depend on."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib import metadata
from pathlib import Path

import advisor.records.device as records
from advisor.devices.local_device import local_devices
from advisor.errors import UsageError
from advisor.records.calibration import CalibrationKey
from advisor.records.device import Device
from advisor.records.machine import LocalDevice, LocalGpu, Machine
from advisor.records.price import Catalog

_ROOMS = tuple(Path(__file__).resolve().parents[1] / name for name in ("ops", "predict"))
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


def thread_count_of(local: LocalDevice, machine: Machine, asked: int | None) -> int | None:
    """Return the requested threads, or one per core, as in torch; None on a GPU."""
    return None if local.id != "cpu" else asked or max(1, int(machine.core_count))


def key_of(local: LocalDevice, device: Device, machine: Machine, *, thread_count: int | None) -> CalibrationKey:
    """Return the key that a calibration of the device would have now."""
    gpu = next((gpu for gpu in machine.gpus if gpu.id == local.id), LocalGpu(id="", name=""))
    return CalibrationKey(
        device=device.id,
        core_count=device.core_count if device.kind == "cpu" else None,
        thread_count=thread_count,
        driver=gpu.driver,
        power_limit_w=gpu.power_limit_w,
        torch=torch_version(),
        program=_digest(device),
    )


def torch_version() -> str:
    """Return the version of the installed torch, or "" if there is none."""
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def is_of_this_program(key: CalibrationKey) -> bool:
    """Return whether the calibration was fitted with this version of the code, regardless of its datasheet."""
    return key.program.partition("-")[0] == _code()


def _digest(device: Device) -> str:
    """Return a digest of the code and one of the device's datasheet."""
    figures = {name: value for name, value in asdict(device).items() if name not in _UNRELATED}
    return f"{_code()}-{hashlib.sha256(repr(figures).encode()).hexdigest()[:_DIGITS]}"


@cache
def _code() -> str:
    """Return a digest of the code that turns coefficients into times."""
    digest = hashlib.sha256()
    for file in (Path(records.__file__), *(file for room in _ROOMS for file in sorted(room.glob("*.py")))):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:_DIGITS]
