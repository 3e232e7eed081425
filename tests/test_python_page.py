"""The examples of the page on Python run."""

import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

from tests.test_callbacks import trainer_run

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "python.md").read_text(encoding="utf-8")


def example(heading: str) -> str:
    """Return the first example below a heading of the page."""
    (section,) = re.findall(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", PAGE, flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)[0]


def test_the_example_of_fits_prints_its_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    exec(example('Before `.to("cuda")`'), names := {})
    assert names["answer"].fits
    assert " ".join(capsys.readouterr().out.split()).count(". ") == 0


TRAINING = "In a training loop of transformers or Lightning"


class Trainer:
    """Takes what the Trainer of transformers takes, and calls its callback in a loop like its own."""

    def __init__(self, model: nn.Module, settings: Any, *, train_dataset: list[Any], callbacks: list[Any]) -> None:
        self._callback, self._model, self._steps = callbacks[0], model, settings["max_steps"]
        self._batch = {name: torch.stack([row[name] for row in train_dataset[:8]]) for name in train_dataset[0]}

    def train(self) -> None:
        trainer_run(self._callback, model=self._model, batch=self._batch, steps=self._steps)


def run_training(names: dict[str, Any]) -> None:
    exec(example(TRAINING), names)
    assert names["callback"].recommendation.job.samples == 20 * 8  # the Trainer's default batch


def test_the_example_of_the_trainer_is_advised_in_a_loop_like_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SimpleNamespace(Trainer=Trainer, TrainingArguments=lambda folder, **settings: settings)
    monkeypatch.setitem(sys.modules, "transformers", settings)  # type: ignore[arg-type]
    run_training({"__name__": "example"})


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of the framework
def test_the_example_of_the_trainer_is_advised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("accelerate")
    pytest.importorskip("transformers.trainer")
    monkeypatch.chdir(tmp_path)
    run_training({"__name__": "example"})
