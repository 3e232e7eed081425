"""Properties that all engines share; their files are compared with the engines' own packages if installed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from advisor.catalog.find import find_devices
from advisor.catalog.overlay import load_catalog
from advisor.catalog.yaml_text import yaml_text
from advisor.launch.engines import dstack, engine_module, engine_names, skypilot
from advisor.records.answer import Quote
from advisor.report.quote_columns import instance_label
from tests.launch.toys import (
    A10G,
    FOUR_GPUS,
    GOOGLE_T4,
    GRAVITON,
    LAMBDA_A10,
    SALAD,
    TWO_MACHINES,
    machine_of,
    quote,
    task,
)

LAUNCHABLE = [A10G, GRAVITON, GOOGLE_T4, LAMBDA_A10, FOUR_GPUS, TWO_MACHINES]
RENTING = ("skypilot", "dstack")
"""Engines that rent machines themselves, also from GPU clouds; the others use a cluster that exists already."""


@pytest.mark.parametrize("engine", engine_names())
def test_every_engine_has_what_the_room_says(engine: str) -> None:
    module = engine_module(engine)
    assert module.command(task()) in ("sky launch", "dstack apply -f", "kubectl apply -f")
    assert "train" in yaml_text(module.task_values(task()))
    assert " ".join(module.comments(task()))


@pytest.mark.parametrize("engine", RENTING)
def test_a_renting_engine_says_when_it_ends_an_idle_machine(engine: str) -> None:
    assert "10 idle minutes" in " ".join(engine_module(engine).comments(task()))


@pytest.mark.parametrize("engine", RENTING)
@pytest.mark.parametrize("of", LAUNCHABLE, ids=instance_label)
def test_what_an_engine_knows_it_can_launch(engine: str, of: Quote) -> None:
    assert engine_module(engine).why_not(machine_of(of)) == ""


@pytest.mark.parametrize("engine", engine_names())
@pytest.mark.parametrize(
    ("of", "why"),
    [
        (SALAD, "it does not support salad"),
        (quote("gpu-box", device="t4", provider="own", tier="owned"), "it does not support own"),
    ],
)
def test_no_engine_knows_a_marketplace_of_others_or_an_own_machine(engine: str, of: Quote, why: str) -> None:
    assert why in engine_module(engine).why_not(machine_of(of))


@pytest.mark.parametrize("engine", RENTING)
@pytest.mark.parametrize(
    ("of", "why"),
    [
        (quote("RTX 4090", device="rtx-4090", provider="runpod", tier="marketplace"), "hosts of a marketplace differ"),
        (quote("g5g.xlarge", device="t4g"), "it has no name for the T4G"),
        (quote("cpu_4x", device="xeon", kind="cpu", provider="lambda", tier="neocloud"), "by GPU only"),
    ],
)
def test_what_it_does_not_know_it_says(engine: str, of: Quote, why: str) -> None:
    assert why in engine_module(engine).why_not(machine_of(of))


@pytest.mark.parametrize("engine", engine_names())
def test_the_names_are_of_gpus_and_providers_that_we_have(engine: str) -> None:
    catalog, module = load_catalog(), engine_module(engine)
    assert {offer.provider for offer in catalog.offers} >= module.PROVIDERS
    for identifier in module.GPU_NAMES:
        assert [device.id for device in find_devices(catalog, identifier)] == [identifier]


def test_skypilot_is_told_cloud_region_type_and_gpu() -> None:
    assert skypilot.task_values(task(max_usd_per_hour=1.5)) == {
        "name": "train",
        "workdir": ".",
        "resources": {
            "infra": "aws/us-east-1",
            "instance_type": "g5.xlarge",
            "accelerators": "A10G:1",
            "use_spot": False,
            "disk_size": 100,
            "max_hourly_cost": 1.5,
            "autostop": {"idle_minutes": 10, "down": False},
        },
        "setup": "pip install torch\n",
        "run": "python train.py\n",
    }


def test_skypilot_stops_what_can_be_stopped_and_shuts_the_rest_down() -> None:
    spot = quote("g5.xlarge", device="a10g", price_kind="spot")
    down = [skypilot.task_values(task(of))["resources"]["autostop"]["down"] for of in (A10G, spot, LAMBDA_A10)]
    assert down == [False, True, True]
    assert "disk included" in next(skypilot.comments(task(spot)))
    assert "billed until `sky down`" in next(skypilot.comments(task()))


def test_a_machine_that_has_no_name_of_its_own_is_asked_for_by_its_gpu() -> None:
    resources = skypilot.task_values(task(LAMBDA_A10))["resources"]
    assert (resources["infra"], resources["accelerators"]) == ("lambda", "A10:1")
    assert "instance_type" not in resources
    values = dstack.task_values(task(LAMBDA_A10))
    assert (values["backends"], values["resources"]["gpu"]) == (["lambda"], "A10:1")
    assert not {"regions", "instance_types"} & values.keys()


def test_a_cloud_may_have_names_of_gpus_of_its_own() -> None:
    h100 = quote("H100 [secure]", device="h100-sxm5-80gb", provider="runpod", tier="neocloud", region="global")
    assert skypilot.task_values(task(h100))["resources"]["accelerators"] == "H100-SXM:1"


def test_google_has_its_gpus_beside_the_machine() -> None:
    resources = skypilot.task_values(task(GOOGLE_T4))["resources"]
    assert (resources["instance_type"], resources["accelerators"]) == ("n1-standard-4", "T4:1")
    assert dstack.task_values(task(GOOGLE_T4))["instance_types"] == ["n1-standard-4"]


def test_dstack_is_told_backend_region_type_gpu_and_when_to_end() -> None:
    # 5,401 s are 90 minutes and one second.
    assert dstack.task_values(task(max_duration_s=5401.0, max_usd_per_hour=1.5)) == {
        "type": "task",
        "name": "train",
        "python": "3.11",
        "working_dir": "/workflow",
        "files": [{"local_path": ".", "path": "/workflow"}],
        "commands": ["pip install torch", "python train.py"],
        "backends": ["aws"],
        "regions": ["us-east-1"],
        "instance_types": ["g5.xlarge"],
        "spot_policy": "on-demand",
        "resources": {"cpu": "1..", "memory": "0GB..", "gpu": "A10G:1", "disk": "100GB.."},
        "idle_duration": "10m",
        "max_duration": "91m",
        "max_price": 1.5,
    }


def test_a_machine_has_all_its_gpus_and_a_process_for_each_that_is_used() -> None:
    values = skypilot.task_values(task(FOUR_GPUS))
    assert values["resources"]["accelerators"] == "A10G:8"
    assert "num_nodes" not in values
    assert values["run"] == "torchrun --standalone --nproc-per-node=4 train.py\n"
    values = dstack.task_values(task(FOUR_GPUS))
    assert values["resources"]["gpu"] == "A10G:8"
    assert "nodes" not in values
    assert values["commands"][-1] == "torchrun --standalone --nproc-per-node=4 train.py"


def test_skypilot_starts_every_machine_with_its_rank_and_the_address_of_the_first() -> None:
    values = skypilot.task_values(task(TWO_MACHINES))
    # 16 GPUs on 2 machines are 8 processes on each.
    assert values["num_nodes"] == 2
    assert values["run"] == (
        "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$SKYPILOT_NODE_RANK "
        '--master-addr="$(echo "$SKYPILOT_NODE_IPS" | head -n1)" --master-port=29500 train.py\n'
    )


def test_dstack_starts_every_machine_with_its_rank_and_the_address_of_the_first() -> None:
    values = dstack.task_values(task(TWO_MACHINES))
    assert values["nodes"] == 2
    assert values["commands"][-1] == (
        "torchrun --nnodes=2 --nproc-per-node=8 --node-rank=$DSTACK_NODE_RANK "
        "--master-addr=$DSTACK_MASTER_NODE_IP --master-port=29500 train.py"
    )
    assert "placement: cluster" in next(dstack.comments(task(TWO_MACHINES)))


def test_dstack_is_told_of_arm_and_that_a_cpu_is_enough() -> None:
    resources = dstack.task_values(task(GRAVITON))["resources"]
    assert (resources["cpu"], resources["gpu"]) == ("arm:1..", 0)


# By the engines' own packages. They are large and need not be here: `pip install skypilot dstack`, into any environment
# whose interpreter is then named by ENGINES_PYTHON.

SKYPILOT_ROWS = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch
g5.xlarge,4.0,16.0,A10G,1.0,,1.006,0.4,us-east-1,us-east-1a,x86_64
g5.48xlarge,192.0,768.0,A10G,8.0,,16.288,6.0,us-east-1,us-east-1a,x86_64
g7e.2xlarge,8.0,64.0,RTXPRO6000,1.0,,3.36,1.3,us-east-1,us-east-1a,x86_64
c8g.xlarge,4.0,8.0,,,,0.16,0.06,us-east-1,us-east-1a,arm64
"""
"""In the shape of SkyPilot's own catalog, which it would fetch."""
LOAD_SKYPILOT = """
import json, sys, sky
task = sky.Task.from_yaml(sys.argv[1])
(resources,) = task.resources
stop = resources.autostop_config
print(json.dumps([str(resources.cloud), resources.region, resources.instance_type, resources.accelerators,
                  resources.use_spot, resources.disk_size, stop and stop.idle_minutes, stop and stop.down,
                  task.num_nodes]))
"""
LOAD_SKYPILOT_SERVICE = """
import json, sys, sky
from sky.serve.serve_utils import validate_service_task
task = sky.Task.from_yaml(sys.argv[1])
validate_service_task(task, pool=False)
(resources,) = task.resources
print(json.dumps([resources.instance_type, resources.accelerators, resources.ports, task.service.readiness_path,
                  task.service.min_replicas, resources.max_hourly_cost]))
"""
LOAD_DSTACK = """
import json, sys, yaml
from dstack._internal.core.models.configurations import parse_run_configuration
task = parse_run_configuration(yaml.safe_load(open(sys.argv[1])))
print(json.dumps([task.type, [backend.value for backend in task.backends], task.regions, task.instance_types,
                  task.spot_policy.value, task.resources.gpu.name, task.resources.gpu.count.max, task.idle_duration,
                  task.max_duration, task.commands[-1], task.nodes]))
"""
LOAD_DSTACK_SERVICE = """
import json, sys, yaml
from dstack._internal.core.models.configurations import parse_run_configuration
task = parse_run_configuration(yaml.safe_load(open(sys.argv[1])))
replicas = getattr(task.replicas, "max", task.replicas)
print(json.dumps([task.type, task.instance_types, task.port.container_port, replicas, task.max_price]))
"""
PYTHON = os.environ.get("ENGINES_PYTHON", sys.executable)
HOSTILE_SCRIPT = "train.py --name 'a: b # \"c\" {d} %s'"


