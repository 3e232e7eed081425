"""The machine that runs the tests, whatever it is."""

import os
import subprocess
import sys
from pathlib import Path

import torch

from advisor.machine.this_machine import ask_torch, this_machine


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
