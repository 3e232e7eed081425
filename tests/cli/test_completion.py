"""A shell asks what could follow, in the way of click's own scripts."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Result


def completed(line: str) -> list[str]:
    """Return the completions of the last word of `line`, which is "" after a blank; a file is "file"."""
    words = line.split()
    count = len(words) if line.endswith(" ") else len(words) - 1
    asked = {"_ADVISE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(count)}
    done = subprocess.run(
        [sys.executable, "-m", "advisor"], env=os.environ | asked, capture_output=True, text=True, check=True
    )
    assert done.stderr == ""
    kinds_and_words = [one.split(",", 1) for one in done.stdout.splitlines()]
    return [word if kind == "plain" else kind for kind, word in kinds_and_words]


def test_commands_flags_and_values_are_completed() -> None:
    assert completed("advise pro") == ["profile"]
    assert set(completed("advise ")) >= {"rank", "explain", "diff", "serve"}
    assert completed("advise model.py --objec") == ["--objective"]
    assert completed("advise explain model.py --precision amp") == ["amp-fp16", "amp-bf16"]
    assert "list" in completed("advise prices ")


def test_a_source_is_completed_as_a_file() -> None:
    assert completed("advise mod") == ["file"]
    assert completed("advise rank mod") == ["file"]


def test_a_hugging_face_model_is_completed_by_the_configs_on_this_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    config = tmp_path / "models--openai-community--gpt2-own" / "snapshots" / "a1" / "config.json"
    config.parent.mkdir(parents=True)
    config.write_text("{}")
    (tmp_path / "models--openai-community--gpt2-weights-only").mkdir()
    found = completed("advise hf:openai-community/gpt2")
    assert {"hf:openai-community/gpt2", "hf:openai-community/gpt2-own"} <= set(found)
    assert "hf:openai-community/gpt2-weights-only" not in found


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell_asks_as_above(advise: Callable[..., Result], shell: str) -> None:
    result = advise("--completion", shell)
    assert result.code == 0
    assert f"_ADVISE_COMPLETE={shell}_complete" in result.out


def test_another_shell_is_refused(advise: Callable[..., Result]) -> None:
    result = advise("--completion", "nosh")
    assert result.code == 2
    assert "bash" in result.err
