"""The workflow of examples/ is YAML that a runner takes, and its lines are commands of ours."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from advisor.cli.main import run
from advisor.report.as_json import render
from advisor.report.content import View
from tests.cli.conftest import Pipeline, pipeline  # noqa: F401 - a fixture
from tests.report.toys import L4, recommendation

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "examples" / "pull-request.yml"


@pytest.fixture
def job() -> dict[str, Any]:
    workflow = yaml.safe_load(FILE.read_text())
    assert workflow[True] == "pull_request"  # YAML 1.1 reads the key `on` as true, as runners know
    found: dict[str, Any] = workflow["jobs"]["cost"]
    return found


def test_every_step_uses_an_action_or_runs_a_line(job: dict[str, Any]) -> None:
    assert job["runs-on"] == "ubuntu-latest"
    for step in job["steps"]:
        assert ("uses" in step) != ("run" in step)
        assert step.get("uses", "x@v").partition("@")[2].startswith("v")


def test_the_program_comes_from_a_checkout_that_the_user_names(job: dict[str, Any]) -> None:
    (own,) = (step["with"] for step in job["steps"] if "repository" in step.get("with", {}))
    assert {"OWNER/REPOSITORY", "COMMIT"} == {own["repository"], own["ref"]}
    (install,) = (step["run"] for step in job["steps"] if step.get("name") == "Install")
    assert install == f"pip install ./{own['path']}"


def test_nothing_installs_the_program_by_a_name_that_no_index_serves() -> None:
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "Makefile"]
    for folder in ("advisor", "docs", "examples"):
        files += [file for file in (ROOT / folder).rglob("*") if file.suffix in (".md", ".py", ".yml", ".yaml")]
    found = [file for file in files if re.search(r"pip install[^`\n]*device-advisor", file.read_text())]
    assert found == []


def test_its_commands_are_taken(
    job: dict[str, Any],
    pipeline: Pipeline,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.json").write_text(render(recommendation(L4), View()))
    lines = [step["run"] for step in job["steps"] if "$ADVISE" in step.get("run", "")]
    assert len(lines) == 2
    for line in lines:
        program, *arguments = shlex.split(line.replace("$ADVISE", job["env"]["ADVISE"]).replace("$RUNNER_TEMP", "."))
        assert program == "advise"
        assert run(arguments) == 0
    assert (tmp_path / "comment.md").read_text().startswith("**resnet50")
    assert [asked["source"] for asked in pipeline.asked] == ["model.py"] * 2
