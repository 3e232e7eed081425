"""The chances in an answer are the shares of wins when all errors are drawn."""

import math

import numpy as np
import pytest

from scripts.check_chances import BUSY, DRAW_COUNT, PROGRAM_DRAW_COUNT, SERVED, _errors, _wins, compare


def test_a_source_has_one_error_for_all_its_offers() -> None:
    found = _errors(["a", "b", "a"], np.array([0.1, 0.1, 0.2]), np.random.default_rng(1), count=50)
    assert found[2] == pytest.approx(2 * found[0])
    assert np.abs(found[1] - found[0]).max() > 0.01


def test_a_tie_is_shared() -> None:
    # The first wins the first draw, and half of the second.
    assert _wins(np.array([[1.0, 2.0], [3.0, 2.0], [4.0, 5.0]])).tolist() == [1.5, 0.5, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("name", BUSY | SERVED)
def test_the_chances_are_the_shares_of_wins(name: str) -> None:
    source, options = (BUSY | SERVED)[name]
    found = compare(source, options)
    for pairs in (found.by_device, found.by_offer, found.of_all):
        for what, (chance, share) in pairs.items():
            # Two shares of independent draws; 5 standard errors, of at least one win in 1,000.
            middle = max((chance + share) / 2 * (1 - (chance + share) / 2), 0.001)
            bound = 5 * math.sqrt(middle * (1 / DRAW_COUNT + 1 / PROGRAM_DRAW_COUNT))
            assert abs(chance - share) <= bound, what
