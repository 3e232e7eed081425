"""NVIDIA's driver in, the GPUs that torch can use here out: by NVML, by nvidia-smi where its bindings are missing."""

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
"""nvidia-smi wakes drivers that are not kept awake, which takes some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusFound:
    """The GPUs, and what could not be learned of them."""

    gpus: tuple[LocalGpu, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """A GPU of the machine, whether or not torch may use it."""

    gpu: LocalGpu
    is_divided: bool


_Found = tuple[list[_Card], tuple[str, ...]]
"""The cards, and what could not be learned of them."""


def read_nvidia_gpus(*, visible: str | None = None) -> GpusFound:
    """Ask for the GPUs in the order of the PCI bus; `visible` is CUDA_VISIBLE_DEVICES (default: the environment's).

    torch's order is the same in a process that has `BUS_ORDER` of the records; in another the UUIDs say which is which.
    """
    found, problem = _ask_nvml()
    found = found or _ask_smi()
    if found is None:
        said = f" (NVML: {problem})" if problem else ""
        return GpusFound(notes=(f"no NVIDIA driver answers: neither NVML nor nvidia-smi is at hand{said}",))
    cards, notes = found
    cards = _visible(cards, os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible)
    gpus = tuple(replace(card.gpu, id=f"cuda:{index}") for index, card in enumerate(cards) if not card.is_divided)
    divided = tuple(
        f"cuda:{index}, {card.gpu.name}, is divided by MIG: its instances are not predicted"
        for index, card in enumerate(cards)
        if card.is_divided
    )
    return GpusFound(gpus=gpus, notes=(*notes, *divided))


def _ask_nvml() -> tuple[_Found | None, str]:
    """The cards by NVML; None, and why, where its bindings (`pip install nvidia-ml-py`) or the driver are missing."""
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
    except pynvml.NVMLError as error:  # no permission, or a card that fell off the bus
        return ([], (f"NVML does not list the GPUs: {error}",)), ""
    finally:
        pynvml.nvmlShutdown()


def _nvml_card(nvml: Any, index: int, *, driver: str) -> _Card:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)

    def ask(name: str) -> Any:
        """None for what this card or this user may not ask."""
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
        done = subprocess.run(  # noqa: S603 - the driver's own program, and no shell in between
            command, capture_output=True, text=True, check=False, timeout=_SMI_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return [], (f"nvidia-smi does not answer: {error}",)
    if done.returncode != 0:
        said = (done.stdout + done.stderr).strip().partition("\n")[0]
        return [], (f"nvidia-smi fails: {said}",)
    return _parse_smi(done.stdout), ()


def _parse_smi(text: str) -> list[_Card]:
    """The lines of `nvidia-smi --query-gpu`: memory in MiB, power in W, "[N/A]" for what a card does not tell."""
    cards = []
    for index, line in enumerate(csv.reader(text.splitlines(), skipinitialspace=True)):
        uuid, name, memory_mib, driver, limit_w, mig_mode = line
        memory, limit = _number(memory_mib), _number(limit_w)
        gpu = LocalGpu(
            id=f"cuda:{index}",
            name=name,
            memory_bytes=None if memory is None else memory * 2**20,
            driver=driver,
            power_limit_w=limit,
            uuid=uuid,
        )
        cards.append(_Card(gpu=gpu, is_divided=mig_mode == "Enabled"))
    return cards


def _number(text: str) -> float | None:
    return float(text) if text.replace(".", "", 1).isdecimal() else None


def _visible(cards: Sequence[_Card], visible: str | None) -> list[_Card]:
    """Those that CUDA_VISIBLE_DEVICES names, by index or start of the UUID, up to the first that it misnames.

    CUDA C++ Programming Guide, "CUDA Environment Variables"; "" hides all.
    """
    if visible is None:
        return list(cards)
    named = []
    for name in visible.split(","):
        card = next((card for index, card in enumerate(cards) if _is_named(card, index, name.strip())), None)
        if card is None or card in named:
            break
        named.append(card)
    return named


def _is_named(card: _Card, index: int, name: str) -> bool:
    return name == str(index) or (name.startswith("GPU-") and (card.gpu.uuid or "").startswith(name))
