import ast
import os
from pathlib import Path

import pytest

import advisor
from advisor.answers.comparison import read_base
from advisor.answers.measurement_file import read_measurements
from advisor.catalog.strict_yaml import read_documents
from advisor.errors import AdvisorError
from advisor.files.regular_file import MOST_BYTES, read_regular_file
from advisor.serve.settings import _read_token
from advisor.workload.factory import whole_number_parameters
from advisor.workload.file import read_workload
from advisor.workload.sources.python_file import import_file

DOORS = {
    "measurements": read_measurements,
    "answer": read_base,
    "prices": read_documents,
    "token": _read_token,
    "workload": read_workload,
    "python file": import_file,
    "factory": lambda path: whole_number_parameters(str(path)),
}


def special_files(place: Path) -> dict[str, Path]:
    """Return paths that are not regular files, or are too large."""
    os.mkfifo(place / "pipe")
    (place / "link").symlink_to(place / "nowhere")
    with (place / "large").open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    return {
        "a pipe": place / "pipe",
        "a device": Path("/dev/zero"),
        "a folder": place,
        "a link to nothing": place / "link",
        "too large a file": place / "large",
        "a name with a NUL": place / "a\0b",
    }


def test_a_file_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"all of it")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    assert read_regular_file(tmp_path / "link") == b"all of it"


def test_a_pipe_a_device_and_a_file_without_end_are_refused_at_once(tmp_path: Path) -> None:
    for file in special_files(tmp_path).values():
        with pytest.raises(OSError):  # noqa: PT011 - of any number
            read_regular_file(file)


def test_a_link_to_nothing_is_named_with_what_it_links_to(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError) as caught:
        read_regular_file(tmp_path / "link")
    assert str(tmp_path / "nowhere") in str(caught.value.strerror)


@pytest.mark.parametrize("door", DOORS)
def test_so_does_every_door_for_files_of_the_users(tmp_path: Path, door: str) -> None:
    for file in special_files(tmp_path).values():
        with pytest.raises(AdvisorError):
            DOORS[door](file)


READS = {"open", "read_text", "read_bytes"}
ALLOWED_MODULES = {
    # Files that are part of the program, its wheel among them.
    "answers/full_report.py", "cli/commands/__init__.py", "files/own_code.py", "launch/own_wheel.py", "report/html.py",
    "serve/openapi.py", "serve/page.py", "serve/worker.py", "workload/sources/__init__.py",
    # The metadata of installed packages.
    "launch/packages.py",
    # Files of the kernel, and descriptors.
    "calibrate/noise.py", "calibrate/operator_child.py", "cli/terminal.py", "machine/limits.py", "workload/spawn.py",
    "workload/forked.py", "workload/supervisor.py", "workload/trace_child.py",
    # Opened without waiting and closed at once, so that the record of what a trace reads has it.
    "workload/model_config.py",
    # The file that is being written, and the one that reads.
    "files/regular_file.py", "files/whole_file.py",
    # Traces that the program itself has kept, and what they were made from: regular files, of a size, by their digests.
    "workload/dependencies.py", "workload/trace_cache.py",
}  # fmt: skip


def test_no_other_module_opens_a_file_by_itself() -> None:
    root = Path(advisor.__file__).parent
    found = set()
    for file in root.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                # `read_text` of the catalog takes a document.
                if name in READS and not (isinstance(node.func, ast.Name) and name != "open"):
                    found.add(str(file.relative_to(root)))
    assert found <= ALLOWED_MODULES
