"""From names of instances to the files and commands that calibrate them."""

import json
import os
import subprocess
import sys
import zipfile
from datetime import date
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from advisor.answers.launch_file import fleet_commands, fleet_tasks
from advisor.catalog.overlay import load_catalog, shipped_profiles
from advisor.catalog.strict_yaml import parse_documents
from advisor.cli.main import run
from advisor.errors import UsageError
from advisor.launch.own_wheel import wheel_name, write_wheel
from advisor.records.launch_task import FleetTask
from tests.says import assert_says

CATALOG = load_catalog()


FOLDER = Path("my fleet")


def tasks(*names: str, budget_s: float = 20.0) -> tuple[FleetTask, ...]:
    return fleet_tasks(names, CATALOG, folder=FOLDER, budget_s=budget_s, today=date(2026, 11, 21))


def values(task: FleetTask) -> Any:
    (document,) = parse_documents(task.text, label="task.yaml")
    return document.values


def tasks_in(folder: Path) -> list[FleetTask]:
    return [FleetTask(name=file.stem, text=file.read_text()) for file in folder.glob("*.yaml")]


def test_a_gpu_is_calibrated_by_this_very_project_with_torchs_build_for_it() -> None:
    (task,) = tasks("aws:g6.xlarge")
    assert task.name == "aws-g6-xlarge"
    found = values(task)
    assert found["resources"] == {
        "infra": "aws/us-east-1",
        "instance_type": "g6.xlarge",
        "accelerators": "L4:1",
        "use_spot": False,
        "disk_size": 100,
        "autostop": {"idle_minutes": 10, "down": False},
    }
    assert found["workdir"] == str(FOLDER.resolve() / "program")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    assert found["setup"].splitlines() == [
        "pip install uv",
        f"uv venv --python {version} ~/advise-venv",
        "uv pip install torch --python ~/advise-venv/bin/python",
        f"uv pip install './{wheel_name()}[nvidia]' --python ~/advise-venv/bin/python",
    ]
    assert found["run"] == "~/advise-venv/bin/python -m advisor calibrate --time-budget 20s\n"


def test_a_cpu_needs_no_build_for_cuda() -> None:
    (task,) = tasks("aws:c7a.4xlarge")
    setup = values(task)["setup"]
    assert "https://download.pytorch.org/whl/cpu" in setup
    assert "nvidia" not in setup


def test_an_instance_is_taken_in_its_cheapest_region_at_a_price_that_is_not_doubtful() -> None:
    (task,) = tasks("aws:p4d.24xlarge")
    region = values(task)["resources"]["infra"].removeprefix("aws/")
    prices = [
        (offer.region, price.usd_per_hour)
        for offer in CATALOG.offers
        for price in offer.prices
        if (offer.provider, offer.instance, price.kind) == ("aws", "p4d.24xlarge", "on_demand")
        and not (price.stale or price.suspect)
    ]
    assert region in [name for name, usd in prices if usd == min(usd for _, usd in prices)]


