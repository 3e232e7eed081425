"""Manifests for Kubernetes and Karpenter; the schemas of Kubernetes' own API check them."""

import math
from dataclasses import replace
from typing import Any

import kubernetes_validate
import pytest

from advisor.catalog.overlay import load_catalog
from advisor.catalog.strict_yaml import parse_documents
from advisor.catalog.yaml_text import yaml_text
from advisor.launch.engines import engine_module, karpenter, kubernetes
from advisor.launch.manifests import gpu_resource
from advisor.records.answer import Quote
from advisor.records.launch_task import LaunchTask
from advisor.report.quote_columns import instance_label
from tests.launch.toys import A10G, GOOGLE_T4, GRAVITON, LAMBDA_A10, MI300X, TWO_MACHINES, machine_of, quote, task

API = "1.31"
AZURE_T4 = quote("Standard_NC4as_T4_v3", device="t4", provider="azure", region="eastus", price_kind="spot")
LAUNCHABLE = [A10G, GRAVITON, AZURE_T4, MI300X, TWO_MACHINES]
SERVED = {"port": 8000, "replica_count": 3}


def objects(of: LaunchTask, engine: str = "kubernetes") -> list[Any]:
    """The objects of the file as a reader of YAML finds them, each checked against the schema of its kind."""
    text = yaml_text(engine_module(engine).task_values(of), comments=["a\nkind: Other"])
    (document,) = parse_documents(text, label="task.yaml")
    values: Any = document.values
    found = list(values["items"]) if values["kind"] == "List" else [values]
    for one in found:
        if one["kind"] != "NodePool":  # not of Kubernetes itself
            kubernetes_validate.validate(one, API, strict=True)
    return found


def pod_of(one: Any) -> Any:
    return one["spec"]["template"]["spec"]


def shell_of(one: Any) -> str:
    (container,) = pod_of(one)["containers"]
    (script,) = container["args"]
    return str(script)


def test_the_schemas_refuse_what_is_wrong() -> None:
    (job,) = objects(task())
    pod_of(job)["containers"][0]["resource"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, API, strict=True)


@pytest.mark.parametrize("engine", ["kubernetes", "karpenter"])
@pytest.mark.parametrize("of", LAUNCHABLE, ids=instance_label)
def test_every_file_is_valid(engine: str, of: Quote) -> None:
    assert engine_module(engine).why_not(machine_of(of)) == ""
    for served in ({}, SERVED):
        variables = ("HF_TOKEN",)
        assert objects(task(of, variables=variables, max_duration_s=5400.5, image="own/train:1", **served), engine)


