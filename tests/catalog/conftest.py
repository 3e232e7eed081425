"""The shipped catalog, and folders of the test's own in place of the user's."""

from pathlib import Path

import platformdirs
import pytest

from advisor.catalog.overlay import layers
from advisor.catalog.parse import parse_catalog
from advisor.records.price import Catalog


@pytest.fixture(scope="session")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    in_force = layers(profiles=None, prices=(), cwd=tmp_path_factory.mktemp("empty"))
    return parse_catalog(in_force[-1:])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without configuration or cache; returns the folder that holds `config/`, `cache/` and `work/`."""
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / "config" / name)
    monkeypatch.setattr(platformdirs, "user_cache_path", lambda name: tmp_path / "cache" / name)
    (tmp_path / "work").mkdir()
    return tmp_path
