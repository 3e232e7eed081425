"""Makes dstack's files of tasks and services (dstack.ai/docs/reference/dstack.yml/), for `dstack apply`."""

import math
from collections.abc import Iterator
from typing import Any

from advisor.launch.launchable import own_type, why_unknown
from advisor.launch.shell_lines import run_line
from advisor.records.launch_task import LaunchMachine, LaunchTask

PROVIDERS = frozenset({"aws", "azure", "digitalocean", "gcp", "lambda", "runpod", "verda", "vultr"})
GPU_NAMES = {
    "a10": "A10", "a100-pcie-40gb": "A100:40GB", "a100-pcie-80gb": "A100:80GB", "a100-sxm4-40gb": "A100:40GB",
    "a100-sxm4-80gb": "A100:80GB", "a10g": "A10G", "a16": "A16", "a40": "A40", "b200": "B200", "b300": "B300",
    "h100-nvl-94gb": "H100NVL", "h100-pcie-80gb": "H100", "h100-sxm5-80gb": "H100", "h200-sxm-141gb": "H200",
    "l4": "L4", "l40": "L40", "l40s": "L40S", "p100-pcie-16gb": "P100", "quadro-rtx-6000": "RTX6000",
    "rtx-4000-ada": "RTX4000Ada", "rtx-4090": "RTX4090", "rtx-6000-ada": "RTX6000Ada", "rtx-a6000": "A6000",
    "rtx-pro-6000-blackwell-server": "RTXPRO6000", "t4": "T4", "v100-pcie-16gb": "V100:16GB",
    "v100-sxm2-16gb": "V100:16GB", "v100-sxm2-32gb": "V100:32GB",
}  # fmt: skip
"""Names from gpuhunt 0.1.34, the catalog of dstack; with the memory if a name has two sizes."""
_LEAST_DISK = "100GB.."
_FOLDER_THERE = "/workflow"


def command(task: LaunchTask) -> str:
    """Return the command that runs the file, without its name; it takes `task.variables` from its environment."""
    return "dstack apply -f"


def why_not(machine: LaunchMachine) -> str:
    """Return why dstack cannot launch the instance, or "" if it can."""
    return why_unknown(machine, providers=PROVIDERS, gpu_names=GPU_NAMES)


def task_values(task: LaunchTask) -> dict[str, Any]:
    """Return the keys and values of the task file."""
    machine = task.machine
    values: dict[str, Any] = {"type": "task" if task.port is None else "service", "name": task.name}
    if machine.instance_count > 1:
        values["nodes"] = machine.instance_count
    run = run_line(task, machine_rank="$DSTACK_NODE_RANK", first_address="$DSTACK_MASTER_NODE_IP")
    values |= {
        "python": task.python,
        "working_dir": _FOLDER_THERE,
        "files": [{"local_path": task.folder, "path": _FOLDER_THERE}],
        "commands": [*task.setup, run],
        **({"env": list(task.variables)} if task.variables else {}),
        **({} if task.port is None else {"port": task.port, "replicas": task.replica_count}),
        "backends": [machine.provider],
    }
    instance_type = own_type(machine)
    if instance_type:
        values |= {"regions": [machine.region], "instance_types": [instance_type]}
    values |= {
        "spot_policy": "spot" if machine.price_kind == "spot" else "on-demand",
        "resources": _resources(machine),
        **({"idle_duration": f"{task.idle_minutes}m"} if task.port is None else {}),
    }
    if task.max_duration_s is not None:
        values["max_duration"] = f"{math.ceil(task.max_duration_s / 60)}m"
    if task.max_usd_per_hour is not None:
        values["max_price"] = task.max_usd_per_hour
    return values


def comments(task: LaunchTask) -> Iterator[str]:
    """Yield notes on what is uploaded, what several machines or a service need, and what ends an idle machine."""
    if task.machine.instance_count > 1:
        yield "Several machines need a dstack fleet with `placement: cluster`, so that they can reach each other."
    if task.port is None:
        after = f"after {task.idle_minutes} idle minutes"
        yield f"Terminated {after}, with its disk: let the script save results elsewhere."
    else:
        yield (
            f"The script has to answer HTTP requests on port {task.port}. Clients send the token of a dstack user. "
            "`dstack stop` ends the service."
        )
    yield (
        "dstack uploads at most 2 MB of the folder (DSTACK_SERVER_CODE_UPLOAD_LIMIT changes that): leave data out with "
        ".gitignore or .dstackignore."
    )


def _resources(machine: LaunchMachine) -> dict[str, Any]:
    """Return the resources with any number of cores and any memory; dstack's defaults would exclude small instances."""
    is_gpu = machine.device.kind == "gpu"
    arch = "arm:" if machine.architecture == "arm" else ""
    gpu = f"{GPU_NAMES[machine.device.id]}:{machine.device.count}" if is_gpu else 0
    return {"cpu": f"{arch}1..", "memory": "0GB..", "gpu": gpu, "disk": _LEAST_DISK}
