"""Declares the operators that torchvision imports, and adds the options of tests/reliability."""

from pathlib import Path

import pytest

from advisor.workload.sources.installed import declare_torchvision_operators
from tests.model_files import write  # noqa: F401 - the fixture

declare_torchvision_operators()


def pytest_addoption(parser: pytest.Parser) -> None:
    """How often and from which seed tests/reliability attacks, and the page that gets its figures."""
    parser.addoption("--attack-seed", type=int, default=0, help="seed of every random case")
    parser.addoption("--attack-count", type=int, default=100, help="cases of each class of attack")
    parser.addoption("--attack-page", type=Path, default=None, help="page whose figures are replaced")
