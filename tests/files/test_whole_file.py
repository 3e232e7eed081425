import fcntl
import os
import stat
from pathlib import Path

import pytest

from advisor.files.whole_file import replace_whole, why_unwritable, write_whole


def test_the_new_text_stands_in_place_of_the_old(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("old")
    write_whole("é", file)
    assert file.read_bytes() == "é".encode()
    assert list(tmp_path.iterdir()) == [file]


def test_a_link_stays_one_to_the_file_that_is_written(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_whole("new", tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"


def test_what_cannot_be_encoded_leaves_the_old_file_and_no_part_of_a_new_one(tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    file.write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write_whole("a\ud800", file)
    assert file.read_text() == "old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_file_keeps_its_permissions_and_a_new_one_has_those_of_any(tmp_path: Path) -> None:
    old, new, other = tmp_path / "old", tmp_path / "new", tmp_path / "other"
    for file in (old, other):
        file.write_text("old")
    old.chmod(0o640)
    for file in (old, new):
        write_whole("new", file)
    assert [file.stat().st_mode for file in (old, new)] == [stat.S_IFREG | 0o640, other.stat().st_mode]


def test_what_is_replaced_has_the_permissions_that_are_given_whatever_it_was(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "cached")
    replace_whole(b"new", tmp_path / "cached", mode=0o600)
    assert (tmp_path / "cached").read_bytes() == b"new"
    assert (tmp_path / "cached").stat().st_mode == stat.S_IFREG | 0o600


def test_a_pipe_is_written_into(tmp_path: Path) -> None:
    pipe = tmp_path / "answer.json"
    os.mkfifo(pipe)
    (tmp_path / "link.json").symlink_to(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole("é", tmp_path / "link.json")
        assert os.read(reader, 10) == "é".encode()
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_device_is_written_into(tmp_path: Path) -> None:
    (tmp_path / "answer.json").symlink_to(os.devnull)
    write_whole("new", tmp_path / "answer.json")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    with pytest.raises(IsADirectoryError):
        write_whole("new", tmp_path)


def test_an_open_descriptor_is_written_into(tmp_path: Path) -> None:
    read_fd, write_fd = os.pipe()
    write_whole("new", Path(f"/dev/fd/{write_fd}"))
    os.close(write_fd)
    assert os.read(read_fd, 10) == b"new"
    os.close(read_fd)


def test_the_part_of_a_writer_that_was_killed_is_removed_and_that_of_another_is_not(tmp_path: Path) -> None:
    stale, live = tmp_path / ".1.advise-part", tmp_path / ".2.advise-part"
    others = tmp_path / ".film.mkv.part"
    for file in (stale, live, others):
        file.write_text("half")
    with live.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write_whole("whole", tmp_path / "file")
    assert sorted(tmp_path.iterdir()) == [live, others, tmp_path / "file"]


def test_a_part_that_is_swept_before_it_is_locked_is_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lock, swept = fcntl.flock, []

    def swept_first(descriptor: int, operation: int) -> None:
        if not swept:
            swept.extend(tmp_path.iterdir())
            swept[0].unlink()
        lock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", swept_first)
    write_whole("whole", tmp_path / "file")
    assert len(swept) == 1
    assert (tmp_path / "file").read_text() == "whole"
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


def test_the_longest_name_that_a_folder_takes_can_be_written(tmp_path: Path) -> None:
    write_whole("whole", tmp_path / ("x" * 255))
    assert len(list(tmp_path.iterdir())) == 1


def test_a_folder_that_can_be_written_is_created_and_left_empty(tmp_path: Path) -> None:
    folder = tmp_path / "of" / "answers"
    assert why_unwritable(folder) == ""
    assert list(folder.iterdir()) == []


def test_a_folder_that_cannot_be_created_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert (
        why_unwritable(tmp_path / "file" / "in_it")
        == f"{tmp_path / 'file' / 'in_it'} cannot be written: Not a directory"
    )
