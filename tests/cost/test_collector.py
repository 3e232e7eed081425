import gc
from collections.abc import Iterator

import pytest

from advisor.cost.collector import collector_paused


@pytest.fixture(autouse=True)
def on_again() -> Iterator[None]:
    yield
    gc.enable()


@collector_paused()
def is_on_inside(text: str) -> bool:
    int(text)
    return gc.isenabled()


def test_the_collector_is_off_inside_and_on_after_it_after_an_error_too() -> None:
    assert not is_on_inside("1")
    assert gc.isenabled()
    with pytest.raises(ValueError, match="invalid literal"):
        is_on_inside("one")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_paused():
        pass
    assert not gc.isenabled()
