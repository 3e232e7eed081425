"""Many sources, traced by real children that serve one after the other."""

import os
import subprocess
from pathlib import Path
from textwrap import dedent
from typing import Any

import platformdirs
import pytest

from advisor.errors import LoadError
from advisor.records.workload import Workload
from advisor.workload import spawn, supervisor
from advisor.workload.spawn import ProfileRequest, SourceProcess
from advisor.workload.trace_many import Outcome, trace_many

NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self, size=2):
            super().__init__()
            self.layer = nn.Linear(3, size)

        def forward(self, x):
            return self.layer(x)

    example_inputs = torch.zeros(4, 3)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    folder = tmp_path / "models"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def write(name: str, text: str = NET) -> ProfileRequest:
    Path(name).write_text(dedent(text), encoding="utf-8")
    return ProfileRequest(source=name, timeout_s=60.0)


def parameter_count(outcome: Outcome) -> int:
    assert isinstance(outcome, Workload), outcome
    return outcome.parameter_count


def message(outcome: Outcome) -> str:
    assert isinstance(outcome, LoadError)
    return outcome.message


def test_a_source_that_crashes_hangs_or_is_not_there_costs_only_itself() -> None:
    good, other = write("good.py"), write("other.py", NET.replace("size=2", "size=5"))
    crash = write("crash.py", "import os; os.abort()")
    hang = write("hang.py", "while True: pass")
    hang = ProfileRequest(source=hang.source, timeout_s=6.0)
    missing = ProfileRequest(source="missing.py")
    outcomes = trace_many([crash, good, hang, missing, other])
    assert [parameter_count(outcomes[request]) for request in (good, other)] == [3 * 2 + 2, 3 * 5 + 5]
    assert message(outcomes[crash]) == "crash.py ended the interpreter: SIGABRT"
    assert message(outcomes[hang]).startswith("hang.py:1 was still running after 6 s")
    assert message(outcomes[missing]) == "there is no file missing.py"


def test_what_was_traced_once_is_read_without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    request = write("net.py")
    seen: list[tuple[int, int]] = []
    first = trace_many([request, request], on_progress=lambda done, total: seen.append((done, total)))
    assert seen == [(1, 1)]
    monkeypatch.delattr(subprocess, "Popen")
    assert trace_many([request]) == first


READING = """
    import json, os
    import torch
    from pkg.inner import SIZE
    from pkg import *
    try:
        from extra import EXTRA
    except ImportError:
        EXTRA = 0

    model = torch.nn.Linear(3, SIZE + EXTRA + json.load(open("sizes.json")) + len(os.listdir("layers")))
    example_inputs = torch.zeros(4, 3)
"""


@pytest.mark.parametrize(
    ("changed", "text", "outputs"),
    [("pkg/inner.py", "SIZE = 5", 5 + 1), ("sizes.json", "3", 2 + 3), ("extra.py", "EXTRA = 4", 2 + 4 + 1),
     ("layers/one", "", 2 + 1 + 1)],
)  # fmt: skip
def test_a_change_in_what_the_file_imports_reads_or_lists_is_traced_anew(changed: str, text: str, outputs: int) -> None:
    for folder in ("pkg", "layers"):
        Path(folder).mkdir()
    Path("pkg/__init__.py").touch()
    Path("pkg/inner.py").write_text("SIZE = 2")
    Path("sizes.json").write_text("1")
    request = write("reading.py", READING)
    assert parameter_count(trace_many([request])[request]) == 4 * (2 + 1)

    Path(changed).write_text(text)
    assert parameter_count(trace_many([request])[request]) == 4 * outputs


def test_a_change_in_a_variable_that_the_file_reads_is_traced_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    text = NET.replace("self.layer = nn.Linear(3, size)", "self.layer = nn.Linear(3, int(os.environ.get('WIDTH', 2)))")
    request = write("net.py", f"import os\n{dedent(text)}")
    assert parameter_count(trace_many([request])[request]) == 4 * 2
    monkeypatch.setenv("WIDTH", "5")
    assert parameter_count(trace_many([request])[request]) == 4 * 5

    monkeypatch.setenv("UNRELATED", "7")
    monkeypatch.delattr(subprocess, "Popen")
    assert parameter_count(trace_many([request])[request]) == 4 * 5


