"""An environment with the packages of requirements-service.txt, which has no torch: the service and rankings work."""

import os
import re
import subprocess
import tomllib
import venv
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.serve.conftest import ROOT, WORKLOAD, serving

FILE = ROOT / "requirements-service.txt"
SAVED = ROOT / "advisor/serve/example_workload.json"
MODEL = ROOT / "examples/mlp.py"


def required() -> list[Requirement]:
    lines = (line.partition("#")[0].strip() for line in FILE.read_text(encoding="utf-8").splitlines())
    return [Requirement(line) for line in lines if line]


def with_what_they_need(names: list[str]) -> Iterator[metadata.Distribution]:
    """The installed distributions of these names, and those that they require."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        found = metadata.distribution(name)
        yield found
        needed = map(Requirement, found.requires or ())
        waiting += [one.name for one in needed if one.marker is None or one.marker.evaluate({"extra": ""})]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The Python of an environment into which the required packages are linked, as well as this program."""
    folder = tmp_path_factory.mktemp("without_torch")
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    for distribution in with_what_they_need([one.name for one in required()]):
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            (packages / top).symlink_to(str(distribution.locate_file(top)))
    (packages / "this_program.pth").write_text(f"{ROOT}\n")
    return str(folder / "bin/python")


def advise(python: str, *arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [python, "-m", "advisor", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_file_lists_what_the_program_and_its_service_require_but_torch_and_fvcore() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    every = {*project["dependencies"], *project["optional-dependencies"]["serve"]}
    expected = {one for one in every if Requirement(one).name not in ("torch", "fvcore")}

    assert {str(one) for one in required()} == {str(Requirement(one)) for one in expected}


def test_the_environment_has_no_torch(python: str) -> None:
    code = "from importlib.util import find_spec as find; print(find('torch'), find('fvcore'), find('scipy'))"
    assert subprocess.run([python, "-c", code], capture_output=True, text=True).stdout == "None None None\n"


@pytest.mark.parametrize("command", ["rank", "explain", "memory", "breakeven", "profile"])
def test_a_saved_workload_is_answered(python: str, tmp_path: Path, command: str) -> None:
    done = advise(python, command, str(SAVED), folder=tmp_path)

    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
    assert len(done.stdout) > 100


@pytest.mark.parametrize("arguments", [["devices"], ["prices", "list"]])
def test_what_is_no_models_is_answered(python: str, tmp_path: Path, arguments: list[str]) -> None:
    done = advise(python, *arguments, folder=tmp_path)

    assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        [str(MODEL)],
        [str(MODEL), "--measure"],
        [str(MODEL), "--run"],
        ["timm:resnet50"],
        ["profile", str(MODEL)],
        ["calibrate", "--on", "cpu"],
    ],
)
def test_what_needs_torch_says_what_to_install(python: str, tmp_path: Path, arguments: list[str]) -> None:
    done = advise(python, *arguments, folder=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("error: torch is not installed")
    assert "hint: pip install torch fvcore" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_doctor_says_what_to_install(python: str, tmp_path: Path) -> None:
    done = advise(python, "doctor", folder=tmp_path)

    assert "pip install 'torch>=" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_service_answers(python: str, tmp_path: Path) -> None:
    with serving(tmp_path, python=python) as server:
        answer = server.post("/v1/recommend", {"workload": WORKLOAD, "options": {"provider": ["aws"]}})

    assert answer.status_code == 200
    assert answer.json()["best"]["provider"] == "aws"
