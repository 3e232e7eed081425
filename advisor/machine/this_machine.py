"""Describes the machine that the program runs on, and asks torch in a child process, without importing it here."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from advisor.machine.gpus import read_nvidia_gpus
from advisor.machine.linux import read_linux
from advisor.machine.macos import gpu_name, read_macos
from advisor.records.machine import BUS_ORDER, LocalGpu, Machine, TorchSeen

_AMD_COMPUTE = Path("/dev/kfd")
"""Device file of AMD's GPU compute driver."""
_TIMEOUT_S = 120.0
"""The first import of torch from a cold disk can take half a minute."""
_ROOT = str(Path(__file__).resolve().parents[2])
# As in advisor.workload.spawn: `-m` would put the working directory before the standard library.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from advisor.workload.torch_devices import main; main()"


def this_machine() -> Machine:
    """Return what this process may use of the machine; runs no benchmark and does not import torch.

    NVIDIA GPUs are listed by their driver. On a Mac, or where AMD's driver is present, torch lists the GPUs in a child
    process.
    """
    if sys.platform == "linux":
        machine = read_linux(affinity=os.sched_getaffinity(0))
    elif sys.platform == "darwin":
        machine = read_macos()
    else:
        threads = os.cpu_count() or 1
        note = f"on {sys.platform} only the number of hardware threads is known"
        machine = Machine(core_count=float(threads), thread_count=threads, notes=(note,))
    if sys.platform != "darwin" and not _AMD_COMPUTE.exists():
        found = read_nvidia_gpus()
        return replace(machine, gpus=found.gpus, notes=(*machine.notes, *found.notes))
    seen = ask_torch()
    problem = (f"GPUs: torch cannot be loaded: {seen.problem}",) if seen.problem else ()
    name = gpu_name(machine.cpu_name) if sys.platform == "darwin" else None
    gpus = tuple(replace(gpu, name=name) if name and gpu.id == "mps" else gpu for gpu in seen.gpus)
    return replace(machine, gpus=gpus, notes=(*machine.notes, *problem))


def ask_torch(*, python: str = sys.executable) -> TorchSeen:
    """Return what torch reports, after importing it in a child process (about a second)."""
    try:
        done = subprocess.run(  # noqa: S603 - this same interpreter, started without a shell
            [python, "-P", "-c", _START, _ROOT],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=_TIMEOUT_S,
            env=os.environ | BUS_ORDER,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return TorchSeen(problem=f"the child process does not respond: {error}")
    if done.returncode != 0:
        return TorchSeen(problem=(done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    answer = json.loads(done.stdout.splitlines()[-1])
    gpus = tuple(LocalGpu(**gpu) for gpu in answer["gpus"])
    return TorchSeen(version=answer["version"], thread_count=answer["thread_count"], gpus=gpus)