def test_nothing_that_a_trace_leaves_behind_makes_it_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    Path("pkg").mkdir()
    Path("pkg/__init__.py").touch()
    Path("pkg/inner.py").write_text("SIZE = 2")
    request = write("net.py", f"import pkg.inner\nopen('log.txt', 'a').write('x')\n{dedent(NET)}")
    first = trace_many([request])
    assert Path("pkg/__pycache__").is_dir()
    monkeypatch.delattr(subprocess, "Popen")
    assert trace_many([request]) == first


def test_one_child_serves_several_models_by_name_and_a_wrong_name_in_between(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torchvision")
    started: list[int] = []
    start = SourceProcess.start

    def counted_start(**settings: Any) -> SourceProcess:
        child = start(**settings)
        started.append(child.pid)
        return child

    monkeypatch.setattr(SourceProcess, "start", counted_start)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    names = ("resnet18", "resnet19", "alexnet")
    requests = [ProfileRequest(source=f"torchvision:{name}") for name in names]
    outcomes = trace_many(requests)
    # The sizes that torchvision's own documentation gives of both.
    assert parameter_count(outcomes[requests[0]]) == 11_689_512
    assert message(outcomes[requests[1]]) == "torchvision has no model resnet19"
    assert parameter_count(outcomes[requests[2]]) == 61_100_840
    assert len(started) == 1


def test_a_file_leaves_nothing_behind_for_the_next(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    requests = []
    for size in (2, 5):
        Path(f"with_{size}").mkdir()
        Path(f"with_{size}/sizes.py").write_text(f"SIZE = {size}")
        text = dedent(NET).replace("size=2", "size=SIZE")
        requests.append(write(f"with_{size}/net.py", f"from sizes import SIZE\n{text}"))
    outcomes = trace_many(requests)
    assert [parameter_count(outcomes[request]) for request in requests] == [3 * 2 + 2, 3 * 5 + 5]


def test_a_child_that_dies_after_others_is_replaced_before_the_source_is_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torchvision")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0}, raising=False)
    ask = SourceProcess.ask
    asked: list[str] = []

    def ask_and_kill_the_second_time(child: SourceProcess, request: ProfileRequest) -> None:
        asked.append(request.source)
        ask(child, request)
        if len(asked) == 2:
            child.kill()

    monkeypatch.setattr(SourceProcess, "ask", ask_and_kill_the_second_time)
    requests = [ProfileRequest(source=f"torchvision:{name}") for name in ("alexnet", "resnet18")]
    outcomes = trace_many(requests)
    assert asked == ["torchvision:alexnet", "torchvision:resnet18", "torchvision:resnet18"]
    assert parameter_count(outcomes[requests[1]]) == 11_689_512


def test_our_own_mistake_costs_only_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = """
import advisor.workload.sources as load
exec(compile("def load_broken(*_, **__): return 1 / 0", load.__file__, "exec"))
load.load = load_broken
main()"""
    monkeypatch.setattr(supervisor, "_START", supervisor._START.replace("; main()", broken))
    request = write("net.py")
    outcome = trace_many([request])[request]
    assert isinstance(outcome, spawn.ChildFailure)
    assert str(outcome).endswith("ZeroDivisionError: division by zero\n")


def test_an_interrupt_ends_all_children_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    quick, hangs = write("quick.py"), write("hangs.py", "while True: pass")
    children: list[SourceProcess] = []
    start = SourceProcess.start

    def kept_start(**settings: Any) -> SourceProcess:
        children.append(start(**settings))
        return children[-1]

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(SourceProcess, "start", kept_start)
    with pytest.raises(KeyboardInterrupt):
        trace_many([hangs, quick, quick], on_progress=interrupt)
    for child in children:
        with pytest.raises(ProcessLookupError):
            os.killpg(child.pid, 0)
