"""Makes the shell lines of a task: one installs torch for the device, one starts the script on all machines."""

import shlex
from collections.abc import Sequence

from advisor.records.answer import QuotedDevice
from advisor.records.launch_task import LaunchTask
from advisor.records.price import TORCH_INDEX, TorchWheel

_PORT = 29500
"""The default port of torchrun (pytorch.org/docs/stable/elastic/run.html)."""


def torch_install(device: QuotedDevice, wheel: TorchWheel | None, packages: Sequence[str] = ("torch",)) -> str:
    """Return the install command of torch's packages for a device.

    The default build from PyPI includes gigabytes of CUDA, which a CPU does not need. A GPU that needs another wheel
    than pip's default gets the newest that has code for it, whatever version `packages` ask for.
    """
    if device.kind == "cpu":
        return f"{pip_install(packages)} --index-url {TORCH_INDEX}/cpu"
    if wheel:
        return f"{pip_install([name.partition('==')[0] for name in packages])} --index-url {wheel.index_url}"
    return pip_install(packages)


def pip_install(packages: Sequence[str]) -> str:
    """Return the install command of packages from PyPI."""
    return f"pip install {shlex.join(packages)}"


def run_line(task: LaunchTask, *, machine_rank: str, first_address: str) -> str:
    """Return a line with Python for a single process, otherwise with torchrun and one process per GPU.

    `machine_rank` (the index of this machine, from 0) and `first_address` (the address of machine 0) are shell words.
    """
    machines = task.machine.instance_count
    processes = max(1, task.machine.gpus_used // machines)
    if machines * processes == 1:
        return f"{task.interpreter} {task.script}"
    if machines == 1:
        return f"torchrun --standalone --nproc-per-node={processes} {task.script}"
    return (
        f"torchrun --nnodes={machines} --nproc-per-node={processes} --node-rank={machine_rank} "
        f"--master-addr={first_address} --master-port={_PORT} {task.script}"
    )
