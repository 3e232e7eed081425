"""Makes SkyPilot's files: of a task (docs.skypilot.co/en/latest/reference/yaml-spec.html), for `sky launch`, and of a
service (docs.skypilot.co/en/latest/serving/service-yaml-spec.html), for `sky serve up`."""

from collections.abc import Iterator, Mapping
from os.path import isabs
from typing import Any

from advisor.launch.launchable import TYPED_PROVIDERS, own_type, why_unknown
from advisor.launch.shell_lines import run_line
from advisor.records.launch_task import LaunchMachine, LaunchTask

PROVIDERS = frozenset({"aws", "azure", "gcp", "lambda", "runpod"})
"""Providers on which SkyPilot can stop or shut down idle machines, which the task file relies on."""
GPU_NAMES = {
    "a10": "A10", "a100-pcie-40gb": "A100", "a100-pcie-80gb": "A100-80GB", "a100-sxm4-40gb": "A100",
    "a100-sxm4-80gb": "A100-80GB", "a10g": "A10G", "a40": "A40", "b200": "B200", "h100-nvl-94gb": "H100",
    "h100-pcie-80gb": "H100", "h100-sxm5-80gb": "H100", "h200-sxm-141gb": "H200", "l4": "L4", "l40": "L40",
    "l40s": "L40S", "p100-pcie-16gb": "P100", "p4": "P4", "quadro-rtx-6000": "RTX6000", "rtx-4090": "RTX4090",
    "rtx-5090": "RTX5090", "rtx-a6000": "A6000", "rtx-pro-6000-blackwell-server": "RTXPRO6000", "t4": "T4",
    "v100-pcie-16gb": "V100", "v100-sxm2-16gb": "V100", "v100-sxm2-32gb": "V100-32GB",
}  # fmt: skip
"""Names from github.com/skypilot-org/skypilot-catalog, catalogs/v8/common/accelerators.csv; of the RTX PRO 6000 and
RTX 5090 from skypilot 0.14.1, sky/catalog/gcp_catalog.py and data_fetchers/fetch_aws.py and fetch_runpod.py."""
_GPU_NAMES_OF: Mapping[str, Mapping[str, str]] = {
    "runpod": {
        "a100-sxm4-80gb": "A100-80GB-SXM",
        "h100-nvl-94gb": "H100-NVL",
        "h100-sxm5-80gb": "H100-SXM",
        "h200-sxm-141gb": "H200-SXM",
        "rtx-a6000": "RTXA6000",
    }
}
"""Names that differ on one cloud, from the same file."""
_DISK_GB = 100


def command(task: LaunchTask) -> str:
    """Return the command that runs the file, without its name."""
    secrets = "".join(f" --secret {name}" for name in task.variables)
    return f"sky {'launch' if task.port is None else 'serve up'}{secrets}"


def why_not(machine: LaunchMachine) -> str:
    """Return why SkyPilot cannot launch the instance, or "" if it can."""
    return why_unknown(machine, providers=PROVIDERS, gpu_names=GPU_NAMES)


def gpu_name(provider: str, gpu: str) -> str | None:
    """Return SkyPilot's name of a GPU, by its id, on a cloud; None if it has none."""
    return _GPU_NAMES_OF.get(provider, {}).get(gpu) or GPU_NAMES.get(gpu)


def known_gpu_names() -> frozenset[str]:
    """Return every name of a GPU on any cloud."""
    return frozenset(GPU_NAMES.values()).union(*(names.values() for names in _GPU_NAMES_OF.values()))


def task_values(task: LaunchTask) -> dict[str, Any]:
    """Return the keys and values of the task file."""
    values: dict[str, Any] = {
        "name": task.name,
        **({} if task.port is None else {"service": {"readiness_probe": "/", "replicas": task.replica_count}}),
        "workdir": task.folder if isabs(task.folder) else ".",  # relative to where `sky` is called, not to the file
        "resources": _resources(task),
    }
    if task.machine.instance_count > 1:
        values["num_nodes"] = task.machine.instance_count
    first_address = '"$(echo "$SKYPILOT_NODE_IPS" | head -n1)"'
    run = run_line(task, machine_rank="$SKYPILOT_NODE_RANK", first_address=first_address)
    if task.variables:
        values["secrets"] = dict.fromkeys(task.variables)  # without a value, `sky` asks for --secret NAME
    return values | {"setup": "\n".join(task.setup) + "\n", "run": f"{run}\n"}


def comments(task: LaunchTask) -> Iterator[str]:
    """Yield notes on what a service needs and costs, or on what happens to an idle machine."""
    if task.port is not None:
        yield (
            f"The script has to answer GET / with status 200 on port {task.port} when it is ready. SkyServe's load "
            "balancer runs on one more machine, which the cost does not include. `sky serve down` ends both."
        )
        return
    after = f"after {task.idle_minutes} idle minutes"
    if _is_shut_down(task.machine):
        yield f"Shut down {after}, disk included: let the script save its results elsewhere."
    else:
        yield f"Stopped {after}; its disk is kept and billed until `sky down` removes both."


def _resources(task: LaunchTask) -> dict[str, Any]:
    machine = task.machine
    instance_type = own_type(machine)
    resources: dict[str, Any] = {"infra": machine.provider}
    if instance_type:
        resources = {"infra": f"{machine.provider}/{machine.region}", "instance_type": instance_type}
    if machine.device.kind == "gpu":
        resources["accelerators"] = f"{gpu_name(machine.provider, machine.device.id)}:{machine.device.count}"
    resources |= {"use_spot": machine.price_kind == "spot", "disk_size": _DISK_GB}
    if task.max_usd_per_hour is not None:
        resources["max_hourly_cost"] = task.max_usd_per_hour
    if task.port is not None:
        return resources | {"ports": task.port}
    autostop = {"idle_minutes": task.idle_minutes, "down": _is_shut_down(machine)}
    return resources | {"autostop": autostop}


def _is_shut_down(machine: LaunchMachine) -> bool:
    """Return True if the machine can only be shut down, not stopped."""
    return machine.price_kind == "spot" or machine.provider not in TYPED_PROVIDERS
