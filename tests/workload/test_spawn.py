"""Real child processes: each of these files would take an advisor that imports them down with it."""

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from advisor.errors import AdvisorError, ExitCode, LoadError, TraceError, UsageError
from advisor.machine.limits import total_memory_bytes
from advisor.workload import spawn, supervisor
from advisor.workload.spawn import ProfileRequest, start_profile
from tests.model_files import ONE_LAYER, Write

ROOT = Path(__file__).parents[2]
NET = ONE_LAYER
FLOPS = 2 * 4 * 3 * 2  # batch x in x out multiply-adds


@pytest.fixture(autouse=True, params=["fork", pytest.param("interpreter", marks=pytest.mark.slow)])
def start_s(request: pytest.FixtureRequest) -> int:
    """Start children as forks of a process that has imported torch, and in `make check-all` also as users do.

    Return the seconds that a start may take.
    """
    if request.param == "fork":
        return 0
    request.getfixturevalue("own_interpreters")
    return 5


def profile(source: str, **request: Any) -> dict[str, Any]:
    with start_profile(ProfileRequest(source=source, **request)) as child:
        workload: dict[str, Any] = child.answer()["workload"]
        return workload


def error_of(source: str, **request: Any) -> AdvisorError:
    with pytest.raises(AdvisorError) as caught:
        profile(source, **request)
    assert "Traceback" not in caught.value.message
    return caught.value


def is_running(pid: int) -> bool:
    """Return True if the process exists and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not is_running(pid)


needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks for processes in /proc")
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a session of its own is not followed")


def advisor_at_work(source: str, *, fork: bool = False) -> "subprocess.Popen[bytes]":
    """A process that profiles `source`, and has a fork of its own that goes on where `fork` says so."""
    forking = """
import os, time
forked = os.fork()
if not forked:
    time.sleep(600)
open("forked", "w").write(str(forked))
"""
    code = (
        "import signal\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background job ignores interrupts
        "from advisor.workload.spawn import *\n"
        f"with start_profile(ProfileRequest(source={source!r})) as child:\n"
        f"    exec({forking if fork else ''!r})\n"
        "    child.answer()"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.Popen([sys.executable, "-c", code], env=environment, stderr=subprocess.DEVNULL)


def when_there(file: str) -> str:
    deadline = time.monotonic() + 60
    while not Path(file).exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    return Path(file).read_text()


@pytest.mark.usefixtures("own_interpreters")
def test_a_file_comes_back_as_a_workload(write: Write) -> None:
    workload = profile(write(NET))
    assert (workload["name"], workload["batch"], workload["totals"]["flops"]) == ("net", 4, FLOPS)


def test_the_parent_does_not_import_torch(write: Write) -> None:
    code = (
        "import sys; from advisor.workload.spawn import *; "
        f"start_profile(ProfileRequest(source={write(NET)!r})).answer(); "
        "print([name for name in ('torch', 'numpy', 'pydantic') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )
    assert (run.stdout, run.stderr) == ("[]\n", "")


@pytest.fixture
def full_stdin() -> Iterator[None]:
    """Put text that waits to be read on this process's stdin."""
    before = os.dup(0)
    read_end, write_end = os.pipe()
    os.write(write_end, b"for nobody\n")
    os.dup2(read_end, 0)
    yield
    os.dup2(before, 0)
    for descriptor in (before, read_end, write_end):
        os.close(descriptor)


