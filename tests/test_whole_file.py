from pathlib import Path

import pytest

from advisor.whole_file import write_whole


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
