"""From a recommendation to the task file of its best instance."""

from dataclasses import replace
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from advisor.answers.launch_file import check_launchable, task_file
from advisor.catalog.strict_yaml import parse_documents
from advisor.errors import NothingFitsError, UsageError
from advisor.records.answer import JobLimits, Quote
from advisor.records.launch_task import TaskFile
from advisor.records.script import Script, ScriptReads
from tests.launch.toys import A10G, GPUS, GRAVITON, LAMBDA_A10, SALAD, TWO_MACHINES, quote
from tests.report.toys import recommendation
from tests.says import assert_says

TORCH_HERE = f"torch=={version('torch').partition('+')[0]}"
PLAIN = Script(gpu_precision="amp-bf16", cpu_precision="fp32")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a script in it."""
    (tmp_path / "my train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def emitted(
    *quotes: Quote,
    engine: str = "skypilot",
    args: tuple[str, ...] = (),
    file: Path | None = None,
    captured: Script | None = None,
    **job: Any,
) -> TaskFile:
    answer = recommendation(*quotes)
    return task_file(
        replace(answer, job=replace(answer.job, **job)),
        engine=engine, gpus=GPUS, source="my train.py", script_args=args, idle_minutes=15, port=8000, file=file,
        today=date(2026, 11, 2), captured=captured,
    )  # fmt: skip


def values(task: TaskFile) -> Any:
    (document,) = parse_documents(task.text, label="task.yaml")
    return document.values


def test_the_file_says_what_it_runs_where_for_how_long_and_for_how_much() -> None:
    text = emitted(A10G, args=("--batch", "64"), assumed=False, samples=500).text
    comments = "\n".join(line.removeprefix("#") for line in text.splitlines() if line.startswith("#"))
    assert_says(
        comments,
        *("2026-11-02", "`sky launch FILE`", "aws g5.xlarge", "1x A10G", "us-east-1", "30 min [27-33]", "batch 64"),
        *("amp-bf16", "eager", "$0.42", "500 samples", "on-demand", "compute", "2025-11-02"),
        *("15 idle minutes", "disk", "billed", "`sky down`"),
    )
    assert "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#")) == (
        "name: my-train\n"
        'workdir: "."\n'
        "resources:\n"
        "  infra: aws/us-east-1\n"
        "  instance_type: g5.xlarge\n"
        '  accelerators: "A10G:1"\n'
        "  use_spot: false\n"
        "  disk_size: 100\n"
        "  autostop: {idle_minutes: 15, down: false}\n"
        "setup: |\n"
        f"  pip install {TORCH_HERE}\n"
        "run: |\n"
        "  python 'my train.py' --batch 64\n"
    )


def test_what_the_shell_would_take_apart_is_quoted() -> None:
    task = emitted(A10G, args=("a b", "$HOME", "it's", "x\ny"))
    assert values(task)["run"] == "python 'my train.py' 'a b' '$HOME' 'it'\"'\"'s' 'x\ny'\n"


def test_requirements_of_the_folder_are_installed_after_torch(folder: Path) -> None:
    (folder / "requirements.txt").write_text("timm\n")
    index = "https://download.pytorch.org/whl/cpu"
    assert values(emitted(GRAVITON))["setup"] == (
        f"pip install {TORCH_HERE} --index-url {index}\npip install -r requirements.txt\n"
    )


def test_where_the_engine_cannot_launch_the_best_the_next_is_taken_and_that_is_said() -> None:
    task = emitted(SALAD, LAMBDA_A10, A10G)
    assert values(task)["resources"]["infra"] == "lambda"
    note, _ = task.notes
    assert_says(
        note, "skypilot", "salad RTX 3090 24GB PCIe", "salad", "2", "lambda NVIDIA A10 24GB PCIe", "$0.42", "$0.42"
    )
    assert "lambda" in task.text.partition("name:")[0]  # the comments on top
    assert emitted(A10G, SALAD, captured=PLAIN).notes == ()


def test_where_it_can_launch_none_that_is_an_error_which_names_its_providers() -> None:
    with pytest.raises(NothingFitsError, match=r"dstack .*\b1\b.*\bsalad") as caught:
        emitted(SALAD, engine="dstack")
    assert caught.value.hint.startswith("--provider aws,azure,digitalocean")
    with pytest.raises(NothingFitsError, match="no instance"):
        emitted()


def test_a_task_ends_at_the_deadline_or_an_hour_after_the_upper_end_of_its_prediction() -> None:
    # 33 min and an hour are 93 min.
    assert values(emitted(A10G, engine="dstack", assumed=False))["max_duration"] == "93m"
    two_hours = JobLimits(deadline_s=7200.0)
    assert values(emitted(A10G, engine="dstack", limits=two_hours))["max_duration"] == "120m"
    unknown = emitted(A10G, engine="dstack", assumed=True)
    assert "max_duration" not in values(unknown)


def test_a_step_on_several_machines_is_started_on_all_and_each_may_cost_its_part() -> None:
    task = emitted(TWO_MACHINES, args=("--lr", "0.1"), mode="training", limits=JobLimits(max_usd_per_hour=40.0))
    assert values(task)["num_nodes"] == 2
    assert values(task)["run"].endswith("'my train.py' --lr 0.1\n")
    # 40 dollars an hour for both are 20 for each.
    assert values(task)["resources"]["max_hourly_cost"] == 20.0
    talk = task.text.replace("\n#  ", "")
    assert "aws 2x g5.48xlarge (8x A10G) in us-east-1" in talk
    assert_says(talk, "FSDP", "16 GPUs", "90 %")
    _, of_processes, of_network = task.notes
    assert_says(of_processes, "torchrun", "16", "torch.distributed")
    assert_says(of_network, "EFA", "aws-ofi-nccl", "TCP")


def test_the_folder_that_is_copied_is_seen_from_the_task_file(folder: Path) -> None:
    (folder / "tasks").mkdir()
    task = emitted(A10G, engine="dstack", file=Path("tasks/train.yaml"))
    assert values(task)["files"] == [{"local_path": "..", "path": "/workflow"}]


@pytest.mark.parametrize(("script", "name"), [("2d.py", "job-2d"), ("É_Net.py", "net"), ("x" * 60 + ".py", "x" * 40)])
def test_the_name_is_one_that_engines_take(folder: Path, script: str, name: str) -> None:
    (folder / script).write_text("")
    task = task_file(
        recommendation(A10G), engine="dstack", gpus=GPUS, source=script, script_args=(), idle_minutes=1, port=8000,
        file=None, today=date(2026, 11, 2),
    )  # fmt: skip
    assert values(task)["name"] == name


def test_karpenter_is_told_the_next_types_that_run_the_same_commands_there() -> None:
    g6, g4dn = quote("g6.xlarge", device="l4"), quote("g4dn.xlarge", device="t4")
    elsewhere = replace(quote("p3.2xlarge", device="v100-sxm2-16gb"), region="eu-west-1")
    doubtful = replace(quote("g5.2xlarge", device="a10g"), may_lead=False)
    task = emitted(A10G, GRAVITON, g6, elsewhere, TWO_MACHINES, doubtful, g4dn, A10G, engine="karpenter")
    pools = [item for item in values(task)["items"] if item["kind"] == "NodePool"]
    types = [pool["spec"]["template"]["spec"]["requirements"][0]["values"] for pool in pools]
    assert types == [["g5.xlarge"], ["g6.xlarge"], ["g4dn.xlarge"]]
    assert task.command == "kubectl apply -f"
    assert "g5.xlarge, g6.xlarge, g4dn.xlarge" in task.text.replace("\n#  ", "")


def test_an_image_has_the_folder_in_a_cluster(folder: Path) -> None:
    task = task_file(
        recommendation(A10G), engine="kubernetes", gpus=GPUS, source="my train.py", script_args=(), idle_minutes=1,
        port=8000, file=None, today=date(2026, 11, 2), captured=PLAIN, image="own/train:2",
    )  # fmt: skip
    assert values(task)["spec"]["template"]["spec"]["containers"][0]["image"] == "own/train:2"


def test_an_instance_with_a_hostile_name_stays_a_name() -> None:
    task = emitted(quote("g5\nrun: rm -rf /", device="a10g"))
    assert values(task)["resources"]["instance_type"] == "g5\nrun: rm -rf /"
    assert values(task)["run"] == "python 'my train.py'\n"


def test_a_commitment_is_launched_on_demand_and_must_be_held() -> None:
    task = emitted(quote("g5.xlarge", device="a10g", price_kind="commit_1y"))
    assert values(task)["resources"]["use_spot"] is False
    assert_says(task.text, "commitment")


SERVICE = replace(A10G, instance_count=3)


def test_a_service_has_a_replica_for_each_instance_and_never_stops() -> None:
    sky = values(emitted(SERVICE, requests_per_day=1000))
    assert sky["service"] == {"readiness_probe": "/", "replicas": 3}
    assert sky["resources"]["ports"] == 8000
    assert not {"num_nodes", "autostop"} & {*sky, *sky["resources"]}
    assert sky["run"] == "python 'my train.py'\n"
    task = emitted(SERVICE, engine="dstack", requests_per_day=1000)
    found = values(task)
    assert (found["type"], found["port"], found["replicas"]) == ("service", 8000, 3)
    assert not {"nodes", "max_duration", "idle_duration"} & found.keys()
    assert emitted(SERVICE, requests_per_day=1000).command == "sky serve up"
    of_four = values(emitted(replace(SERVICE, gpus_used=4), requests_per_day=1000))
    assert "--nproc-per-node=4" in of_four["run"]


def test_what_the_script_reads_is_passed_or_doubted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    data = str(tmp_path_factory.mktemp("data"))
    reads = ScriptReads(outside=(data,), variables=("HF_TOKEN",))
    captured = Script(gpu_precision="amp-bf16", cpu_precision="fp32", reads=reads)
    task = emitted(A10G, args=("--cache", str(folder)), captured=captured)
    assert values(task)["secrets"] == {"HF_TOKEN": None}
    assert task.command == "sky launch --secret HF_TOKEN"
    assert values(emitted(A10G, engine="dstack", captured=captured))["env"] == ["HF_TOKEN"]
    of_variables, of_data = task.notes
    assert "HF_TOKEN" in of_variables
    assert data in of_data
    assert str(folder) not in of_data
    assert all(f"# Check: {note[:20]}" in task.text for note in task.notes)


def test_what_differs_from_the_script_is_doubted() -> None:
    captured = Script(gpu_precision=None, cpu_precision=None, compile="compile")
    of_precision, of_compile = emitted(A10G, captured=captured).notes
    assert_says(of_precision, "amp-bf16", "--precision")
    assert_says(of_compile, "eager", "compile")
    (unseen,) = emitted(A10G).notes
    assert_says(unseen, "--run", "64")


def test_the_best_is_launched_wherever_it_stands_in_the_ranking() -> None:
    answer = recommendation(LAMBDA_A10, A10G)
    task = task_file(
        replace(answer, best=answer.quotes[1]), engine="skypilot", gpus=GPUS, source="my train.py", script_args=(),
        idle_minutes=1, port=8000, file=None, today=date(2026, 11, 2), captured=PLAIN,
    )  # fmt: skip
    assert values(task)["resources"]["instance_type"] == "g5.xlarge"
    assert task.notes == ()


def test_what_the_script_imports_is_installed_with_the_versions_here(folder: Path) -> None:
    (folder / "my train.py").write_text("import torch, torchvision, numpy as np\nimport no_such_module, helper\n")
    (folder / "helper.py").write_text("import yaml\n")
    (folder / "requirements.txt").write_text("# the folder's own\nPyYAML>=6\n")
    task = emitted(A10G, captured=PLAIN)
    here = {name: version(name).partition("+")[0] for name in ("torch", "torchvision", "numpy")}
    assert values(task)["setup"] == (
        f"pip install torch=={here['torch']} torchvision=={here['torchvision']}\n"
        f"pip install numpy=={here['numpy']}\n"
        "pip install -r requirements.txt\n"
    )
    (doubt,) = task.notes
    assert "no_such_module" in doubt


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("torchvision:resnet50", "is no Python file"),
        ("model.pt2", "is no Python file"),
        ("nowhere.py::Net", "no such file"),
        ("../outside.py", "is not in this folder"),
    ],
)
def test_what_no_machine_could_run_is_refused(folder: Path, source: str, message: str) -> None:
    (folder.parent / "outside.py").write_text("")
    with pytest.raises(UsageError, match=message):
        check_launchable(source)


def test_a_class_in_a_file_is_run_by_its_file() -> None:
    check_launchable("my train.py::Net")
