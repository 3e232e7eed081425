import os
import threading
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
import torch

import advisor.errors
from advisor.errors import LoadError
from advisor.workload.user_error import explain, is_user_file, passes_arguments_on, raised_by_us, where_now
from tests.says import assert_says

TEXT = """\
def outer(x):
    return inner(x)

def inner(x):
    return torch.nn.functional.linear(x, torch.zeros(4, 3))

outer(torch.zeros(2, 5))
"""


def run(folder: Path, text: str) -> BaseException:
    """The exception that a user's file of this text raises."""
    path = folder / "theirs.py"
    path.write_text(dedent(text), encoding="utf-8")
    with pytest.raises(BaseException) as caught:  # noqa: PT011 - whatever it is
        exec(compile(path.read_bytes(), str(path), "exec"), {"torch": torch, "__name__": "theirs", "__package__": ""})
    return caught.value


def message_of(folder: Path, text: str) -> LoadError:
    return explain(run(folder, text), what="it failed")


def test_the_message_shows_the_users_lines_and_torchs_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first, *frames = message_of(tmp_path, TEXT).message.splitlines()
    assert first.startswith("it failed: RuntimeError: ")
    assert "shapes cannot be multiplied (2x5 and 3x4)" in first
    assert [line for line in frames if "theirs.py" in line] == [
        "  theirs.py:7: outer(torch.zeros(2, 5))",
        "  theirs.py:2 in outer: return inner(x)",
        "  theirs.py:5 in inner: return torch.nn.functional.linear(x, torch.zeros(4, 3))",
    ]
    assert not [line for line in frames if "functional.py" in line]


def test_files_of_torch_of_the_standard_library_and_ours_are_not_the_users(tmp_path: Path) -> None:
    others = (torch.__file__, os.__file__, advisor.errors.__file__, "<string>", "<frozen importlib._bootstrap>")
    assert not any(map(is_user_file, others))
    assert is_user_file(str(tmp_path / "theirs.py"))


def test_a_syntax_error_shows_the_line_with_a_caret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("theirs.py")
    path.write_text("x = 1\nif x:\n    y = (1 + = 2)\n", encoding="utf-8")
    with pytest.raises(SyntaxError) as caught:
        compile(path.read_bytes(), str(path), "exec")
    # column 14 of the line, of which 4 are its indentation: the caret stands under the lone `=`
    assert explain(caught.value, what="").message == (
        "theirs.py:3: invalid syntax\n    y = (1 + = 2)\n" + " " * 4 + " " * 9 + "^"
    )


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("raise MemoryError", "get_model"),
        ("torch.empty(2**45)", "get_model"),
        ("import nonesuch", "`pip install nonesuch`"),
        ("raise ModuleNotFoundError(name='pytorch_lightning.core')", "`pip install --upgrade pytorch-lightning`"),
        ("raise ImportError('Trainer requires it: run `pip install accelerate -U`')", "`pip install accelerate -U` in"),
        ("from . import x", "outside the package"),
        ("raise EOFError", "no terminal"),
        ("raise __import__('urllib.error').error.URLError('no route')", "Weights are never needed"),
        ("raise OSError('not cached') from ConnectionError('offline')", "Weights are never needed"),
        ("import sys; sys.exit(3)", "__main__"),
    ],
)
def test_what_can_be_mended_has_a_hint(tmp_path: Path, text: str, hint: str) -> None:
    assert hint in message_of(tmp_path, text).hint


def test_sys_exit_is_named_with_its_code(tmp_path: Path) -> None:
    assert "it failed: the file called sys.exit(3)" in message_of(tmp_path, "import sys; sys.exit(3)").message


def test_a_long_message_is_cut(tmp_path: Path) -> None:
    message = message_of(tmp_path, "raise ValueError('\\n'.join(f'key {i}' for i in range(300)))").message
    assert "key 11\n... and 288 more lines" in message
    assert "key 12" not in message


OUR_FILE = str(Path(advisor.errors.__file__).with_name("trace.py"))


def raised_in(text: str, file: str, **names: Any) -> Exception:
    """Return the error that `text` raises as a line of `file`, without the frame of this test."""
    with pytest.raises(Exception) as caught:  # noqa: PT011 - any kind
        exec(compile(text, file, "exec"), names)
    assert caught.tb.tb_next is not None
    return caught.value.with_traceback(caught.tb.tb_next)


def called_by_theirs(text: str, tmp_path: Path) -> Exception:
    theirs = str(tmp_path / "theirs.py")
    return raised_in("call()", theirs, call=lambda: exec(compile(text, OUR_FILE, "exec")))


@pytest.mark.parametrize("text", ["{}['row']", "None.shape", "import json; json.loads('{')", "[][0]", "int('a')"])
def test_an_error_in_our_line_is_ours_also_where_their_code_called_it(tmp_path: Path, text: str) -> None:
    assert raised_by_us(raised_in(text, OUR_FILE))
    assert raised_by_us(called_by_theirs(text, tmp_path))
    assert not raised_by_us(raised_in(text, str(tmp_path / "theirs.py")))


