"""Predictions side by side along the batches, and taken apart again."""

import numpy as np

from advisor.predict.join import at_batches, join_batches
from tests.cost.toys import device, predictions

ONE, TWO = device("one"), device("two")


def test_what_is_joined_can_be_taken_apart() -> None:
    first = predictions(ONE, TWO, step_s=[[1.0], [2.0]], batches=(8,))
    second = predictions(ONE, TWO, step_s=[[3.0], [4.0]], batches=(16,))
    both = join_batches([first, second])
    assert both.batches.tolist() == [8, 16]
    assert both.step_s.tolist() == [[1.0, 3.0], [2.0, 4.0]]
    again = at_batches(both, np.array([16]))
    assert again.batches.tolist() == [16]
    assert again.step_s.tolist() == [[3.0], [4.0]]
    assert again.fits.shape == (2, 1)
    assert again.devices == (ONE, TWO)