def test_a_job_is_on_a_node_of_its_type_with_all_its_gpus_and_ends_when_it_fails() -> None:
    (job,) = objects(task(max_duration_s=5400.5))
    assert (job["kind"], job["metadata"]) == ("Job", {"name": "train"})
    assert (job["spec"]["backoffLimit"], job["spec"]["activeDeadlineSeconds"]) == (0, 5401)
    pod = pod_of(job)
    assert pod["restartPolicy"] == "Never"
    assert pod["nodeSelector"] == {
        "node.kubernetes.io/instance-type": "g5.xlarge",
        "topology.kubernetes.io/region": "us-east-1",
        "kubernetes.io/arch": "amd64",
        "eks.amazonaws.com/capacityType": "ON_DEMAND",
    }
    assert pod["tolerations"] == [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    (container,) = pod["containers"]
    assert (container["image"], container["resources"]) == ("python:3.11", {"limits": {"nvidia.com/gpu": 1}})
    assert shell_of(job) == (
        "set -e\nmkdir -p /workflow\ncp -L /configmap/* /workflow\ncd /workflow\npip install torch\npython train.py\n"
    )


def test_a_part_of_a_machines_gpus_takes_the_machine() -> None:
    four_of_eight = replace(TWO_MACHINES, instance_count=1, gpus_used=4)
    (job,) = objects(task(four_of_eight))
    assert pod_of(job)["containers"][0]["resources"] == {"limits": {"nvidia.com/gpu": 8}}
    assert "--nproc-per-node=4 train.py" in shell_of(job)


def test_a_cpu_job_requests_its_memory_and_more_than_half_of_the_cores_of_an_arm_node() -> None:
    (job,) = objects(task(replace(GRAVITON, vcpus=4, peak_memory_bytes=2.5 * 2**20)))
    pod = pod_of(job)
    # Two jobs of 2,001 of 4,000 millicores do not fit; 2.5 MiB take 3 whole ones.
    assert pod["containers"][0]["resources"] == {"requests": {"cpu": "2001m", "memory": "3Mi"}}
    assert pod["nodeSelector"]["kubernetes.io/arch"] == "arm64"
    assert {"key": "kubernetes.io/arch", "operator": "Equal", "value": "arm64", "effect": "NoSchedule"} in pod[
        "tolerations"
    ]
    unknown = objects(task(replace(GRAVITON, vcpus=None, peak_memory_bytes=1.0)))
    assert pod_of(unknown[0])["containers"][0]["resources"] == {"requests": {"memory": "1Mi"}}


def test_google_is_asked_for_the_attached_gpu_and_for_spot_nodes() -> None:
    (job,) = objects(task(replace(GOOGLE_T4, price_kind="spot")))
    selector = pod_of(job)["nodeSelector"]
    assert selector["node.kubernetes.io/instance-type"] == "n1-standard-4"
    assert selector["cloud.google.com/gke-accelerator"] == "nvidia-tesla-t4"
    assert selector["cloud.google.com/gke-spot"] == "true"
    keys = [one["key"] for one in pod_of(job)["tolerations"]]
    assert keys == ["nvidia.com/gpu", "cloud.google.com/gke-spot"]
    mega = quote("a3-megagpu-8g", device="h100-sxm5-80gb", provider="gcp", region="us-central1")
    (job,) = objects(task(mega))
    assert pod_of(job)["nodeSelector"]["cloud.google.com/gke-accelerator"] == "nvidia-h100-mega-80gb"


def test_spot_nodes_of_azure_are_tainted_with_their_label() -> None:
    pod = pod_of(objects(task(AZURE_T4))[0])
    assert pod["nodeSelector"]["kubernetes.azure.com/scalesetpriority"] == "spot"
    assert {"key": "sku", "operator": "Equal", "value": "gpu", "effect": "NoSchedule"} in pod["tolerations"]
    key = "kubernetes.azure.com/scalesetpriority"
    assert {"key": key, "operator": "Equal", "value": "spot", "effect": "NoSchedule"} in pod["tolerations"]


def test_a_gpu_is_the_resource_of_its_vendor() -> None:
    for gpu in load_catalog().gpus.values():
        machine = machine_of(replace(A10G, device=replace(A10G.device, id=gpu.id)))
        has_plugin = gpu.vendor in ("AMD", "NVIDIA")
        assert gpu_resource(machine) == (f"{gpu.vendor.lower()}.com/gpu" if has_plugin else ""), gpu.id
        assert bool(kubernetes.why_not(machine)) == bool(karpenter.why_not(machine)) == (not has_plugin), gpu.id
    pod = pod_of(objects(task(MI300X))[0])
    assert pod["containers"][0]["resources"] == {"limits": {"amd.com/gpu": 8}}
    assert "ROCm" in " ".join(kubernetes.comments(task(MI300X)))


def test_every_gpu_of_google_has_a_name() -> None:
    catalog = load_catalog()
    gpus = {offer.gpu for offer in catalog.offers if offer.provider == "gcp" and offer.gpu}
    gpus -= {name for name in gpus if catalog.gpus[name].part_of}  # left out with the reason
    assert gpus == set(kubernetes.GPU_NAMES) & gpus


def test_several_machines_are_pods_that_reach_the_first_by_name() -> None:
    service, job = objects(task(TWO_MACHINES))
    assert (service["kind"], service["spec"]["clusterIP"]) == ("Service", "None")
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 2, 2)
    assert pod_of(job)["subdomain"] == service["metadata"]["name"] == "train"
    assert "--node-rank=$JOB_COMPLETION_INDEX --master-addr=train-0.train --master-port=29500 train.py" in shell_of(job)


def test_a_service_is_a_deployment_that_is_ready_when_it_answers() -> None:
    deployment, service = objects(task(**SERVED))
    assert (deployment["kind"], deployment["spec"]["replicas"]) == ("Deployment", 3)
    (container,) = pod_of(deployment)["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/", "port": 8000}
    assert service["spec"]["ports"] == [{"port": 8000}]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"] == deployment["spec"]["selector"]["matchLabels"] == labels


def test_an_image_has_the_folder_in_place_of_a_config_map() -> None:
    (job,) = objects(task(image="own/train:1"))
    assert pod_of(job)["containers"][0]["image"] == "own/train:1"
    assert "configmap" not in yaml_text(kubernetes.task_values(task(image="own/train:1"))).lower()
    assert "configmap" in " ".join(kubernetes.comments(task()))
    assert "configmap" not in " ".join(kubernetes.comments(task(image="own/train:1")))


def test_variables_come_from_a_secret() -> None:
    of = task(variables=("HF_TOKEN",))
    reference = {"secretKeyRef": {"name": "train", "key": "HF_TOKEN"}}
    assert pod_of(objects(of)[0])["containers"][0]["env"] == [{"name": "HF_TOKEN", "valueFrom": reference}]
    assert '--from-literal=HF_TOKEN="$HF_TOKEN"' in " ".join(kubernetes.comments(of))


