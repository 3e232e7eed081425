from collections.abc import Iterator
from pathlib import Path

import pytest

from advisor.files import own_code
from advisor.files.own_code import code_digest, code_files


@pytest.fixture(autouse=True)
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package with two rooms, of which one has a folder, and a module beside them."""
    for name in ("ops/matmul.py", "ops/more/conv.py", "report/html.py", "units.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("a = 1\n")
    monkeypatch.setattr(own_code, "PACKAGE", tmp_path)
    code_digest.cache_clear()
    yield tmp_path
    code_digest.cache_clear()


def digest(*parts: str) -> str:
    """As in a new process."""
    code_digest.cache_clear()
    return code_digest(*parts)


@pytest.mark.parametrize("name", ["ops/matmul.py", "ops/more/conv.py", "units.py", "ops/new.py"])
def test_a_change_in_a_part_is_other_code(package: Path, name: str) -> None:
    before = digest("ops", "units.py")
    (package / name).write_text("a = 2\n")
    assert digest("ops", "units.py") != before


@pytest.mark.parametrize("name", ["report/html.py", "errors.py", "ops/tables.json"])
def test_a_change_elsewhere_is_the_same_code(package: Path, name: str) -> None:
    before = digest("ops", "units.py")
    (package / name).write_text("a = 2\n")
    assert digest("ops", "units.py") == before


def test_code_that_moves_to_another_file_is_other_code(package: Path) -> None:
    before = digest("ops")
    (package / "ops/matmul.py").write_text("a = 1\na = 1\n")
    (package / "ops/more/conv.py").write_text("")
    moved = digest("ops")
    (package / "ops/matmul.py").rename(package / "ops/matmuls.py")  # as the first, as before
    assert len({before, moved, digest("ops")}) == 3


def test_the_program_may_lie_in_any_folder(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = digest("ops")
    (tmp_path / "elsewhere").mkdir()
    (package / "ops").rename(tmp_path / "elsewhere/ops")
    monkeypatch.setattr(own_code, "PACKAGE", tmp_path / "elsewhere")
    assert digest("ops") == before


def test_a_part_that_is_not_there_is_an_error() -> None:
    with pytest.raises(FileNotFoundError, match="opps"):
        list(code_files("ops", "opps"))
