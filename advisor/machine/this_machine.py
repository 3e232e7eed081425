"""Describes the machine that the program runs on."""

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
"""Device file of AMD's GPU compute driver."""


def this_machine() -> Machine:
    """Return what this process may use of the machine; runs no benchmark and does not import torch.

    GPUs that NVIDIA's driver does not list (Apple, AMD) are found by torch in a child process.
    """
    machine, found = _read_host(), _read_gpus()
    return replace(machine, gpus=found.gpus, notes=(*machine.notes, *found.notes))


def _read_host() -> Machine:
    """Return the machine without its GPUs."""
    if sys.platform == "linux":
        return read_linux(affinity=os.sched_getaffinity(0))
    if sys.platform == "darwin":
        return read_macos()
    threads = os.cpu_count() or 1
    note = f"on {sys.platform} only the number of hardware threads is known"
    return Machine(core_count=float(threads), thread_count=threads, notes=(note,))


def _read_gpus() -> GpusFound:
    """List NVIDIA GPUs through their driver; on a Mac, or where AMD's driver is present, list GPUs through torch."""
    if sys.platform != "darwin" and not _AMD_COMPUTE.exists():
        return read_nvidia_gpus()
    seen = ask_torch()
    problem = (f"GPUs: torch cannot be loaded: {seen.problem}",) if seen.problem else ()
    return GpusFound(gpus=seen.gpus, notes=problem)
