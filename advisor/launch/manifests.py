"""Makes the Kubernetes objects that run a task: a Job, or for a service a Deployment, with the Service they need.

Sources: kubernetes.io/docs/concepts/workloads/controllers/job/, .../tasks/job/job-with-pod-to-pod-communication/ and
.../tasks/manage-gpus/scheduling-gpus/.
"""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from advisor.launch.shell_lines import run_line
from advisor.records.launch_task import LaunchMachine, LaunchTask

Object = Mapping[str, Any]

ARCH_LABEL = "kubernetes.io/arch"
REGION_LABEL = "topology.kubernetes.io/region"
TYPE_LABEL = "node.kubernetes.io/instance-type"
"""Labels of every node in a cloud (kubernetes.io/docs/reference/labels-annotations-taints/)."""
_GPU_RESOURCES = {"AMD": "amd.com/gpu", "NVIDIA": "nvidia.com/gpu"}
"""Resources by the vendor in a GPU's profile (kubernetes.io/docs/tasks/manage-gpus/scheduling-gpus/)."""
_FOLDER_THERE = "/workflow"
_CONFIG_MAP_THERE = "/configmap"
_SHARED_MEMORY = "/dev/shm"  # noqa: S108, a mount of the container


def arch_of(machine: LaunchMachine) -> str:
    """Return the value of `ARCH_LABEL`."""
    return "arm64" if machine.architecture == "arm" else "amd64"


def gpu_resource(machine: LaunchMachine) -> str:
    """Return the resource that the device plugin of the GPU's vendor offers; "" for a CPU and for other devices."""
    return _GPU_RESOURCES.get(machine.gpu_vendor, "")


def known_gpus(machine: LaunchMachine) -> tuple[str, ...]:
    """Return the id of the machine's GPU, which the instance type determines, if a device plugin offers it."""
    return (machine.device.id,) if gpu_resource(machine) else ()


def toleration(key: str, value: str | None = None) -> dict[str, str]:
    """Return the toleration of a NoSchedule taint, with any value if `value` is None."""
    wanted = {"operator": "Exists"} if value is None else {"operator": "Equal", "value": value}
    return {"key": key, **wanted, "effect": "NoSchedule"}


def manifest(
    task: LaunchTask,
    *,
    selector: Mapping[str, str],
    tolerations: Sequence[Mapping[str, str]],
    annotations: Mapping[str, str] | None = None,
    before: Sequence[Object] = (),
) -> dict[str, Any]:
    """Return the one object that the task needs, or a List of them after those in `before`."""
    pod = {
        "metadata": {"labels": {"app": task.name}, **({"annotations": dict(annotations)} if annotations else {})},
        "spec": {
            "nodeSelector": dict(selector),
            **({"tolerations": [*tolerations]} if tolerations else {}),
            **({"subdomain": task.name} if task.machine.instance_count > 1 else {}),
            "containers": [_container(task)],
            "volumes": [*_volumes(task)],
        },
    }
    items = [*before, *(_job(task, pod) if task.port is None else _deployment(task, pod))]
    return dict(items[0]) if len(items) == 1 else {"apiVersion": "v1", "kind": "List", "items": items}


def handing_over(task: LaunchTask) -> Iterator[str]:
    """Yield notes on how the folder and the environment variables get into the cluster."""
    if not task.image:
        yield (
            f"First, in the folder of the script: `kubectl create configmap {task.name} --from-file=.` stores its "
            f"files (1 MiB at most, no subfolders). For more, build an image with the folder as {_FOLDER_THERE} and "
            "name it with --image."
        )
    if task.variables:
        values = " ".join(f'--from-literal={name}="${name}"' for name in task.variables)
        yield f"Before applying this file, also run `kubectl create secret generic {task.name} {values}`."
    if task.machine.has_part:
        yield (
            f"The {task.machine.device.name} is a part of a GPU: its nodes need NVIDIA's vGPU (GRID) driver, not that "
            "of whole GPUs."
        )
    if task.machine.gpu_vendor == "AMD":
        yield "Check: `pip install torch` installs CUDA's build; an AMD GPU needs the index of ROCm's wheels."


