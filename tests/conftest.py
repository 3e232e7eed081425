"""Declares the operators that torchvision imports, frees Hypothesis of time limits, starts the processes of traces as
forks, parses each YAML file once, and adds options of tests."""

import subprocess
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, settings

from advisor.catalog import strict_yaml
from advisor.workload import supervisor
from advisor.workload.sources.installed import declare_torchvision_operators
from tests.fork_server import ForkedProcess
from tests.model_files import write  # noqa: F401 - the fixture

declare_torchvision_operators()
# Other programs may use the machine: a slow example is no failure.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")
FORKING = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedProcess})
supervisor.subprocess = FORKING  # type: ignore[assignment]
strict_yaml.parse_documents = cache(strict_yaml.parse_documents)  # the built-in files are parsed once


@pytest.fixture
def own_interpreters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start the processes of traces as the program does, each with an interpreter of its own."""
    monkeypatch.setattr(supervisor, "subprocess", subprocess)


@pytest.fixture(scope="session")
def filled_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder for tests that need not start with an empty one, so that the catalog is parsed once."""
    return tmp_path_factory.mktemp("cache")


def pytest_addoption(parser: pytest.Parser) -> None:
    """How often and from which seed tests/reliability attacks, and the page that gets its figures."""
    parser.addoption("--attack-seed", type=int, default=0, help="seed of every random case")
    parser.addoption("--attack-count", type=int, default=100, help="cases of each class of attack")
    parser.addoption("--attack-page", type=Path, default=None, help="page whose figures are replaced")
