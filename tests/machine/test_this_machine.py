"""The machine that runs the tests, whatever it is."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from advisor.machine import this_machine as module
from advisor.machine.macos import read_macos
from advisor.machine.this_machine import ask_torch, this_machine
from advisor.records.machine import LocalGpu, TorchSeen


def test_it_has_threads_of_the_affinity_mask_and_at_most_one_core_for_each() -> None:
    machine = this_machine()

    assert 1 <= machine.thread_count <= len(os.sched_getaffinity(0))
    assert 0 < machine.core_count <= len(os.sched_getaffinity(0))


def test_it_is_read_without_torch() -> None:
    code = (
        "import sys; from advisor.machine.this_machine import this_machine; this_machine();"
        "sys.exit('torch' in sys.modules)"
    )

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_torch_says_its_version_and_threads() -> None:
    seen = ask_torch()

    assert (seen.version, seen.problem) == (torch.__version__, "")
    assert seen.thread_count >= 1
    assert len(seen.gpus) == torch.cuda.device_count() + int(torch.backends.mps.is_available())


def test_a_python_without_torch_is_named_as_the_problem(tmp_path: Path) -> None:
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')  # -S: without site-packages
    python.chmod(0o755)

    seen = ask_torch(python=str(python))

    assert (seen.version, seen.problem) == ("", "ModuleNotFoundError: No module named 'torch'")


def test_a_python_that_is_not_there_is_named_as_the_problem(tmp_path: Path) -> None:
    seen = ask_torch(python=str(tmp_path / "python"))

    assert seen.version == ""
    assert "No such file" in seen.problem


def test_the_gpu_of_a_mac_is_torchs_mps_with_the_name_of_its_chip(monkeypatch: pytest.MonkeyPatch) -> None:
    """With answers of sysctl, ioreg and torch made by hand."""
    answers = {"machdep.cpu.brand_string": "Apple M4", "hw.physicalcpu": "10", "hw.memsize": str(16 * 2**30)}
    mps = LocalGpu(id="mps", name="Apple GPU", memory_bytes=11.5e9)
    monkeypatch.setattr(module.sys, "platform", "darwin")
    monkeypatch.setattr(module, "read_macos", lambda: read_macos(ask=lambda key: answers.get(key, "")))
    monkeypatch.setattr(module, "gpu_name", lambda cpu_name: f"{cpu_name} 10-core GPU")
    monkeypatch.setattr(module, "ask_torch", lambda: TorchSeen(version="2.9.1", thread_count=4, gpus=(mps,)))

    machine = this_machine()

    (gpu,) = machine.gpus
    assert (gpu.id, gpu.name, gpu.memory_bytes) == ("mps", "Apple M4 10-core GPU", 11.5e9)
    assert machine.notes == ()
