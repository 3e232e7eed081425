"""Makes Karpenter NodePools for the ranked instance types, and the Kubernetes Job that runs on them.

Karpenter launches the type of a NodePool with the lowest price per hour, which need not be the cheapest for the job. So
each type has a NodePool of its own, and their weights follow the ranking, the heaviest first
(karpenter.sh/docs/concepts/nodepools/#specweight; labels: karpenter.sh/docs/concepts/scheduling/#well-known-labels).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from advisor.launch.launchable import own_type, why_unknown
from advisor.launch.manifests import (
    ARCH_LABEL,
    REGION_LABEL,
    TYPE_LABEL,
    arch_of,
    gpu_resource,
    handing_over,
    known_gpus,
    manifest,
    toleration,
)
from advisor.records.launch_task import LaunchMachine, LaunchTask

_NODE_CLASSES: Mapping[str, Mapping[str, str]] = {
    "aws": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
    "azure": {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default"},
}
"""Objects with the configuration of nodes (karpenter.sh/docs/concepts/nodeclasses/, and
learn.microsoft.com/azure/aks/node-auto-provisioning)."""
PROVIDERS = frozenset(_NODE_CLASSES)
GPU_NAMES: Mapping[str, str] = {}
"""Karpenter selects instance types, so it needs no names of GPUs."""
_TASK_LABEL = "device-advisor/task"
_MOST_WEIGHT = 100
_MOST_POOLS = 10


def command(task: LaunchTask) -> str:
    """Return the command that runs the file, without its name."""
    return "kubectl apply -f"


def why_not(machine: LaunchMachine) -> str:
    """Return why Karpenter cannot launch the instance, or "" if it can."""
    return why_unknown(machine, providers=PROVIDERS, gpu_names=known_gpus(machine))


def task_values(task: LaunchTask) -> dict[str, Any]:
    """Return the keys and values of the manifest."""
    pools = [_node_pool(task, machine, place=place) for place, machine in enumerate(_ranked(task))]
    resource = gpu_resource(task.machine)
    return manifest(
        task,
        selector={_TASK_LABEL: task.name},
        tolerations=[toleration(_TASK_LABEL, task.name), *([toleration(resource)] if resource else [])],
        annotations={"karpenter.sh/do-not-disrupt": "true"},
        before=pools,
    )


def comments(task: LaunchTask) -> Iterator[str]:
    """Yield notes on the node class, the order of the types, and when nodes end."""
    node_class = _NODE_CLASSES[task.machine.provider]
    yield (
        f"Needs Karpenter in a cluster in {task.machine.region} whose {node_class['kind']} is named "
        f"{node_class['name']}; otherwise change nodeClassRef."
    )
    if len(types := [own_type(machine) for machine in _ranked(task)]) > 1:
        yield f"Instance types, the best first: {', '.join(map(str, types))}. If one is sold out, the next is tried."
    yield f"A node ends after {task.idle_minutes} idle minutes, with its disk: let the script save results elsewhere."
    yield from handing_over(task)


def _ranked(task: LaunchTask) -> tuple[LaunchMachine, ...]:
    """Return the machines by rank, without those that do not hold exactly one pod of the task."""
    resource = gpu_resource(task.machine)
    same = [machine for machine in task.alternatives if gpu_resource(machine) == resource and _holds_one(task, machine)]
    return (task.machine, *same)[:_MOST_POOLS]


def _holds_one(task: LaunchTask, machine: LaunchMachine) -> bool:
    """Return whether one pod fits: of a CPU it requests more than half of the vCPUs of the task's machine.

    If there are several pods, two must not share a larger machine.
    """
    wanted, found = task.machine.vcpus, machine.vcpus
    if gpu_resource(machine) or wanted is None or found is None:
        return True
    is_alone = (task.machine.instance_count if task.port is None else task.replica_count) == 1
    return found * 2 > wanted and (is_alone or found <= wanted)


def _node_pool(task: LaunchTask, machine: LaunchMachine, *, place: int) -> dict[str, Any]:
    instance_type = own_type(machine) or ""
    wanted = {
        TYPE_LABEL: instance_type,
        "karpenter.sh/capacity-type": "spot" if machine.price_kind == "spot" else "on-demand",
        ARCH_LABEL: arch_of(machine),
        REGION_LABEL: machine.region,
    }
    node_count = machine.instance_count if task.port is None else task.replica_count
    resource = gpu_resource(machine)
    limits = {resource: machine.device.count * node_count} if resource else {"cpu": (machine.vcpus or 1) * node_count}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": f"{task.name}-{place + 1}"},
        "spec": {
            "weight": _MOST_WEIGHT - place,
            "limits": limits,
            "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": f"{task.idle_minutes}m"},
            "template": {
                "metadata": {"labels": {_TASK_LABEL: task.name}},
                "spec": {
                    "nodeClassRef": dict(_NODE_CLASSES[machine.provider]),
                    "requirements": [
                        {"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()
                    ],
                    "taints": [{"key": _TASK_LABEL, "value": task.name, "effect": "NoSchedule"}],
                },
            },
        },
    }
