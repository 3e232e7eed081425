"""Makes a Kubernetes Job (with --requests-per-day a Deployment and a Service) for a node pool of the best instance.

On EKS and AKS the instance type determines the GPU. On GKE a GPU is attached to a machine type, so the node's
accelerator label is selected too. Sources of labels and taints:
docs.cloud.google.com/kubernetes-engine/docs/how-to/gpus and .../arm-on-gke and .../spot-vms;
docs.aws.amazon.com/eks/latest/userguide/managed-node-groups.html;
learn.microsoft.com/azure/aks/use-labels, .../spot-node-pool and .../gpu-cluster.
"""

from collections.abc import Iterator
from typing import Any

from advisor.launch.launchable import TYPED_PROVIDERS, own_type, why_unknown
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

PROVIDERS = TYPED_PROVIDERS
"""The clouds whose Kubernetes services (EKS, AKS, GKE) label a node with its instance type."""
GPU_NAMES = {
    "a100-sxm4-40gb": "nvidia-tesla-a100", "a100-sxm4-80gb": "nvidia-a100-80gb", "b200": "nvidia-b200",
    "h100-sxm5-80gb": "nvidia-h100-80gb", "h200-sxm-141gb": "nvidia-h200-141gb", "l4": "nvidia-l4",
    "p100-pcie-16gb": "nvidia-tesla-p100", "p4": "nvidia-tesla-p4",
    "rtx-pro-6000-blackwell-server": "nvidia-rtx-pro-6000", "t4": "nvidia-tesla-t4",
    "v100-sxm2-16gb": "nvidia-tesla-v100",
}  # fmt: skip
"""Values of GKE's accelerator label: Compute Engine's names of the GPUs."""
_SERVICES = {"aws": "EKS", "azure": "AKS", "gcp": "GKE"}
_GKE_GPU = "cloud.google.com/gke-accelerator"
_GKE_MEGA = ("a3-megagpu-", "nvidia-h100-mega-80gb")
"""The prefix of the machine types whose H100 has another name, and that name."""
_SPOT_LABELS = {
    "aws": ("eks.amazonaws.com/capacityType", "SPOT"),
    "azure": ("kubernetes.azure.com/scalesetpriority", "spot"),
    "gcp": ("cloud.google.com/gke-spot", "true"),
}
_ON_DEMAND_LABELS = {"aws": ("eks.amazonaws.com/capacityType", "ON_DEMAND")}
"""AKS and GKE label spot nodes only."""
_TAINTED_SPOT = frozenset({"azure", "gcp"})
"""AKS taints spot nodes with their label, and Google advises doing so."""


def command(task: LaunchTask) -> str:
    """Return the command that runs the file, without its name."""
    return "kubectl apply -f"


def why_not(machine: LaunchMachine) -> str:
    """Return why no managed cluster has such a node, or "" if one can."""
    gpu_names = GPU_NAMES if machine.provider == "gcp" else known_gpus(machine)
    return why_unknown(machine, providers=PROVIDERS, gpu_names=gpu_names)


def task_values(task: LaunchTask) -> dict[str, Any]:
    """Return the keys and values of the manifest."""
    return manifest(task, selector=_selector(task.machine), tolerations=[*_tolerations(task.machine)])


def comments(task: LaunchTask) -> Iterator[str]:
    """Yield notes on the cluster, the nodes and the objects that the file needs."""
    machine = task.machine
    yield (
        f"Needs {_SERVICES[machine.provider]} in {machine.region} with a node pool of {own_type(machine)}, "
        "ideally one that scales to zero: a node is billed until the pool removes it. Without such a node, the pods "
        "stay pending."
    )
    if machine.device.kind == "gpu":
        yield f"The nodes need the GPU's driver and its device plugin, which offers {gpu_resource(machine)}."
    yield from handing_over(task)


def _selector(machine: LaunchMachine) -> dict[str, str]:
    spot = (_SPOT_LABELS if machine.price_kind == "spot" else _ON_DEMAND_LABELS).get(machine.provider)
    return {
        TYPE_LABEL: own_type(machine) or "",
        REGION_LABEL: machine.region,
        ARCH_LABEL: arch_of(machine),
        **({_GKE_GPU: _gke_gpu(machine)} if machine.provider == "gcp" and machine.device.kind == "gpu" else {}),
        **({spot[0]: spot[1]} if spot else {}),
    }


def _gke_gpu(machine: LaunchMachine) -> str:
    prefix, name = _GKE_MEGA
    return name if machine.instance.startswith(prefix) else GPU_NAMES[machine.device.id]


def _tolerations(machine: LaunchMachine) -> Iterator[dict[str, str]]:
    if resource := gpu_resource(machine):
        yield toleration(resource)
        if machine.provider == "azure":
            yield toleration("sku", "gpu")
    if machine.architecture == "arm":
        yield toleration(ARCH_LABEL, "arm64")
    if machine.price_kind == "spot" and machine.provider in _TAINTED_SPOT:
        yield toleration(*_SPOT_LABELS[machine.provider])
