"""torch in a child process: what it says of itself, and what is said where it cannot."""

import sys
from pathlib import Path

import torch

from advisor.machine.torch_seen import ask_torch


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
