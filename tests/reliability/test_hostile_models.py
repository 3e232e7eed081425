"""Model files that do to their process what a file can: an answer or a clean error, and nothing alive afterwards."""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from textwrap import dedent

import pytest

from tests.model_files import ONE_LAYER
from tests.reliability.attack import Attack

NET = dedent(ONE_LAYER)
MARK = "ADVISE_ATTACK"
LIMIT_S = 20
BUILTINS = ("len", "isinstance", "print", "open", "str", "dict", "type", "getattr", "Exception", "__import__", "sorted")
FUNCTIONS = (
    "json.dumps", "json.JSONEncoder.encode", "json.encoder.encode_basestring_ascii", "os._exit", "os.write",
    "threading.Event", "threading.Thread.start", "traceback.walk_tb", "linecache.getline", "gc.collect", "sys.exc_info",
    "os.path.realpath", "contextlib.suppress", "dataclasses.asdict", "pathlib.Path.resolve", "sys.getrecursionlimit",
)  # fmt: skip


def patched_builtin(chance: Random) -> str:
    value = chance.choice(["None", "lambda *a, **k: 1 / 0", "lambda *a, **k: None", "max"])
    return f"import builtins; builtins.{chance.choice(BUILTINS)} = {value}"


def patched_function(chance: Random) -> str:
    name = chance.choice(FUNCTIONS)
    value = chance.choice(["None", "lambda *a, **k: 1 / 0", "lambda *a, **k: 'x'"])
    modules = "contextlib, dataclasses, gc, json.encoder, linecache, os.path, pathlib, sys, threading, traceback"
    return f"import {modules}\n{name} = {value}"


def odd_exception(chance: Random) -> str:
    base = chance.choice(
        ["Exception", "BaseException", "SyntaxError", "SystemExit", "KeyboardInterrupt", "MemoryError"]
    )
    body = chance.choice(
        [
            "def __str__(self): raise self",
            "def __str__(self): return 3",
            "def __repr__(self): import os; os.abort()",
            "__traceback__ = None",
            "__class__ = property(lambda self: 1 / 0)",
            "__getattribute__ = None",
            "filename = code = args = name = property(lambda self: 1 / 0)",
        ]
    )
    return f"class Odd({base}):\n    {body}\nraise Odd('x')"


def huge_message(chance: Random) -> str:
    text = chance.choice(["'x' * 2 * 10**8", "'x\\n' * 10**7", "'\\ud800' * 10**6", "'\\x1b[2J' * 10**5"])
    return f"raise {chance.choice(['ValueError', 'SystemExit', 'KeyError', 'ImportError'])}({text})"


def recursion(chance: Random) -> str:
    limit = f"import sys; sys.setrecursionlimit({chance.choice([60, 1000, 10**5])})"
    body = chance.choice(["f()", "[f() for _ in (1,)]", "eval('f()')"])
    return f"{limit}\ndef f():\n    {body}\n" + chance.choice(["f()", "Net.forward = lambda self, x: f()"])


def daemon(chance: Random) -> str:
    sleep = "import time; time.sleep(600)"
    start = chance.choice(
        [
            f"subprocess.Popen([sys.executable, '-c', {sleep!r}], start_new_session=True)",
            "if not os.fork():\n    os.setsid()\n    if os.fork():\n        os._exit(0)\n    time.sleep(600)",
            "os.system('setsid sleep 600 &')",
            f"multiprocessing.Process(target=exec, args=({sleep!r},)).start()",
        ]
    )
    then = chance.choice(["", "os._exit(3)", "raise ValueError", "time.sleep(600)", "os.kill(os.getpid(), 9)"])
    return f"import multiprocessing, os, subprocess, sys, time\n{start}\n{then}"


GARBAGE = (b"{}", b"\0" * 24, b'{"is_last": false, "workload": {}}', b"\xff" * 5000)


def garbage(chance: Random) -> str:
    text = chance.choice(GARBAGE)
    first = chance.choice([0, 1, 3, 100, 200])
    write = f"    try: os.write(fd, {text!r})\n    except OSError: pass"
    loop = f"for fd in range({first}, 400):\n{write}"
    if chance.random() < 0.3:
        body = "\n".join(f"        {line}" for line in loop.splitlines())
        return f"import os, threading\ndef write():\n    while True:\n{body}\nthreading.Thread(target=write).start()"
    return f"import os\n{loop}"


