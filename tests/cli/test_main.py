"""Which command runs, how it fails, and with which code."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from advisor import errors
from advisor.cli.commands import command_names, load_command
from tests.cli.conftest import Pipeline, Result
from tests.report.toys import recommendation
from tests.says import assert_says

Advise = Callable[..., Result]


def test_a_source_without_a_command_is_ranked(advise: Advise, pipeline: Pipeline) -> None:
    assert advise("model.py").out == advise("rank", "model.py").out
    assert [call["source"] for call in pipeline.asked] == ["model.py", "model.py"]


def test_flags_may_come_before_the_source(advise: Advise, pipeline: Pipeline) -> None:
    assert advise("--batch", "8", "model.py").code == 0
    assert pipeline.asked[0]["options"].batch == "8"


def test_a_command_wins_over_a_file_of_its_name(advise: Advise, pipeline: Pipeline) -> None:
    result = advise("rank")
    assert result.code == 2
    assert_says(result.err, "error:", "'SOURCE'", "hint:", "advise rank --help")
    assert advise("./rank").code == 0
    assert pipeline.asked[0]["source"] == "./rank"


def test_nothing_at_all_asks_for_a_model(advise: Advise) -> None:
    result = advise()
    assert (result.code, result.out) == (2, "")
    assert_says(result.err, "error:", "model", "hint:", "advise model.py", "advise --help")


def test_a_mistyped_command_is_recognised(advise: Advise, pipeline: Pipeline) -> None:
    result = advise("profle", "model.py")
    assert result.code == 2
    assert_says(result.err, "error:", "'model.py'", "'profle'", "hint:", "profile")
    assert pipeline.asked == []


def test_a_mistyped_flag_is_recognised(advise: Advise, pipeline: Pipeline) -> None:
    result = advise("model.py", "--bach", "8")
    assert result.code == 2
    assert_says(result.err, "error:", "--bach", "hint:", "--batch", "--arch")  # the closest first


@pytest.mark.parametrize(
    ("arguments", "hints"),
    [
        (("model.py", "--on", "t4"), ("`advise explain`",)),
        (("train.py", "--run", "--bs", "128"), ("--run -- --bs",)),
        (("compare", "model.py"), ("`advise diff", "--compare-to")),
    ],
)
def test_what_belongs_elsewhere_is_said_to(
    advise: Advise, pipeline: Pipeline, arguments: tuple[str, ...], hints: tuple[str, ...]
) -> None:
    result = advise(*arguments)
    assert result.code == 2
    assert all(hint in result.err.partition("hint:")[2] for hint in hints)
    assert pipeline.asked == []


def test_a_flag_without_its_value_is_a_usage_error(advise: Advise, pipeline: Pipeline) -> None:
    result = advise("model.py", "--batch")
    assert result.code == 2
    assert_says(result.err, "error:", "--batch", "hint:", "advise --help")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.NothingFitsError("no offer has 1 TiB"), 1),
        (errors.UsageError("odd"), 2),
        (errors.ProfileError("a price of 0", where="advisor.yaml:3: usd_per_hour"), 2),
        (errors.LoadError("there is no model.py"), 4),
        (errors.TraceError("the step failed"), 4),
        (errors.CoverageError("aten.foo has no formula"), 4),
    ],
)
def test_every_mistake_of_the_user_has_its_code_and_no_traceback(
    advise: Advise, pipeline: Pipeline, error: errors.AdvisorError, code: int
) -> None:
    pipeline.answer = error
    result = advise("model.py")
    assert (result.code, result.out, result.err) == (code, "", f"error: {error.message}\n")


def test_a_hint_follows_its_error(advise: Advise, pipeline: Pipeline) -> None:
    pipeline.answer = errors.LoadError("there is no modle.py", hint="did you mean model.py?")
    assert advise("modle.py").err == "error: there is no modle.py\nhint: did you mean model.py?\n"


def test_a_mistake_of_ours_is_not_hidden(advise: Advise, pipeline: Pipeline) -> None:
    pipeline.answer = ZeroDivisionError("ours")
    with pytest.raises(ZeroDivisionError, match="ours"):
        advise("model.py")


def test_a_mistake_of_ours_ends_the_process_with_70_and_a_traceback() -> None:
    stand_in = "from advisor.cli import main; main.run = lambda _: 1 / 0; main.main()"
    done = _python("-c", stand_in)
    assert done.returncode == errors.ExitCode.INTERNAL == 70
    assert done.stderr.startswith("Traceback (most recent call last):")
    assert done.stderr.endswith("ZeroDivisionError: division by zero\n")


def test_an_interrupt_ends_with_130(advise: Advise, pipeline: Pipeline) -> None:
    pipeline.answer = KeyboardInterrupt()
    assert advise("model.py") == Result(130, "", "")


def test_nothing_that_fits_ends_with_1_and_still_says_why(advise: Advise, pipeline: Pipeline) -> None:
    pipeline.answer = recommendation()
    result = advise("model.py")
    assert result.code == 1
    assert_says(result.out, "0 offers")


@pytest.mark.parametrize(
    ("flag", "meant"), [("--gpu", "--device"), ("--spot", "--price spot"), ("--quantization", "--weights")]
)
def test_the_flag_of_another_tool_is_told_how_it_is_written_here(advise: Advise, flag: str, meant: str) -> None:
    result = advise("model.py", flag)
    assert result.code == 2
    assert_says(result.err, f"no such flag: {flag}", "hint:", meant)


@pytest.mark.parametrize(("command", "takes_several"), [("rank", True), ("memory", False), ("profile", False)])
def test_a_command_that_takes_one_batch_size_says_so_in_its_help(
    advise: Advise, command: str, takes_several: bool
) -> None:
    assert ("N|N,M|A..B|auto" in advise(command, "--help").out) == takes_several


def test_the_version_is_printed(advise: Advise) -> None:
    from advisor import __version__

    assert advise("--version") == Result(0, f"advise {__version__}\n", "")


@pytest.mark.parametrize("arguments", [("--help",), ("rank", "--help"), ("profile", "-h"), ("model.py", "--help")])
def test_every_help_says_that_the_file_is_executed_and_shows_examples(
    advise: Advise, arguments: tuple[str, ...]
) -> None:
    result = advise(*arguments)
    assert (result.code, result.err) == (0, "")
    assert "EXECUTED" in result.out
    assert "Examples:\n    advise " in result.out


def _commands() -> Iterator[tuple[str, ...]]:
    for name in command_names():
        command = load_command(name)
        yield (name,)
        if isinstance(command, click.Group):
            yield from ((name, sub) for sub in command.commands)


@pytest.mark.parametrize("names", [(), *_commands()], ids=" ".join)
def test_every_help_fits_80_columns_and_has_examples_and_exit_codes(advise: Advise, names: tuple[str, ...]) -> None:
    text = advise(*names, "--help").out
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert "Examples:\n    advise " in text
    if names != ("prices",):  # its commands exit, it does not
        codes = [line.split()[0] for line in text[text.index("Exit codes:") :].splitlines()[1:]]
        assert {"0", "2", "70", "130"} <= set(codes) <= {str(int(code)) for code in errors.ExitCode}


def test_the_first_help_lists_every_command_and_exit_code(advise: Advise) -> None:
    text = advise("--help").out
    listed = [" ".join(line.split()) for line in text.splitlines()]
    for command in (
        "rank Rank instances",
        "profile Count the FLOP",
        "validate Compare predictions",
        "prices List, check, change and refresh prices.",
        "fit-device Fit the sustained",
    ):
        assert any(line.startswith(command) for line in listed), command
    for code in errors.ExitCode:
        assert f"{int(code)} " in text[text.index("Exit codes:") :]


def _python(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, **more)  # type: ignore[call-overload,no-any-return]


def test_help_imports_neither_torch_nor_numpy_nor_pydantic_nor_rich() -> None:
    done = _python(
        "-c",
        "import sys; from advisor.cli.main import run; run(['--help']); run(['rank', '--help']);"
        "print(sorted({name.split('.')[0] for name in sys.modules} & {'torch', 'numpy', 'pydantic', 'rich', 'yaml'}))",
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_the_list_of_commands_needs_no_flags() -> None:
    # The bar for `advise --help` is 6 times `python -c pass`; the records of the flags alone would cost as much again.
    done = _python(
        "-c",
        "import sys; from advisor.cli.main import run; run(['--help']);"
        "print([name for name in sys.modules if name.startswith(('advisor.records', 'advisor.report'))])",
    )
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_the_list_of_commands_imports_nothing_slow_that_click_does_without() -> None:
    loaded = "print(sorted({'logging', 'pathlib', 'difflib', 'dataclasses'} & set(sys.modules)))"
    alone = _python("-c", f"import sys, click; {loaded}")
    listed = _python("-c", f"import sys; from advisor.cli.main import run; run(['--help']); {loaded}")
    assert listed.stdout.splitlines()[-1] == alone.stdout.splitlines()[-1], listed.stderr


def _process(*arguments: str, stdout: int) -> tuple[int, bytes]:
    """Exit code and stderr of `advise` in a process of its own, which flushes stdout once more as it ends."""
    stand_in = (
        "import sys; from tests.cli.conftest import Pipeline; stand_in = Pipeline();"
        "sys.modules['advisor.answers.ranking'] = sys.modules['advisor.question.from_source'] = stand_in;"
        "from advisor.cli.main import main; main()"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(
        [sys.executable, "-c", stand_in, *arguments], stdout=stdout, stderr=subprocess.PIPE, timeout=60, env=buffered
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize("arguments", [("rank", "--help"), ("model.py",), ("model.py", "-o", "json")])
def test_a_reader_that_leaves_causes_no_noise(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert _process(*arguments, stdout=writer) == (0, b"")
    finally:
        os.close(writer)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a stream that takes nothing")
def test_a_full_disk_is_an_error_not_a_traceback() -> None:
    with open("/dev/full", "wb") as full:
        assert _process("model.py", stdout=full.fileno()) == (
            2,
            b"error: cannot write to stdout: No space left on device\nhint: choose another place with -o\n",
        )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_ends_as_ctrl_c_does(number: signal.Signals, tmp_path: Path) -> None:
    text = "import os, time\nopen('part', 'w').write(str(os.getpid()))\nos.rename('part', 'pid')\ntime.sleep(600)"
    (tmp_path / "model.py").write_text(text)
    root = Path(__file__).parents[2]
    advise = subprocess.Popen(
        # Whoever runs the tests may ignore SIGHUP, as under nohup.
        [
            sys.executable,
            "-c",
            f"import signal; signal.signal({number:d}, signal.SIG_DFL); from advisor.cli.main import main; main()",
            "profile",
            "model.py",
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    deadline = time.monotonic() + 60
    while not (tmp_path / "pid").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    advise.send_signal(number)
    assert advise.wait(30) == 130
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As under nohup."""
    code = (
        "import signal, sys; signal.signal(signal.SIGHUP, signal.SIG_IGN); sys.argv = ['advise', '--version']\n"
        "from advisor.cli.main import main\n"
        "try: main()\n"
        "except SystemExit: print(signal.getsignal(signal.SIGHUP) is signal.SIG_IGN)"
    )
    assert _python("-c", code).stdout.splitlines()[-1] == "True"


def test_python_dash_m_is_the_same_program() -> None:
    done = _python("-m", "advisor", "--version")
    assert (done.returncode, done.stdout.split()[0]) == (0, "advise")
