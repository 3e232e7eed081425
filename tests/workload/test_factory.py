"""Arguments of a factory, read and written without running its file."""

from pathlib import Path
from textwrap import dedent

import pytest

from advisor.errors import LoadError
from advisor.workload.factory import split_call, whole_number_parameters, with_argument


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "net.py"
    path.write_text(
        dedent("""
            raise SystemExit("this file is never run")

            def get_model(width=64, *, depth: int = 4, ratio=0.5, bias=True, name="a", classes):
                ...

            class Net:
                def __init__(self, width: int = 8, layers=2):
                    ...
        """)
    )
    return str(path)


def test_a_call_is_a_name_with_keywords() -> None:
    assert split_call("get_model") == ("get_model", {})
    assert split_call("Net(width=64, bias=False, act='gelu', scale=-0.5)") == (
        "Net", {"width": 64, "bias": False, "act": "gelu", "scale": -0.5},
    )  # fmt: skip


@pytest.mark.parametrize(
    "text", ["Net(64)", "Net(width=", "Net(**all)", "a.Net(width=1)", "Net(width=big)", "Net(w=[1])"]
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(LoadError, match="keyword arguments"):
        split_call(text)


def test_an_argument_is_set_beside_the_others(file: str) -> None:
    assert with_argument(f"{file}::Net(layers=3)", "width", 16) == f"{file}::Net(layers=3, width=16)"
    assert with_argument(f"{file}::Net(width=3)", "width", 16) == f"{file}::Net(width=16)"
    assert with_argument(file, "width", 16) == f"{file}::get_model(width=16)"


def test_parameters_with_whole_numbers_are_found_with_their_defaults(file: str) -> None:
    assert whole_number_parameters(file) == {"width": 64, "depth": 4}
    assert whole_number_parameters(f"{file}::Net") == {"width": 8, "layers": 2}
    assert whole_number_parameters(f"{file}::Net(layers=6)") == {"width": 8, "layers": 6}
    assert whole_number_parameters(f"{file}::elsewhere") == {}


def test_a_file_without_a_clear_factory_asks_for_its_name(tmp_path: Path) -> None:
    path = tmp_path / "two.py"
    path.write_text("class A: ...\nclass B: ...\n")
    with pytest.raises(LoadError, match=r"two\.py.*\bfunction or class"):
        whole_number_parameters(str(path))
    with pytest.raises(LoadError, match="No such file"):
        whole_number_parameters(str(tmp_path / "none.py"))