def closed(chance: Random) -> str:
    return f"import os; os.closerange({chance.choice([0, 3, 100, 200])}, 70000)" + chance.choice(
        ["", "; raise ValueError"]
    )


def signalled(chance: Random) -> str:
    name = chance.choice(["SIGTERM", "SIGSTOP", "SIGKILL", "SIGINT", "SIGABRT", "SIGSEGV", "SIGHUP", "SIGPIPE"])
    to = chance.choice(["os.kill(os.getpid(), ", "os.killpg(0, ", "os.kill(os.getppid(), "])
    if "getppid" in to and name == "SIGKILL":
        name = "SIGTERM"  # whoever kills the supervisor may also kill the advisor
    return f"import os, signal; {to}signal.{name})"


def alarmed(chance: Random) -> str:
    handler = chance.choice(["signal.SIG_DFL", "lambda *_: 1 / 0", "lambda *_: None"])
    return f"import signal; signal.signal(signal.SIGALRM, {handler}); signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)"


def ended(chance: Random) -> str:
    return chance.choice(
        [
            f"import os; os._exit({chance.choice([0, 1, 4, 255])})",
            "import sys; sys.exit()",
            "quit()",
            "import ctypes; ctypes.string_at(0)",
            "import atexit, os; atexit.register(os.abort)",
            "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
        ]
    )


def threads(chance: Random) -> str:
    body = chance.choice(
        ["time.sleep(600)", "exec('while True: pass')", "raise ValueError", "_thread.interrupt_main()"]
    )
    return (
        "import _thread, threading, time\n"
        f"for _ in range({chance.randint(1, 3)}): threading.Thread(target=lambda: exec({body!r}, globals())).start()"
    )


def traced(chance: Random) -> str:
    return f"import sys; sys.{chance.choice(['settrace', 'setprofile'])}(lambda *_: 1 / 0)"


def replaced_stream(chance: Random) -> str:
    value = chance.choice(["None", "3", "type('S', (), {'flush': lambda s: exit(), 'write': lambda s, t: 1 / 0})()"])
    return f"import sys; sys.{chance.choice(['stdout', 'stderr', 'stdin'])} = {value}"


ATTACKS: tuple[Callable[[Random], str], ...] = (
    patched_builtin, patched_function, odd_exception, huge_message, recursion, daemon, garbage, closed, signalled,
    alarmed, ended, threads, traced, replaced_stream,
)  # fmt: skip


def alive(mark: str) -> Iterator[int]:
    """The processes, no zombies among them, that were started with the mark in their environment."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                if mark.encode() in (folder / "environ").read_bytes():
                    yield int(folder.name)
            except OSError:
                continue


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc, and daemons are ended on Linux")
def test_hostile_models(attack: Attack, tmp_path: Path) -> None:
    cases = iter(range(attack.count))

    def check(chance: Random) -> None:
        hostile = ATTACKS[next(cases) % len(ATTACKS)](chance)
        where = chance.choice(["before", "after", "in the step"])
        text = f"{hostile}\n{NET}" if where == "before" else f"{NET}\n{hostile}\n"
        if where == "in the step" and "Net." not in hostile:
            text = NET.replace("return self", f"exec({hostile!r}, globals())\n        return self")
        file = tmp_path / "model.py"
        file.write_text(dedent(text), encoding="utf-8")
        mark = f"{chance.random()}"
        run = subprocess.run(
            [sys.executable, "-m", "advisor", "profile", str(file), "--timeout", str(LIMIT_S)],
            capture_output=True,
            env=os.environ | {MARK: mark},
            timeout=6 * LIMIT_S,
        )
        said = run.stderr.decode(errors="replace")
        shown = f"{where}: {hostile[:300]}\n{said[-2000:]}"
        assert run.returncode in (0, 4), f"exit code {run.returncode}, {shown}"
        assert "advisor/" not in said.replace(str(file), "") or "Traceback" not in said, shown
        ours = run.stderr
        for theirs in GARBAGE:  # stderr is open to them, and a thread fills it for as long as it runs
            ours = ours.replace(theirs, b"")
        assert len(ours) < 60_000, shown
        time.sleep(0.05)
        assert not list(alive(f"{MARK}={mark}")), shown

    attack.each(check, count=min(attack.count, 3 * len(ATTACKS)))
