"""A device of this machine in, what its timings depend on out."""

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
"""Of the device: no prediction of a time depends on it."""
_DIGITS = 12
"""Of each digest: enough that no two of a few thousand are the same."""


def targets(machine: Machine, catalog: Catalog, *, thread_count: int | None = None) -> tuple[LocalDevice, ...]:
    """The devices of this machine, the CPU with as many of its cores as it is to run threads."""
    used = machine if thread_count is None else replace(machine, core_count=float(thread_count))
    return local_devices(used, catalog)


def device_called(on: str, devices: Sequence[LocalDevice]) -> LocalDevice:
    """The one that `--on` names, "cuda" for "cuda:0"; raise `UsageError` where there is none."""
    wanted = f"{on}:0" if on == "cuda" else on
    found = next((local for local in devices if local.id == wanted), None)
    if found is None:
        here = ", ".join(local.id for local in devices)
        raise UsageError(f"--on {on}: there is no such device here", hint=f"found: {here}")
    return found


def thread_count_of(local: LocalDevice, machine: Machine, asked: int | None) -> int | None:
    """A thread per core, as torch has it; None on a GPU."""
    return None if local.id != "cpu" else asked or max(1, int(machine.core_count))


def key_of(local: LocalDevice, device: Device, machine: Machine, *, thread_count: int | None) -> CalibrationKey:
    """The key of a calibration of that device made now."""
    gpu = next((gpu for gpu in machine.gpus if gpu.id == local.id), LocalGpu(id="", name=""))
    return CalibrationKey(
        device=device.id,
        core_count=device.core_count if device.kind == "cpu" else None,
        thread_count=thread_count,
        driver=gpu.driver,
        power_limit_w=gpu.power_limit_w,
        torch=metadata.version("torch"),
        program=_digest(device),
    )


def is_of_this_program(key: CalibrationKey) -> bool:
    """Whether the code that it was fitted with is the one here, whatever the datasheet says of the device there."""
    return key.program.partition("-")[0] == _code()


def _digest(device: Device) -> str:
    """Of the code, and of the device's datasheet."""
    figures = {name: value for name, value in asdict(device).items() if name not in _UNRELATED}
    return f"{_code()}-{hashlib.sha256(repr(figures).encode()).hexdigest()[:_DIGITS]}"


@cache
def _code() -> str:
    """Of what turns coefficients into times."""
    digest = hashlib.sha256()
    for file in (Path(records.__file__), *(file for room in _ROOMS for file in sorted(room.glob("*.py")))):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:_DIGITS]
