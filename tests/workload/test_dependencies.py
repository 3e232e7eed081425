"""What a script read that another machine may lack."""

from pathlib import Path

import pytest

from advisor.workload.dependencies import script_reads


def test_folders_outside_this_one_and_variables_that_are_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, data = tmp_path / "here", tmp_path / "data"
    for folder in (here, data, data / "images"):
        folder.mkdir()
        (folder / "part.bin").write_text("")
    monkeypatch.chdir(here)
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.delenv("WANDB_API_KEY", raising=False)
    reads = script_reads(
        {
            str(here / "part.bin"): "file 0",
            str(here): "names 0",
            str(data / "part.bin"): "file 0",
            str(data / "images"): "names 0",
            str(tmp_path / "gone" / "part.bin"): "file FileNotFoundError",
            "/etc/hosts": "file 0",
            "HF_TOKEN": "variable 0",
            "WANDB_API_KEY": "variable 0",
            "HOME": "variable 0",
            "outside": "socket.connect",
        }
    )
    assert reads.outside == (str(data), str(data / "images"))
    assert reads.variables == ("HF_TOKEN",)
