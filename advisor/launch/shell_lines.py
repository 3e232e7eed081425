"""Makes the shell lines of a task: one installs torch for the device, one starts the script on all machines."""

from advisor.records.answer import QuotedDevice
from advisor.records.launch_task import LaunchTask
from advisor.records.price import TORCH_INDEX, TorchWheel

_PORT = 29500
"""The default port of torchrun (pytorch.org/docs/stable/elastic/run.html)."""


def torch_install(device: QuotedDevice, wheel: TorchWheel | None) -> str:
    """Return the install command for a device, and for its GPU the wheel that it needs if that is not pip's default.

    The default build from PyPI includes gigabytes of CUDA, which a CPU does not need.
    """
    if device.kind == "cpu":
        return f"pip install torch --index-url {TORCH_INDEX}/cpu"
    return f"pip install torch --index-url {wheel.index_url}" if wheel else "pip install torch"


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
