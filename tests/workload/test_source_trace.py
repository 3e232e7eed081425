"""Traces that are made once and read afterwards."""

import os
from pathlib import Path

import platformdirs
import pytest

from advisor.records.workload import Workload
from advisor.workload.source_trace import SourceTrace
from advisor.workload.spawn import ProfileRequest

NET = """
import sys
from pathlib import Path
from torch import nn

with Path("runs").open("a") as runs:
    runs.write("x")
sys.stderr.write("the file runs")
model = nn.Linear({width}, 2)
example_inputs = __import__("torch").zeros(4, {width})
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    (tmp_path / "code").mkdir()
    monkeypatch.chdir(tmp_path / "code")


def traced(**asked: object) -> Workload:
    with SourceTrace.start(ProfileRequest(source="net.py", **asked)) as trace:  # type: ignore[arg-type]
        return trace.workload()


def test_the_file_runs_once_until_it_changes() -> None:
    Path("net.py").write_text(NET.format(width=3))
    assert traced() == traced()
    assert Path("runs").read_text() == "x"
    Path("net.py").write_text(NET.format(width=5))
    assert traced().parameter_count == 5 * 2 + 2
    assert Path("runs").read_text() == "xx"


@pytest.mark.parametrize("place", ["site-packages", "plain"])
def test_a_change_in_a_library_is_another_trace(place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / place / "made_up_library/__init__.py"
    library.parent.mkdir(parents=True)
    library.write_text("WIDTH = 3")
    monkeypatch.setenv("PYTHONPATH", str(library.parents[1]), prepend=os.pathsep)
    Path("net.py").write_text(f"import made_up_library\n{NET.format(width='made_up_library.WIDTH')}")
    assert traced() == traced()
    assert Path("runs").read_text() == "x"
    library.write_text("WIDTH = 12")
    assert traced().parameter_count == 12 * 2 + 2


def test_another_batch_is_another_trace() -> None:
    Path("net.py").write_text(NET.format(width=3))
    traced(batch=8)
    traced(batch=16)
    assert Path("runs").read_text() == "xx"
