"""A task and where an engine tells its machines apart in, the shell line that starts the script on all of them out."""

from advisor.records.launch_task import LaunchTask

_PORT = 29500
"""torchrun's own default (pytorch.org/docs/stable/elastic/run.html)."""


def run_line(task: LaunchTask, *, machine_rank: str, first_address: str) -> str:
    """Python where one process does the step, else torchrun with a process for each GPU.

    `machine_rank` and `first_address` are in words of shell: the place of this machine among all, from 0, and the
    address of the first.
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
