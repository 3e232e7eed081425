"""`--emit`: a task file in place of the answer."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from advisor.launch.engines import engine_module, engine_names
from tests.cli.conftest import Pipeline, Result
from tests.launch.toys import A10G, SALAD, task
from tests.report.toys import recommendation
from tests.says import assert_says

Advise = Callable[..., Result]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: Pipeline) -> Path:
    (tmp_path / "train.py").write_text("")
    monkeypatch.chdir(tmp_path)
    pipeline.answer = recommendation(A10G)
    return tmp_path


def test_the_task_file_goes_to_stdout(advise: Advise) -> None:
    result = advise("train.py", "--run", "--emit", "skypilot", "--", "--epochs", "3")
    assert (result.code, result.err) == (0, "")
    assert "autostop: {idle_minutes: 10, down: false}" in result.out
    assert result.out.endswith("run: |\n  python train.py --epochs 3\n")


@pytest.mark.parametrize("suffix", [".yaml", ".yml"])
def test_it_goes_to_a_file_and_how_to_run_it_to_stderr(advise: Advise, folder: Path, suffix: str) -> None:
    result = advise("train.py", "--emit", "dstack", "--idle-minutes", "5", "-o", f"task.dstack{suffix}")
    name = f"task.dstack{suffix}"
    assert (result.code, result.out) == (0, "")
    assert_says(result.err, name, f"`dstack apply -f {name}`")
    assert 'idle_duration: "5m"' in (folder / name).read_text()


def test_what_it_had_to_pass_over_is_said(advise: Advise, pipeline: Pipeline) -> None:
    pipeline.answer = recommendation(SALAD, A10G)
    result = advise("train.py", "--emit", "skypilot")
    assert result.code == 0
    assert_says(result.err, "note:", "skypilot", "salad")


def test_where_nothing_can_be_launched_nothing_is_written(advise: Advise, pipeline: Pipeline, folder: Path) -> None:
    pipeline.answer = recommendation(SALAD)
    assert advise("train.py", "--emit", "skypilot", "-o", "task.yaml").code == 1
    assert not (folder / "task.yaml").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train.py", "-o", "task.yaml"], "only a task file is YAML"),
        (["train.py", "--emit", "dstack", "-o", "task.json"], "-o task.json: a task file is YAML"),
        (["train.py", "--emit", "dstack", "-o", "csv"], "-o csv: a task file is YAML"),
        (["train.py", "--emit", "skypliot"], "did you mean skypilot?"),
        (["timm:resnet50", "--emit", "dstack"], "no Python file to run"),
    ],
)
def test_what_does_not_go_together_is_refused_before_any_work(
    advise: Advise, pipeline: Pipeline, arguments: list[str], message: str
) -> None:
    result = advise(*arguments)
    assert result.code == 2
    assert message in result.err
    assert pipeline.asked == []


PAGE = (Path(__file__).parents[2] / "docs/launch.md").read_text()


def test_the_page_on_launching_shows_commands_that_answer(advise: Advise, folder: Path) -> None:
    (folder / "model.py").write_text("")
    commands = re.findall(r"^\$ advise (.*)$", PAGE, flags=re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        assert advise(*shlex.split(command)).code == 0, command


def test_it_names_every_engine_and_provider() -> None:
    for engine in engine_names():
        module = engine_module(engine)
        assert f"{module.command(task())} " in PAGE
        assert all(re.search(rf"\b{provider}\b", PAGE) for provider in module.PROVIDERS)