def _job(task: LaunchTask, pod: Mapping[str, Any]) -> Iterator[Object]:
    """Yield a Job whose pods are not restarted when the program fails, only when their node is taken away."""
    count = task.machine.instance_count
    if count > 1:  # a name for each pod, by which the others reach the first
        spec = {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": {"app": task.name}}
        yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": task.name}, "spec": spec}
    disrupted = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    yield {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": task.name},
        "spec": {
            "backoffLimit": 0,
            "podFailurePolicy": {"rules": [disrupted]},
            **({"completions": count, "parallelism": count, "completionMode": "Indexed"} if count > 1 else {}),
            **({} if task.max_duration_s is None else {"activeDeadlineSeconds": math.ceil(task.max_duration_s)}),
            "template": {**pod, "spec": {"restartPolicy": "Never", **pod["spec"]}},
        },
    }


def _deployment(task: LaunchTask, pod: Mapping[str, Any]) -> Iterator[Object]:
    app = {"app": task.name}
    yield {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": task.name},
        "spec": {"replicas": task.replica_count, "selector": {"matchLabels": app}, "template": pod},
    }
    spec = {"selector": app, "ports": [{"port": task.port}]}
    yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": task.name}, "spec": spec}


def _container(task: LaunchTask) -> dict[str, Any]:
    run = run_line(task, machine_rank="$JOB_COMPLETION_INDEX", first_address=f"{task.name}-0.{task.name}")
    start = [f"mkdir -p {_FOLDER_THERE}", *([] if task.image else [f"cp -L {_CONFIG_MAP_THERE}/* {_FOLDER_THERE}"])]
    lines = ["set -e", *start, f"cd {_FOLDER_THERE}", *task.setup, run]
    mounts = [{"name": "shm", "mountPath": _SHARED_MEMORY}]
    if not task.image:
        mounts.append({"name": "folder", "mountPath": _CONFIG_MAP_THERE})
    secrets = [
        {"name": name, "valueFrom": {"secretKeyRef": {"name": task.name, "key": name}}} for name in task.variables
    ]
    probe = {"httpGet": {"path": "/", "port": task.port}}
    return {
        "name": task.name,
        "image": task.image or f"python:{task.python}",
        "command": ["sh", "-c"],
        "args": [_literal("".join(f"{line}\n" for line in lines))],
        **({"env": secrets} if secrets else {}),
        **({} if task.port is None else {"ports": [{"containerPort": task.port}], "readinessProbe": probe}),
        "resources": _resources(task.machine),
        "volumeMounts": mounts,
    }


def _literal(text: str) -> str:
    """Return the text so that Kubernetes, which expands `$(NAME)` in arguments, leaves it as it is (`$$` is a `$`)."""
    return re.sub(r"\$(?=[$(])", "$$", text)


def _volumes(task: LaunchTask) -> Iterator[Object]:
    """Yield memory for the processes that load data, which share tensors (a container has 64 MB), and the folder."""
    yield {"name": "shm", "emptyDir": {"medium": "Memory"}}
    if not task.image:
        yield {"name": "folder", "configMap": {"name": task.name}}


def _resources(machine: LaunchMachine) -> dict[str, Any]:
    """Return all GPUs of the machine; without a GPU, more than half of its cores, so that no second task shares it.

    A node keeps a part of its cores and memory for itself, so a task cannot request all of them.
    """
    if resource := gpu_resource(machine):
        return {"limits": {resource: machine.device.count}}
    requests = {} if machine.vcpus is None else {"cpu": f"{machine.vcpus * 500 + 1}m"}
    return {"requests": requests | {"memory": f"{math.ceil(machine.peak_memory_bytes / 2**20)}Mi"}}
