"""Makes the shell line that starts the script on all machines of a task."""

from advisor.records.launch_task import LaunchTask

_PORT = 29500
"""The default port of torchrun (pytorch.org/docs/stable/elastic/run.html)."""


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