def test_what_a_kernel_of_torch_says_in_our_line_is_ours_only_where_no_code_of_theirs_called_it(tmp_path: Path) -> None:
    text = "import torch; torch.zeros(2, 3) @ torch.zeros(2, 3)"
    assert raised_by_us(raised_in(text, OUR_FILE))
    assert not raised_by_us(called_by_theirs(text, tmp_path))


def test_what_torch_says_of_the_arguments_that_we_hand_on_is_theirs() -> None:
    namespace: dict[str, Any] = {"passes_arguments_on": passes_arguments_on}
    exec(
        compile("@passes_arguments_on\ndef call(function, *given): return function(*given)", OUR_FILE, "exec"),
        namespace,
    )
    assert not raised_by_us(raised_in("call(torch.relu, 1)", OUR_FILE, torch=torch, **namespace))
    # A lookup of our own in the same function.
    assert raised_by_us(raised_in("call({}.__getitem__, 1)", OUR_FILE, **namespace))


def test_a_recursion_shows_both_ends_alone(tmp_path: Path) -> None:
    message = message_of(tmp_path, "def f(n):\n    return f(n + 1)\nf(0)").message
    assert "RecursionError" in message
    assert len(message.splitlines()) == 1 + 8 + 1 + 8
    assert len(message) < 4000


@pytest.mark.parametrize(
    "text",
    [
        "raise ValueError('x' * 10**8)",
        "raise ValueError('x\\n' * 10**7)",
        "import sys; sys.exit('x' * 10**8)",
        "raise type('E' * 10**7, (Exception,), {})",
        "raise SyntaxError('x' * 10**7, ('theirs.py', 1, 10**12, 'y' * 10**7))",
        "pass;" * 10**6 + "1 / 0",
    ],
)
def test_no_message_is_longer_than_a_screen(tmp_path: Path, text: str) -> None:
    assert len(message_of(tmp_path, text).message) < 10_000


@pytest.mark.parametrize(
    "text",
    [
        "def __str__(self): raise self",
        "def __str__(self): return 3",
        "def __str__(self): raise KeyboardInterrupt",
        "__str__ = None",
        "__traceback__ = None; args = property(lambda self: 1 / 0)",
    ],
)
def test_an_exception_whose_class_misbehaves_is_shown_with_its_line(tmp_path: Path, text: str) -> None:
    error = message_of(tmp_path, f"class Odd(Exception):\n    {text}\nraise Odd")
    assert "Odd" in error.message
    assert "theirs.py:3" in error.message


@pytest.mark.parametrize("text", ["filename = property(lambda self: 1 / 0)", "__getattribute__ = None"])
def test_an_exception_that_cannot_be_read_at_all_is_named(tmp_path: Path, text: str) -> None:
    assert "Odd" in message_of(tmp_path, f"class Odd(SyntaxError):\n    {text}\nraise Odd").message


def test_a_syntax_error_is_theirs_though_we_compile(tmp_path: Path) -> None:
    with pytest.raises(SyntaxError) as caught:
        compile("def f(:", str(tmp_path / "theirs.py"), "exec")
    assert not raised_by_us(caught.value)


def test_where_a_thread_is_shows_the_users_lines_outermost_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("theirs.py")
    path.write_text("def step():\n    there.set()\n    go_on.wait()\n\nstep()\n", encoding="utf-8")
    there, go_on = threading.Event(), threading.Event()
    code = compile(path.read_bytes(), str(path), "exec")
    thread = threading.Thread(target=exec, args=(code, {"there": there, "go_on": go_on}))
    thread.start()
    try:
        there.wait()
        frames = where_now(thread.ident or 0)
    finally:
        go_on.set()
        thread.join()
    assert frames[0] == "  theirs.py:5: step()"
    assert frames[1].startswith("  theirs.py:")
    assert " in step: " in frames[1]


@pytest.mark.parametrize(
    "text",
    [
        "assert torch.cuda.is_available()",
        "torch.cuda.get_device_name(0)",
        "raise RuntimeError('Found no NVIDIA driver')  # as cuda says",
    ],
)
def test_code_that_insists_on_a_gpu_is_told_to_ask_first(tmp_path: Path, text: str) -> None:
    assert_says(message_of(tmp_path, text).hint, "GPU", "torch.cuda.is_available()")


def test_other_assertions_have_nothing_to_do_with_a_gpu(tmp_path: Path) -> None:
    assert message_of(tmp_path, "assert torch.zeros(1)").hint == ""


def test_a_module_without_a_name_is_not_to_be_installed(tmp_path: Path) -> None:
    # transformers raises this for whatever goes wrong in a module that it loads late
    error = message_of(tmp_path, "raise ModuleNotFoundError(\"Could not import module 'BertModel'\")")
    assert error.hint == ""
    assert "Could not import module 'BertModel'" in error.message