def test_names_are_of_any_case_and_each_counts_once() -> None:
    assert [task.name for task in tasks("AWS:G6.xlarge", "AWS:G6.xlarge")] == ["aws-g6-xlarge"]


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("aws:g6.xlrge", "--fleet aws:g6.xlrge: no such offer", "aws:g6.xlarge"),
        ("awss:g6.xlarge", "--fleet awss:g6.xlarge: no such offer", "aws:g6.xlarge"),
        ("g6.xlarge", "--fleet g6.xlarge: no such offer", "aws:g6.xlarge"),
        ("???", "no such offer", "aws, azure, gcp, lambda, runpod"),
        ("salad:RTX 3090 24GB PCIe", "no such offer|cannot launch it: it does not support salad", ""),
        ("gcp:n4a-standard-2", "has no profile", "name another instance"),
        ("", "no such offer", ""),
    ],
)
def test_what_cannot_be_rented_is_refused_with_what_is_near(name: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        tasks(name)
    assert hint in caught.value.hint


def test_no_name_at_all_is_refused() -> None:
    with pytest.raises(UsageError, match="--fleet names no machine"):
        tasks()


def test_the_commands_rent_calibrate_copy_and_give_back(tmp_path: Path) -> None:
    found = tasks("aws:g6.xlarge", "gcp:g2-standard-4")
    assert list(fleet_commands(found, folder=Path("my fleet"))) == [
        "sky launch -y -c aws-g6-xlarge 'my fleet/aws-g6-xlarge.yaml'",
        "rsync -a aws-g6-xlarge:.cache/advisor/calibrations/ 'my fleet/back/aws-g6-xlarge'/",
        "sky down -y aws-g6-xlarge",
        "sky launch -y -c gcp-g2-standard-4 'my fleet/gcp-g2-standard-4.yaml'",
        "rsync -a gcp-g2-standard-4:.cache/advisor/calibrations/ 'my fleet/back/gcp-g2-standard-4'/",
        "sky down -y gcp-g2-standard-4",
        "advise calibrate --collect 'my fleet'",
    ]


def test_the_command_stops_after_the_files_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "new" / "fleet"
    assert run(["calibrate", "--fleet", "aws:g6.xlarge,aws:c7a.4xlarge", "--folder", str(folder)]) == 0
    out, err = capsys.readouterr()
    files = ["aws-c7a-4xlarge.yaml", "aws-g6-xlarge.yaml", "back", "program"]
    assert sorted(path.name for path in folder.iterdir()) == files
    assert out.splitlines()[0] == f"sky launch -y -c aws-g6-xlarge {folder}/aws-g6-xlarge.yaml"
    assert_says(err, "2 tasks", str(folder))


def test_the_machines_get_this_program_and_nothing_of_the_users(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret.txt").write_text("s3cr3t")
    assert run(["calibrate", "--fleet", "aws:g6.xlarge"]) == 0
    uploaded = tmp_path / values(*tasks_in(tmp_path / "fleet"))["workdir"]
    wheel, ignored = sorted(uploaded.iterdir(), key=lambda path: path.suffix == "")
    assert (wheel.suffix, ignored.name, ignored.read_text()) == (".whl", ".skyignore", "")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    top = f"device_advisor-{metadata.version('device-advisor')}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"advisor", top}
    assert {
        "advisor/answers/launch_file.py",
        "advisor/profiles/devices/gpu/l4.yaml",
        f"{top}/METADATA",
        f"{top}/RECORD",
    } <= {*names}
    assert not any("__pycache__" in name or name.endswith("direct_url.json") for name in names)


@pytest.mark.slow
def test_the_wheel_that_the_machines_get_installs_and_answers(tmp_path: Path) -> None:
    wheel = write_wheel(tmp_path, profiles=shipped_profiles())
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site)]
    subprocess.run([*install, f"{wheel}[nvidia]"], check=True, capture_output=True)
    code = "import sys; from advisor.cli.main import main; sys.argv = ['advise', 'prices', 'show', 'g6.xlarge']; main()"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "us-east-1" in done.stdout
    assert (site / "bin" / "advise").exists()


def test_what_contradicts_itself_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--fleet", "aws:g6.xlarge", "--show"]) == 2
    assert_says(capsys.readouterr().err, "error:", "--fleet", "--show")


def test_nothing_to_collect_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["calibrate", "--collect", str(tmp_path)]) == 2
    assert "no calibrations in" in capsys.readouterr().err


SKYPILOT_ROWS = """\
InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Price,SpotPrice,Region,AvailabilityZone,Arch
g6.xlarge,4.0,16.0,L4,1.0,,0.8048,0.4,us-east-1,us-east-1a,x86_64
"""
LOAD = """
import json, sys, sky
task = sky.Task.from_yaml(sys.argv[1])
(resources,) = task.resources
print(json.dumps([str(resources.cloud), resources.instance_type, resources.accelerators, task.workdir, task.run]))
"""


@pytest.mark.slow
def test_skypilot_reads_what_was_meant(tmp_path: Path) -> None:
    pytest.importorskip("sky")
    catalog = tmp_path / ".sky" / "catalogs" / "v8" / "aws" / "vms.csv"
    catalog.parent.mkdir(parents=True)
    catalog.write_text(SKYPILOT_ROWS)
    (task,) = tasks("aws:g6.xlarge")
    file = tmp_path / "task.yaml"
    file.write_text(task.text)
    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(file)],
        env={**os.environ, "HOME": str(tmp_path)}, check=True, capture_output=True, text=True,
    )  # fmt: skip
    run_line = "~/advise-venv/bin/python -m advisor calibrate --time-budget 20s\n"
    assert json.loads(done.stdout.splitlines()[-1]) == [
        "AWS",
        "g6.xlarge",
        {"L4": 1},
        str(FOLDER.resolve() / "program"),
        run_line,
    ]
