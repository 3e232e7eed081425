"""The range of torch in pyproject.toml, at both of its ends."""

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from advisor.answers.checkup import OLDEST_TORCH

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples"
OLDEST_PYTHON = os.environ.get("OLDEST_TORCH_PYTHON", str(ROOT / ".venv-oldest/bin/python"))
pytestmark = pytest.mark.slow


@pytest.fixture(params=["oldest", "newest"])
def python(request: pytest.FixtureRequest) -> str:
    """The interpreter that has this torch; the newest is the one that all tests run with."""
    if request.param == "newest":
        return sys.executable
    if not Path(OLDEST_PYTHON).is_file():
        pytest.skip(
            "`make oldest-torch` installs it with 5 GB of CUDA libraries, or OLDEST_TORCH_PYTHON names a Python"
        )
    version = _output(OLDEST_PYTHON, "-c", "import torch; print(torch.__version__)")
    assert tuple(map(int, version.split(".")[:2])) == OLDEST_TORCH
    return OLDEST_PYTHON


def _output(python: str, *arguments: str) -> str:
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    env = os.environ | {"PYTHONPATH": path}
    return subprocess.run([python, *arguments], env=env, check=True, capture_output=True, text=True).stdout


@cache
def _document(python: str, *arguments: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(_output(python, "-m", "advisor", *arguments, "-o", "json"))
    return document


def test_a_model_is_ranked(python: str) -> None:
    answer = _document(python, "rank", str(EXAMPLES / "mlp.py"), "--no-local", "--samples", "1e6")
    assert answer["best"] is not None
    assert answer["workload"]["method"] == "fake"


@pytest.mark.parametrize("name", ["mlp", "lstm", "transformer", "resnet50"])
@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_step_counts_the_same(python: str, name: str, mode: str) -> None:
    _assert_counted_the_same(python, str(EXAMPLES / f"{name}.py"), mode)


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_model_of_transformers_counts_the_same(python: str, mode: str) -> None:
    pytest.importorskip("transformers")
    _assert_counted_the_same(python, f"hf:{EXAMPLES / 'configs/gpt2.json'}", mode)


def test_a_script_is_traced(python: str) -> None:
    document = _document(python, "profile", str(EXAMPLES / "train.py"), "--run", "--mode", "training")
    assert document["method"] == "symbolic"
    assert document["optimizer"] is not None


def _assert_counted_the_same(python: str, source: str, mode: str) -> None:
    here = _document(sys.executable, "profile", source, "--mode", mode)
    there = _document(python, "profile", source, "--mode", mode)
    for document in (here, there):
        assert (document["method"], document["batch_is_affine"]) == ("fake", True)
        assert document["unknown_ops"] == {}
    assert there["parameter_count"] == here["parameter_count"]
    # torch itself changes by a pointwise operator here and there, and the memory that one holds.
    assert there["totals"]["flops"] == pytest.approx(here["totals"]["flops"], rel=1e-3)
    assert there["totals"]["peak_memory_bytes"] == pytest.approx(here["totals"]["peak_memory_bytes"], rel=0.02)