@pytest.mark.usefixtures("full_stdin")
def test_what_the_file_prints_goes_to_stderr_and_stdin_is_empty(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    text = """
    import os, sys
    print("printed", len(sys.stdin.read()))
    os.write(1, b"written\\n")
    os.system("echo by a shell")
    """
    workload = profile(write(dedent(text) + dedent(NET)))
    captured = capfd.readouterr()
    assert workload["totals"]["flops"] == FLOPS
    assert captured.out == ""
    assert [line for line in captured.err.splitlines() if line] == ["printed 0", "written", "by a shell"]


def test_the_files_folder_is_on_the_path_and_argv_is_the_files(write: Write) -> None:
    Path("beside").mkdir()
    write("import sys\nARGV = sys.argv\n", "beside/sizes.py")
    text = """
    from sizes import ARGV
    assert ARGV == ["beside/net.py"], ARGV
    """
    write(dedent(text) + dedent(NET), "beside/net.py")
    assert profile("beside/net.py")["totals"]["flops"] == FLOPS


@pytest.mark.usefixtures("own_interpreters")
def test_files_named_like_the_standard_library_do_no_harm(write: Write) -> None:
    for name in ("json.py", "copy.py", "types.py", "random.py"):
        write("raise SystemExit('shadowed')", name)
    assert profile(write(NET))["totals"]["flops"] == FLOPS


def test_a_file_may_use_the_memory_of_its_control_groups_and_no_more(write: Write) -> None:
    source = write("import resource\nraise RuntimeError(resource.getrlimit(resource.RLIMIT_DATA)[0])")
    with pytest.raises(LoadError) as caught:
        profile(source)
    assert str(int(total_memory_bytes() or 0)) in str(caught.value)


def test_requests_for_cuda_are_redirected(write: Write) -> None:
    text = NET.replace("return self.layer(x)", 'return self.layer(x.cuda()).to("cuda")')
    assert profile(write(text + "\n    model = Net().cuda()\n"))["totals"]["flops"] == FLOPS


def test_a_script_runs_as_main_with_its_arguments_until_its_first_step(write: Write) -> None:
    text = """
    import argparse
    import torch
    from torch import nn

    if __name__ == "__main__":
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch", type=int, required=True)
        arguments = parser.parse_args()
        model = nn.Linear(3, 2).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for step in range(10**9):
            loss = model(torch.zeros(arguments.batch, 3, device="cuda")).sum()
            loss.backward()
            optimizer.step()
    """
    name = write(text)
    workload = profile(name, mode="training", run=True, script_args=("--batch", "6"))
    assert (workload["batch"], workload["optimizer"]) == (6, "SGD")
    error = error_of(name, run=True)
    assert "sys.exit(2)" in error.message
    assert "after `--`" in error.hint


def test_a_variable_that_is_not_set_is_an_error_of_the_file(write: Write) -> None:
    error = error_of(write("import os\n\nwidth = int(os.environ['NO_SUCH_WIDTH'])"))
    assert error.message == "net.py: KeyError: 'NO_SUCH_WIDTH'\n  net.py:3: width = int(os.environ['NO_SUCH_WIDTH'])"


def test_a_script_that_calls_no_model_is_an_error(write: Write) -> None:
    assert "ended without calling a model" in error_of(write("print('nothing to do')"), run=True).message


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("missing.py", "there is no file missing.py"),
        (".", ". is a folder"),
        ("weights.safetensors", "weights.safetensors is not a Python file: weights are not a model"),
    ],
)
def test_what_is_no_source_is_refused_without_a_child(
    write: Write, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    write("", "weights.safetensors")
    monkeypatch.delattr(subprocess, "Popen")
    error = error_of(source)
    assert (error.message, error.exit_code) == (message, ExitCode.LOAD)
    assert error.hint


def test_a_mistyped_input_is_refused_without_a_child(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(subprocess, "Popen")
    with pytest.raises(UsageError, match="--input 3,4"):
        profile(write(NET), inputs=("3,4",))


def test_a_syntax_error_shows_their_line(write: Write) -> None:
    error = error_of(write("x = 1\ndef f(:\n"))
    assert error.message == "net.py:2: invalid syntax\n    def f(:\n          ^"
    assert error.exit_code == ExitCode.LOAD


def test_a_wrong_input_shape_shows_their_frames_torchs_reason_and_what_was_given(
    write: Write, capfd: pytest.CaptureFixture[str]
) -> None:
    error = error_of(write(NET), inputs=("7",))
    assert isinstance(error, TraceError)
    first, *frames = error.message.splitlines()
    assert "7" in first
    assert "3x2" in first or "[3, 2]" in first
    assert frames == [
        "  net.py:11 in forward: return self.layer(x)",
        "  in layer: Linear(in_features=3, out_features=2, bias=True)",
    ]
    assert error.hint == "the model was given (32, 7) float32"
    assert "Traceback" not in capfd.readouterr().err


def test_an_error_in_a_layer_of_a_plain_sequential_names_the_layer(write: Write) -> None:
    code = """
from torch import nn
model = nn.Sequential(nn.Linear(3, 5), nn.Sequential(nn.ReLU(), nn.Linear(4, 2)))
"""
    error = error_of(write(code), inputs=("3",))
    assert error.message.splitlines()[1:] == ["  in 1.1: Linear(in_features=4, out_features=2, bias=True)"]


def test_a_batch_that_the_model_refuses_is_named_as_it_was_asked_for(write: Write) -> None:
    source = write(NET.replace("return self.layer(x)", "assert len(x) == 4; return self.layer(x)"))
    assert error_of(source, batch=7).hint == "the model was given (7, 3) float32"


def test_an_import_that_raises_shows_their_frames_only(write: Write) -> None:
    error = error_of(write("def prepare():\n    return {}['data']\nprepare()\n"))
    assert error.message == (
        "net.py: KeyError: 'data'\n  net.py:3: prepare()\n  net.py:2 in prepare: return {}['data']"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import sys; sys.exit(3)", "net.py: the file called sys.exit(3)"),
        ("import os; os._exit(3)", "net.py ended the interpreter with exit code 3"),
        ("import os; os.abort()", "net.py ended the interpreter: SIGABRT"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "net.py was killed (SIGKILL)"),
        ("x = input('name? ')", "net.py: EOFError"),
        ("import torch; x = torch.ones(2**38)", "can't allocate memory"),
        ("x = bytearray(2**40)", "net.py: MemoryError"),
    ],
)
def test_a_file_that_ends_the_interpreter_or_cannot_go_on_is_named_with_the_reason(
    write: Write, text: str, message: str
) -> None:
    error = error_of(write(text))
    assert isinstance(error, LoadError)
    assert message in error.message
    assert error.hint


def test_a_loop_at_the_top_level_is_named_when_time_runs_out(write: Write, start_s: int) -> None:
    text = """
    import time
    def train():
        while True:
            time.sleep(0.01)
    for epoch in range(10):
        train()
    """
    error = error_of(write(text), timeout_s=1 + start_s)
    first, *frames = error.message.splitlines()
    assert first == f"net.py:7 was still running after {1 + start_s} s"
    assert frames[0] == "  net.py:7: train()"
    assert 'if __name__ == "__main__"' in error.hint
    assert "--run" in error.hint
    assert "--timeout" in error.hint


def test_a_step_that_runs_for_real_is_named_with_the_line_that_fake_tensors_cannot_take(
    write: Write, start_s: int
) -> None:
    text = """
    import time
    import torch
    from torch import nn

    class Net(nn.Linear):
        def forward(self, x):
            found = super().forward(x)
            if found.max().item() > 2:
                found = found * 2
            while True:
                time.sleep(0.01)

    model = Net(8, 4)
    example_inputs = torch.zeros(2, 8)
    """
    error = error_of(write(text), timeout_s=5 + 5 * start_s)
    first, *lines = error.message.splitlines()
    assert first == f"net.py:12 in forward was still running after {5 + 5 * start_s} s"
    [failed] = [place for place, line in enumerate(lines) if "fake tensors" in line]
    assert "aten._local_scalar_dense" in lines[failed]
    assert lines[failed + 1] == "  net.py:9 in forward: if found.max().item() > 2:"
    assert "--timeout" in error.hint
    assert ".item()" in error.hint


def test_a_child_that_cannot_report_is_killed_all_the_same(
    write: Write, start_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spawn, "_GRACE_S", 0.5)
    text = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n"  # not even its watchdog runs on
    error = error_of(write(text), timeout_s=1 + start_s)
    assert error.message == f"net.py was still running after {1 + start_s} s"


@needs_proc
def test_a_fork_does_not_stay_behind(write: Write) -> None:
    text = """
    import os, time
    forked = os.fork()
    if not forked:
        time.sleep(60)
    open("pid", "w").write(str(forked))
    """
    assert profile(write(dedent(text) + dedent(NET)))["totals"]["flops"] == FLOPS
    assert ends_within(int(Path("pid").read_text()), 2)


def test_a_fork_that_goes_on_does_not_answer(write: Write) -> None:
    text = """
    import os
    forked = os.fork()
    if forked:
        os.waitpid(forked, 0)  # the fork has loaded, traced and sent all it wants to
    example_inputs = torch.zeros(4 if forked else 5, 3)
    """
    assert profile(write(dedent(NET) + dedent(text)))["batch"] == 4


def test_forks_of_forks_say_nothing(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
    import os
    for _ in range(2):
        forked = os.fork()
        if forked:
            os.waitpid(forked, 0)
            break
    else:
        os._exit(0)
    """
    assert profile(write(dedent(text) + dedent(NET)))["totals"]["flops"] == FLOPS
    assert capfd.readouterr().err == ""


def test_the_death_of_the_child_is_seen_though_a_fork_holds_its_descriptors(write: Write) -> None:
    text = """
    import ctypes, os, time
    if ctypes.CDLL(None).fork() == 0:  # behind Python's back
        time.sleep(60)
    os._exit(5)
    """
    assert "exit code 5" in error_of(write(text), timeout_s=20).message


@needs_proc
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_everything_dies_with_the_parent(write: Write, how: signal.Signals) -> None:
    text = """
    import os, time
    forked = os.fork()
    if forked:
        open("pids.part", "w").write(f"{os.getpid()} {forked}")
        os.rename("pids.part", "pids")
    time.sleep(60)
    """
    parent = advisor_at_work(write(text))
    pids = [int(pid) for pid in when_there("pids").split()]
    parent.send_signal(how)
    parent.wait()
    assert all(ends_within(pid, 2) for pid in pids)


DAEMON = """
    import os, subprocess, sys
    daemon = "import os, time; open('part', 'w').write(str(os.getpid())); os.rename('part', 'pid'); time.sleep(600)"
    subprocess.Popen([sys.executable, "-c", daemon], start_new_session=True)
    while not os.path.exists("pid"):
        pass
"""


@on_linux
def test_a_daemon_in_a_session_of_its_own_does_not_stay_behind(write: Write) -> None:
    assert profile(write(dedent(DAEMON) + dedent(NET)))["totals"]["flops"] == FLOPS
    assert not is_running(int(Path("pid").read_text()))


@on_linux
def test_a_daemon_whose_parents_are_gone_dies_with_the_advisor(write: Write) -> None:
    orphaned = dedent(DAEMON).replace("subprocess.Popen(", "os.fork() or os.setsid() or os.fork() or subprocess.Popen(")
    parent = advisor_at_work(write(orphaned + "import time\ntime.sleep(600)"))
    daemon = int(when_there("pid"))
    parent.kill()
    parent.wait()
    assert ends_within(daemon, 10)


@on_linux
def test_a_fork_of_the_callers_own_keeps_nothing_alive(write: Write) -> None:
    """It holds the pipe by whose end the supervisor sees the advisor die."""
    parent = advisor_at_work(write(dedent(DAEMON) + "import time\ntime.sleep(600)"), fork=True)
    daemon = int(when_there("pid"))
    parent.kill()
    parent.wait()
    assert ends_within(daemon, 10)
    os.kill(int(Path("forked").read_text()), signal.SIGKILL)


@on_linux
def test_a_supervisor_that_the_file_stops_is_ended_all_the_same(write: Write) -> None:
    text = "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)\nopen('pid', 'w').write(str(os.getpid()))\n"
    assert profile(write(text + dedent(NET)))["totals"]["flops"] == FLOPS
    assert not is_running(int(Path("pid").read_text()))


def test_the_caller_is_no_subreaper_and_keeps_its_signal_handlers(write: Write) -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)]
    profile(write(NET))
    assert [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD)] == handlers
    if sys.platform == "linux":
        is_subreaper = ctypes.c_int(-1)
        ctypes.CDLL(None).prctl(37, ctypes.byref(is_subreaper), 0, 0, 0)  # PR_GET_CHILD_SUBREAPER
        assert is_subreaper.value == 0


@needs_proc
def test_a_profile_that_nobody_waits_for_is_ended_by_closing_it(write: Write) -> None:
    with start_profile(ProfileRequest(source=write("while True: pass"))) as child:
        pid = child.pid
    assert ends_within(pid, 2)
    child.close()


@pytest.mark.parametrize(
    "text",
    [
        "import json; json.dumps = lambda *_, **__: 'patched'",
        "import os; os._exit = open = None",
        "import sys, threading; sys.stdout = threading.Event = 3",
        "import os\nfor fd in range(3, 400):\n    try: os.write(fd, b'{}' * 99)\n    except OSError: pass",
    ],
)
def test_a_file_that_meddles_with_the_answer_is_answered_all_the_same(write: Write, text: str) -> None:
    assert profile(write(f"{text}\n{dedent(NET)}"))["totals"]["flops"] == FLOPS


def test_a_file_that_replaces_what_python_needs_is_told_so(write: Write, capfd: pytest.CaptureFixture[str]) -> None:
    error = error_of(write(f"{dedent(NET)}\nimport builtins\nbuiltins.len = None"))
    assert isinstance(error, LoadError)
    assert "builtins.len" in error.message
    assert "Traceback" not in capfd.readouterr().err


def test_an_answer_that_is_torn_is_an_error() -> None:
    read_fd, write_fd = os.pipe()
    payload = json.dumps({"is_last": False, "workload": {}}).encode()
    frame = spawn.packed(payload, token=b"t" * 16)
    for sent, problem in (
        (frame[:-20] + b"print" + frame[-20:], "wrote into the pipe"),
        (spawn.packed(b"[1]", token=b"t" * 16), "replaced functions that create"),
        (spawn.packed(b"\xff", token=b"t" * 16), "replaced functions that create"),
    ):
        process = spawn.SourceProcess(_process=None, _request_fd=-1, _result_fd=read_fd)  # type: ignore[arg-type]
        process._request, process._token = ProfileRequest(source="net.py"), b"t" * 16
        process._deadline_s = time.monotonic() + 60
        os.write(write_fd, b"printed" + sent)
        with pytest.raises(LoadError, match=problem):
            process.answer()
    os.close(read_fd)
    os.close(write_fd)


def test_a_result_over_the_limit_is_refused(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spawn, "RESULT_LIMIT_BYTES", 100)
    assert "over the limit" in error_of(write(NET)).message


def test_a_result_larger_than_a_pipe_holds_arrives_whole(write: Write) -> None:
    text = """
    import torch
    from torch import nn

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleDict({"layer_" + "long" * 50 + str(i): nn.Linear(i, i) for i in range(1, 200)})

        def forward(self, x):
            return sum(layer(x[:, : layer.in_features]).mean() for layer in self.layers.values())

    example_inputs = torch.zeros(2, 200)
    """
    workload = profile(write(text))
    assert len(json.dumps(workload)) > 2**16  # what a pipe of Linux holds
    # each layer has weights of i x i and a bias of i: the sum of i^2 and of i for i below 200
    assert workload["parameter_count"] == 199 * 200 * 399 // 6 + 199 * 200 // 2


def test_our_own_mistake_is_a_plain_exception_with_the_childs_traceback(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = """
import advisor.workload.sources as load
exec(compile("def load_broken(*_, **__): return 1 / 0", load.__file__, "exec"))
load.load = load_broken
main()"""
    monkeypatch.setattr(supervisor, "_START", supervisor._START.replace("; main()", broken))
    with pytest.raises(RuntimeError, match=r"(?s)process that reads sources failed.*ZeroDivisionError"):
        profile(write(NET))
