"""Nothing in, the machine at hand out."""

import os
import sys
from dataclasses import replace
from pathlib import Path

from advisor.machine.gpus import GpusFound, read_nvidia_gpus
from advisor.machine.linux import read_linux
from advisor.machine.macos import read_macos
from advisor.machine.torch_seen import ask_torch
from advisor.records.machine import Machine

_AMD_COMPUTE = Path("/dev/kfd")
"""The kernel's driver of AMD's GPUs for computing."""


def this_machine() -> Machine:
    """Read what this process may use of the machine. Nothing is timed; no torch is imported here.

    Only where GPUs can be that NVIDIA's driver does not know (Apple, AMD) is torch asked, in a process of its own.
    """
    machine, found = _read_host(), _read_gpus()
    return replace(machine, gpus=found.gpus, notes=(*machine.notes, *found.notes))


def _read_host() -> Machine:
    """All but the GPUs."""
    if sys.platform == "linux":
        return read_linux(affinity=os.sched_getaffinity(0))
    if sys.platform == "darwin":
        return read_macos()
    threads = os.cpu_count() or 1
    note = f"on {sys.platform} only the number of hardware threads is read"
    return Machine(core_count=float(threads), thread_count=threads, notes=(note,))


def _read_gpus() -> GpusFound:
    """NVIDIA's by their driver; Apple's, and AMD's where the kernel has their driver, by torch."""
    if sys.platform != "darwin" and not _AMD_COMPUTE.exists():
        return read_nvidia_gpus()
    seen = ask_torch()
    problem = (f"GPUs: torch cannot be asked: {seen.problem}",) if seen.problem else ()
    return GpusFound(gpus=seen.gpus, notes=problem)
