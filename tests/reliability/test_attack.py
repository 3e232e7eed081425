"""The runner of attacks itself: it counts what fails, and gives the same case again."""

from random import Random

import pytest

from tests.reliability.attack import Attack, Tally


def test_every_failing_case_is_counted_and_named() -> None:
    attack = Attack(name="toy", seed=3, count=4)
    calls: list[float] = []

    def check(chance: Random) -> None:
        calls.append(chance.random())
        if len(calls) % 2:
            raise KeyError("odd")

    with pytest.raises(AssertionError, match="2 of 4 with --attack-seed 3"):
        attack.each(check)
    assert attack.tallies == [Tally(name="toy", cases=4, failures=2)]


def test_a_case_is_the_same_each_time() -> None:
    first: list[float] = []
    again: list[float] = []
    Attack(name="toy", seed=3, count=4).each(lambda chance: first.append(chance.random()))
    Attack(name="toy", seed=3, count=4).each(lambda chance: again.append(chance.random()))
    assert first == again
    assert len(set(first)) == 4
