"""The packages that imports need, as this environment has them."""

import json
from importlib import metadata
from pathlib import Path

import pytest

from advisor.launch import packages as module
from advisor.launch.packages import packages_of


def distribution(folder: Path, name: str, version: str, origin: object = None) -> metadata.Distribution:
    info = folder / f"{name}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    if origin is not None:
        (info / "direct_url.json").write_text(json.dumps(origin))
    return metadata.Distribution.at(info)


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some packages of all kinds."""
    commit = {"url": "https://example.org/a.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}
    found = {
        "torch": distribution(tmp_path, "torch", "2.9.1+cpu"),
        "torchvision": distribution(tmp_path, "torchvision", "0.24.1"),
        "pillow": distribution(tmp_path, "Pillow", "11.0"),
        "nightly": distribution(tmp_path, "nightly", "1.0.dev3"),
        "of_git": distribution(tmp_path, "of_git", "1", commit),
        "of_folder": distribution(tmp_path, "of_folder", "1", {"url": "file:///x", "dir_info": {"editable": True}}),
    }
    modules = {name: [name] for name in found} | {"PIL": ["pillow"], "google": ["a", "b"]}
    monkeypatch.setattr(module.metadata, "packages_distributions", lambda: modules)
    monkeypatch.setattr(module.metadata, "distribution", found.__getitem__)


def test_modules_become_packages_with_their_versions() -> None:
    found = packages_of(("PIL", "nightly", "of_git", "torchvision"), requirements=Path("none"))
    assert found.of_torch == ("torch==2.9.1", "torchvision==0.24.1")
    assert found.others == ("Pillow==11.0", "nightly", "of_git @ git+https://example.org/a.git@abc")
    assert found.doubts == ()


def test_what_cannot_be_installed_is_doubted() -> None:
    found = packages_of(("google", "missing", "of_folder"), requirements=Path("none"))
    assert found.others == ()
    assert [name in doubt for name, doubt in zip(("google", "missing", "of_folder"), found.doubts, strict=True)] == [
        True, True, True,
    ]  # fmt: skip


def test_what_the_requirements_name_is_left_to_them(tmp_path: Path) -> None:
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("-r more.txt\n# of-git\nPillow[all]>=10 ; python_version > '3'\nOF.GIT\n")
    assert packages_of(("PIL", "of_git"), requirements=requirements).others == ()
