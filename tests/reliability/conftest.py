"""The fixture that every class of attack takes, and the table of their figures."""

import re
from pathlib import Path

import pytest

from tests.reliability.attack import Attack, Tally, table

_TALLIES = pytest.StashKey[list[Tally]]()


@pytest.fixture
def attack(request: pytest.FixtureRequest) -> Attack:
    """The attack named by its test: `test_mutated_prices` is "mutated prices"."""
    return Attack(
        name=request.node.originalname.removeprefix("test_").replace("_", " "),
        seed=request.config.getoption("attack_seed"),
        count=request.config.getoption("attack_count"),
        tallies=request.config.stash.setdefault(_TALLIES, []),
    )


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Put the figures of this run into the page, between its two marks."""
    page: Path | None = session.config.getoption("attack_page")
    tallies = session.config.stash.get(_TALLIES, [])
    if page and tallies:
        shown = f"<!-- figures -->\n{table(tallies)}<!-- end -->"
        page.write_text(re.sub(r"<!-- figures -->.*?<!-- end -->", lambda _: shown, page.read_text(), flags=re.DOTALL))
