"""Predictions side by side along the batches, and taken apart again; and below each other, by device."""

from dataclasses import replace

import numpy as np

from advisor.predict.join import at_batches, join_batches, join_devices
from advisor.records.prediction import Scaling
from advisor.records.scale import Plan
from tests.cost.toys import device, predictions

ONE, TWO, THREE = device("one"), device("two"), device("three")


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


def test_devices_come_together_in_their_own_order_and_those_of_one_gpu_stay_so() -> None:
    # The middle one of three devices is spread over two GPUs at its first batch.
    outer = predictions(ONE, THREE, step_s=[[1.0, 2.0], [5.0, 6.0]], batches=(8, 16))
    inner = predictions(TWO, step_s=[[3.0, 4.0]], batches=(8, 16))
    scaling = Scaling(
        plans=(Plan(), Plan(data=2)), plan=np.array([[1, 0]], dtype=np.intp), efficiency_ratio=np.array([[0.5, 1.0]])
    )
    joined = join_devices([([1], replace(inner, scaling=scaling)), ([0, 2], outer)])
    assert joined.devices == (ONE, TWO, THREE)
    assert joined.step_s.tolist() == [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    assert joined.scaling is not None
    used = [[joined.scaling.plans[index].data for index in row] for row in joined.scaling.plan]
    assert used == [[1, 1], [2, 1], [1, 1]]
    assert joined.scaling.efficiency_ratio.tolist() == [[1.0, 1.0], [0.5, 1.0], [1.0, 1.0]]


def test_devices_of_one_gpu_each_have_no_scaling() -> None:
    assert join_devices([([0], predictions(ONE, step_s=[[1.0]], batches=(8,)))]).scaling is None