def test_kubernetes_expands_nothing_in_the_script() -> None:
    """`$$` in an argument becomes `$`, and `$(NAME)` the variable (third_party/forked/golang/expansion there)."""
    (job,) = objects(task(script="train.py '$(HOME) $$(HOME) $HOME $$'"))
    assert "'$$(HOME) $$$$(HOME) $HOME $$$'" in shell_of(job)
    expanded = shell_of(job).replace("$$", "\0").replace("\0", "$")
    assert "train.py '$(HOME) $$(HOME) $HOME $$'" in expanded


def test_other_clouds_have_no_such_cluster() -> None:
    assert "lambda" in kubernetes.why_not(machine_of(LAMBDA_A10))
    assert "gcp" in karpenter.why_not(machine_of(GOOGLE_T4))


RANKED = (machine_of(quote("g6.xlarge", device="l4")), machine_of(quote("g4dn.xlarge", device="t4", price_kind="spot")))


def test_karpenter_tries_the_types_in_the_order_of_the_ranking() -> None:
    *pools, job = objects(task(alternatives=RANKED), "karpenter")
    assert [pool["spec"]["weight"] for pool in pools] == [100, 99, 98]
    wanted = [{one["key"]: one["values"] for one in pool["spec"]["template"]["spec"]["requirements"]} for pool in pools]
    assert [one["node.kubernetes.io/instance-type"] for one in wanted] == [
        ["g5.xlarge"],
        ["g6.xlarge"],
        ["g4dn.xlarge"],
    ]
    assert wanted[0] == {
        "node.kubernetes.io/instance-type": ["g5.xlarge"],
        "karpenter.sh/capacity-type": ["on-demand"],
        "kubernetes.io/arch": ["amd64"],
        "topology.kubernetes.io/region": ["us-east-1"],
    }
    assert wanted[2]["karpenter.sh/capacity-type"] == ["spot"]
    assert len({pool["metadata"]["name"] for pool in pools}) == 3
    # The job runs on these nodes, and nothing else does.
    labels, taints = ([pool["spec"]["template"]["metadata"]["labels"] for pool in pools], [])
    for pool in pools:
        taints += pool["spec"]["template"]["spec"]["taints"]
    assert all(pod_of(job)["nodeSelector"] == one for one in labels)
    tolerated = {(one["key"], one.get("value")) for one in pod_of(job)["tolerations"]}
    assert all((one["key"], one["value"]) in tolerated for one in taints)


def test_a_type_that_cannot_hold_the_pod_is_no_alternative() -> None:
    """On 8 vCPUs the pod requests 4.001 CPUs; of several pods, two would share a node of 16."""

    def types(**changes: Any) -> list[str]:
        sized = {vcpus: machine_of(replace(GRAVITON, instance=f"c8g.{vcpus}", vcpus=vcpus)) for vcpus in (2, 4, 6, 16)}
        of = task(replace(GRAVITON, instance="c8g.8", vcpus=8), alternatives=tuple(sized.values()), **changes)
        *pools, _ = objects(of, "karpenter") if "port" not in changes else objects(of, "karpenter")[:-1]
        wanted = [pool["spec"]["template"]["spec"]["requirements"][0]["values"] for pool in pools]
        return [one for (one,) in wanted]

    assert types() == ["c8g.8", "c8g.6", "c8g.16"]
    assert types(**SERVED) == ["c8g.8", "c8g.6"]


def test_a_node_pool_has_the_nodes_of_one_task_and_ends_them_when_they_are_idle() -> None:
    pool = objects(task(TWO_MACHINES), "karpenter")[0]
    assert pool["spec"]["limits"] == {"nvidia.com/gpu": 16}
    assert pool["spec"]["disruption"] == {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "10m"}
    served = objects(task(replace(GRAVITON, vcpus=4), **SERVED), "karpenter")[0]
    assert served["spec"]["limits"] == {"cpu": 12}
    node_class = objects(task(AZURE_T4), "karpenter")[0]["spec"]["template"]["spec"]["nodeClassRef"]
    assert node_class == {"group": "karpenter.azure.com", "kind": "AKSNodeClass", "name": "default"}


def test_a_gpu_of_another_vendor_is_no_alternative() -> None:
    found = objects(task(alternatives=(machine_of(MI300X), *RANKED)), "karpenter")
    assert len(found) == 1 + 1 + len(RANKED)
    many = objects(task(alternatives=RANKED * 10), "karpenter")
    assert len(many) == 10 + 1
    assert math.isclose(many[9]["spec"]["weight"], 91)
