"""Reads torch's version, thread count and GPUs from a child process, so that this one need not import torch."""

import json
import os
import subprocess
import sys
from pathlib import Path

from advisor.records.machine import BUS_ORDER, LocalGpu, TorchSeen

_TIMEOUT_S = 120.0
"""The first import of torch from a cold disk can take half a minute."""
_ROOT = str(Path(__file__).resolve().parents[2])
# As in advisor.workload.spawn: `-m` would put the working directory before the standard library.
_START = "import sys; sys.path.append(sys.argv.pop(1)); from advisor.workload.torch_devices import main; main()"


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