def loaded(program: str, text: str, *, home: Path) -> Any:
    """Return the output of the program for the task file, with an empty home folder; skip without the package."""
    package = "sky" if "import json, sys, sky" in program else "dstack"
    if subprocess.run([PYTHON, "-c", f"import {package}"], check=False, capture_output=True).returncode:
        pytest.skip(f"{package} is not installed")
    catalog = home / ".sky" / "catalogs" / "v8" / "aws" / "vms.csv"
    catalog.parent.mkdir(parents=True)
    catalog.write_text(SKYPILOT_ROWS)
    file = home / "task.yaml"
    file.write_text(text)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HOME": str(home)}
    done = subprocess.run([PYTHON, "-c", program, str(file)], env=env, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "kept"),
    [
        (A10G, ["AWS", "us-east-1", "g5.xlarge", {"A10G": 1}, False, 100, 10, False, 1]),
        (quote("g5.xlarge", device="a10g", price_kind="spot"),
         ["AWS", "us-east-1", "g5.xlarge", {"A10G": 1}, True, 100, 10, True, 1]),
        (GRAVITON, ["AWS", "us-east-1", "c8g.xlarge", None, False, 100, 10, False, 1]),
        (TWO_MACHINES, ["AWS", "us-east-1", "g5.48xlarge", {"A10G": 8}, False, 100, 10, False, 2]),
        (quote("g7e.2xlarge", device="rtx-pro-6000-blackwell-server"),
         ["AWS", "us-east-1", "g7e.2xlarge", {"RTXPRO6000": 1}, False, 100, 10, False, 1]),
    ],
)  # fmt: skip
def test_skypilot_reads_what_was_meant(of: Quote, kept: list[Any], tmp_path: Path) -> None:
    text = yaml_text(skypilot.task_values(task(of, script=HOSTILE_SCRIPT)), comments=["a\nname: other"])
    assert loaded(LOAD_SKYPILOT, text, home=tmp_path) == kept


