from pathlib import Path

import pytest

from advisor.catalog import overlay


def test_the_shipped_profiles_are_where_devices_and_prices_are() -> None:
    folder = overlay.shipped_profiles()
    assert (folder / "devices/gpu/t4.yaml").is_file()
    assert (folder / "prices/aws.yaml").is_file()


def test_profiles_inside_the_package_as_in_a_wheel_win_over_those_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "advisor"
    monkeypatch.setattr(overlay, "_PACKAGE", package)
    (tmp_path / "profiles/devices").mkdir(parents=True)
    assert overlay.shipped_profiles() == tmp_path / "profiles"
    (package / "profiles/devices").mkdir(parents=True)
    assert overlay.shipped_profiles() == package / "profiles"


def test_an_installation_without_profiles_is_named_as_incomplete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(overlay, "_PACKAGE", tmp_path / "advisor")
    with pytest.raises(FileNotFoundError, match="the installation is incomplete"):
        overlay.shipped_profiles()
