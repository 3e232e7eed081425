"""Makes the shell lines of a task: one installs torch for the device, one starts the script on all machines."""

from advisor.records.answer import QuotedDevice
from advisor.records.launch_task import LaunchTask

_INDEX = "https://download.pytorch.org/whl"
_BEFORE_TURING = ("p100-", "p4", "v100-")
"""Pascal and Volta; the builds of torch for CUDA 12.6 are the last with kernels for them (pytorch/pytorch#172352)."""
_PORT = 29500
"""The default port of torchrun (pytorch.org/docs/stable/elastic/run.html)."""


def torch_install(device: QuotedDevice) -> str:
    """Return the install command; the default build from PyPI includes gigabytes of CUDA, which a CPU does not need."""
    if device.kind == "cpu":
        return f"pip install torch --index-url {_INDEX}/cpu"
    if device.id.startswith(_BEFORE_TURING):
        return f"pip install torch --index-url {_INDEX}/cu126"
    return "pip install torch"


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