@pytest.mark.slow
@pytest.mark.parametrize("of", LAUNCHABLE, ids=instance_label)
def test_dstack_reads_what_was_meant(of: Quote, tmp_path: Path) -> None:
    values = dstack.task_values(task(of, script=HOSTILE_SCRIPT, max_duration_s=5400.0))
    assert values["commands"][-1].endswith(HOSTILE_SCRIPT)
    is_gpu = of.device.kind == "gpu"
    assert loaded(LOAD_DSTACK, yaml_text(values, comments=["a\nname: other"]), home=tmp_path) == [
        "task", [of.provider], values.get("regions"), values.get("instance_types"), "on-demand",
        [dstack.GPU_NAMES[of.device.id].partition(":")[0]] if is_gpu else None, of.device.count if is_gpu else 0,
        600, 5400, values["commands"][-1], of.instance_count if of.instance_count > 1 else None,
    ]  # fmt: skip


@pytest.mark.slow
def test_both_read_the_service_that_was_meant(tmp_path: Path) -> None:
    served = task(A10G, port=8000, replica_count=3, max_usd_per_hour=2.0, variables=("HF_TOKEN",))
    sky_file, dstack_file = (yaml_text(engine.task_values(served), comments=[]) for engine in (skypilot, dstack))
    found = loaded(LOAD_DSTACK_SERVICE, dstack_file, home=tmp_path / "dstack")
    assert found == ["service", ["g5.xlarge"], 8000, 3, 2.0]
    found = loaded(LOAD_SKYPILOT_SERVICE, sky_file, home=tmp_path / "sky")
    assert found == ["g5.xlarge", {"A10G": 1}, ["8000"], "/", 3, 2.0]
