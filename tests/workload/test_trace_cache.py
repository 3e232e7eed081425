from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import platformdirs
import pytest

from advisor.workload import trace_cache
from advisor.workload.file import workload_to_json
from advisor.workload.spawn import ProfileRequest
from tests.predict.toys import linear_row, workload

SAVED = workload(linear_row())
DOCUMENT = workload_to_json(SAVED)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text("SIZE = 1")


def request(source: str = "net.py", **changes: Any) -> ProfileRequest:
    return ProfileRequest(source=source, **changes)


def test_what_was_written_is_read_again() -> None:
    assert trace_cache.read(request()) is None
    trace_cache.write(request(), DOCUMENT)
    assert trace_cache.read(request()) == SAVED


def test_more_patience_asks_for_the_same_trace() -> None:
    trace_cache.write(request(), DOCUMENT)
    assert trace_cache.read(request(timeout_s=1.0)) == SAVED


@pytest.mark.parametrize(
    "other",
    [
        request("net.py::Net"),
        request(mode="training"),
        request(batch=2),
        request(inputs=("8",)),
        request(attention="eager"),
    ],
)
def test_another_request_is_another_trace(other: ProfileRequest) -> None:
    trace_cache.write(request(), DOCUMENT)
    assert trace_cache.read(other) is None


def change_the_file() -> None:
    Path("net.py").write_text("SIZE = 2")


def add_a_file_that_it_may_import() -> None:
    Path("sizes.py").write_text("SIZE = 2")


@pytest.mark.parametrize("change", [change_the_file, add_a_file_that_it_may_import])
def test_a_change_in_the_files_folder_is_another_trace(change: Callable[[], None]) -> None:
    trace_cache.write(request(), DOCUMENT)
    change()
    assert trace_cache.read(request()) is None


def test_a_changed_config_is_another_trace() -> None:
    Path("config.json").write_text("{}")
    for source in ("hf:config.json", "hf:."):
        trace_cache.write(request(source), DOCUMENT)
        assert trace_cache.read(request(source)) == SAVED
    Path("config.json").write_text('{"n_layer": 2}')
    for source in ("hf:config.json", "hf:."):
        assert trace_cache.read(request(source)) is None


def test_another_version_of_torch_is_another_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    trace_cache.write(request(), DOCUMENT)
    monkeypatch.setattr(metadata, "version", lambda package: "0.1")
    trace_cache._program_digest.cache_clear()
    try:
        assert trace_cache.read(request()) is None
    finally:
        trace_cache._program_digest.cache_clear()


@pytest.mark.parametrize("spoil", [lambda kept: kept[:-9], lambda kept: b"", lambda kept: b"nothing like it"])
def test_a_file_that_is_not_whole_is_ignored(spoil: Callable[[bytes], bytes]) -> None:
    trace_cache.write(request(), DOCUMENT)
    (file,) = trace_cache.folder().iterdir()
    file.write_bytes(spoil(file.read_bytes()))
    assert trace_cache.read(request()) is None


def test_a_folder_that_cannot_be_written_is_let_be() -> None:
    Path("cache").write_text("a file where the folder should be")
    trace_cache.write(request(), DOCUMENT)
    trace_cache.forget_oldest()
    assert trace_cache.read(request()) is None


def test_the_oldest_go_first(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    monkeypatch.setattr(trace_cache, "_KEPT_COUNT", 2)
    for age, batch in enumerate((3, 2, 1)):
        trace_cache.write(request(batch=batch), DOCUMENT)
        newest = max(trace_cache.folder().iterdir(), key=lambda file: file.stat().st_mtime_ns)
        os.utime(newest, (age, age))
    trace_cache.forget_oldest()
    assert [trace_cache.read(request(batch=batch)) is None for batch in (3, 2, 1)] == [True, False, False]
