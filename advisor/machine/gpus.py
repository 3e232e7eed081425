"""Lists the NVIDIA GPUs that torch can use here, through NVML or, without its Python bindings, nvidia-smi."""

import csv
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from advisor.records.machine import LocalGpu

_QUERY = ("uuid", "name", "memory.total", "driver_version", "power.limit", "mig.mode.current")
_SMI_TIMEOUT_S = 10.0
"""Without persistence mode nvidia-smi must first load the driver, which takes some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusFound:
    """The GPUs found, with notes on whatever could not be read."""

    gpus: tuple[LocalGpu, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """A GPU of the machine, including those that torch may not use."""

    gpu: LocalGpu
    is_divided: bool
    """MIG mode is on."""


_Found = tuple[list[_Card], tuple[str, ...]]
"""The GPUs of the machine, with notes on whatever could not be read."""


def read_nvidia_gpus() -> GpusFound:
    """Return the GPUs that CUDA_VISIBLE_DEVICES shows, in PCI bus order.

    torch uses the same order only in a process whose environment contains `records.machine.BUS_ORDER`; otherwise match
    GPUs by UUID.
    """
    found, problem = _ask_nvml()
    found = found or _ask_smi()
    if found is None:
        said = f" (NVML: {problem})" if problem else ""
        return GpusFound(notes=(f"no NVIDIA driver found: neither NVML nor nvidia-smi is available{said}",))
    cards, notes = found
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus, divided = [], []
    for index, card in enumerate(cards if visible is None else _visible(cards, visible)):
        if card.is_divided:
            divided.append(f"cuda:{index}, {card.gpu.name}, is in MIG mode: its instances are not predicted")
        else:
            gpus.append(replace(card.gpu, id=f"cuda:{index}"))
    return GpusFound(gpus=tuple(gpus), notes=(*notes, *divided))


def _ask_nvml() -> tuple[_Found | None, str]:
    """Return the GPUs and "", or None and the reason if the driver or the bindings (`nvidia-ml-py`) are missing."""
    try:
        import pynvml
    except ImportError:
        return None, ""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return None, str(error)
    try:
        driver = str(pynvml.nvmlSystemGetDriverVersion())
        count = pynvml.nvmlDeviceGetCount()
        return ([_nvml_card(pynvml, index, driver=driver) for index in range(count)], ()), ""
    except pynvml.NVMLError as error:  # no permission, or a GPU that fell off the bus
        return ([], (f"NVML cannot list the GPUs: {error}",)), ""
    finally:
        pynvml.nvmlShutdown()


def _nvml_card(nvml: Any, index: int, *, driver: str) -> _Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str) -> Any:
        """Return None if this GPU does not support the query or this user may not make it."""
        try:
            return getattr(nvml, name)(handle)
        except nvml.NVMLError:
            return None

    memory = ask("nvmlDeviceGetMemoryInfo")
    limit_mw = ask("nvmlDeviceGetEnforcedPowerLimit")
    mig_mode = ask("nvmlDeviceGetMigMode")
    gpu = LocalGpu(
        id=f"cuda:{index}",
        name=str(nvml.nvmlDeviceGetName(handle)),
        memory_bytes=None if memory is None else float(memory.total),
        driver=driver,
        power_limit_w=None if limit_mw is None else limit_mw / 1e3,
        uuid=ask("nvmlDeviceGetUUID"),
    )
    return _Card(gpu=gpu, is_divided=mig_mode is not None and mig_mode[0] == 1)


def _ask_smi() -> _Found | None:
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, f"--query-gpu={','.join(_QUERY)}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(  # noqa: S603 - the driver's own program, started without a shell
            command, capture_output=True, text=True, check=False, timeout=_SMI_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], (f"nvidia-smi does not respond: {error}",)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().partition("\n")[0]
        return [], (f"nvidia-smi failed: {said}",)
    return _parse_smi(done.stdout), ()


def _parse_smi(text: str) -> list[_Card]:
    """Parse the output of `nvidia-smi --query-gpu`: memory in MiB, power in W, "[N/A]" for unknown values."""
    cards = []
    for index, line in enumerate(csv.reader(text.splitlines(), skipinitialspace=True)):
        uuid, name, memory_mib, driver, limit_w, mig_mode = line
        memory_bytes = None if (memory := _number(memory_mib)) is None else memory * 2**20
        gpu = LocalGpu(
            id=f"cuda:{index}",
            name=name,
            memory_bytes=memory_bytes,
            driver=driver,
            power_limit_w=_number(limit_w),
            uuid=uuid,
        )
        cards.append(_Card(gpu=gpu, is_divided=mig_mode == "Enabled"))
    return cards


def _number(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdecimal() else None


def _visible(cards: Sequence[_Card], visible: str) -> list[_Card]:
    """Return the GPUs that CUDA_VISIBLE_DEVICES lists by index or UUID prefix, up to the first invalid entry.

    An empty string hides all GPUs. Source: CUDA C++ Programming Guide, "CUDA Environment Variables".
    """
    named: list[_Card] = []
    for name in map(str.strip, visible.split(",")):
        by_uuid = (card for card in cards if name.startswith("GPU-") and (card.gpu.uuid or "").startswith(name))
        by_index = (card for index, card in enumerate(cards) if name == str(index))
        card = next(by_index, None) or next(by_uuid, None)
        if card is None or card in named:
            break
        named.append(card)
    return named
