"""Curves over the batch, on offers that cost 3.6 $/h: 0.001 $/s."""

import numpy as np
import pytest

from advisor.cost.batch_sweep import batch_sweeps
from advisor.records.answer import BatchPoint, BatchSweep, Interval
from tests.cost.toys import device, fleet, job, offer, predictions, rank, selection

SLOW, QUICK, GPU = device("slow"), device("quick"), device("gpu", kind="gpu", memory_bytes=16e9)
OFFERS = selection(offer("a"), offer("b"), offer("c", gpu="gpu", gpu_count=1, cpu=None))
FLEET = fleet(0, 1, 2, devices=(SLOW, QUICK, GPU))
STEPS = [[1.0, 4.0], [0.5, 2.0], [4.0, 8.0]]


def sweeps(*named: str, batches: tuple[int, ...] = (1, 4)) -> tuple[BatchSweep, ...]:
    step_s = [row[: len(batches)] for row in STEPS]
    predicted = predictions(SLOW, QUICK, GPU, step_s=step_s, batches=batches)
    quotes = rank(OFFERS, fleet=FLEET, predictions=predicted, job=job()).quotes
    return batch_sweeps(quotes, selection=OFFERS, fleet=FLEET, predictions=predicted, named=named)


def test_a_point_has_what_the_step_takes_and_costs() -> None:
    best = sweeps()[0]
    assert (best.instance, best.batch) == ("b", 1)
    # 4 samples in 2 s: 2 a second; a million take 500,000 s at 0.001 $/s. The peak is 1 GB a sample.
    assert best.points[1] == BatchPoint(
        batch=4,
        step_s=Interval(mid=2.0, low=1.8, high=2.2),
        samples_per_s=2.0,
        usd_per_million_samples=pytest.approx(500.0),  # type: ignore[arg-type]
        peak_memory_bytes=4e9,
        fits=True,
        bound="compute",
    )


def test_the_best_of_each_kind_and_the_devices_named_are_swept() -> None:
    assert [sweep.instance for sweep in sweeps()] == ["b", "c"]
    assert [sweep.instance for sweep in sweeps("slow", "gpu", "absent")] == ["b", "c", "a"]


def test_one_batch_is_no_sweep() -> None:
    assert sweeps(batches=(1,)) == ()


def test_a_batch_that_does_not_fit_says_so() -> None:
    predicted = predictions(SLOW, step_s=[[1.0, 4.0]], batches=(1, 4), fits=np.array([[True, False]]))
    only, alone = selection(offer("a")), fleet(0, devices=(SLOW,))
    quotes = rank(only, fleet=alone, predictions=predicted, job=job()).quotes
    [sweep] = batch_sweeps(quotes, selection=only, fleet=alone, predictions=predicted)
    assert [point.fits for point in sweep.points] == [True, False]


def test_nothing_ranked_is_nothing_swept() -> None:
    predicted = predictions(SLOW, step_s=[[1.0, 4.0]], batches=(1, 4))
    assert batch_sweeps((), selection=OFFERS, fleet=FLEET, predictions=predicted) == ()


def test_a_batch_that_cannot_be_divided_among_the_gpus_is_no_point() -> None:
    only, alone = selection(offer("a")), fleet(0, devices=(SLOW,))
    predicted = predictions(SLOW, step_s=[[np.inf, 1.0, 4.0]], batches=(1, 8, 16))
    quotes = rank(only, fleet=alone, predictions=predicted, job=job()).quotes
    [sweep] = batch_sweeps(quotes, selection=only, fleet=alone, predictions=predicted)
    assert [point.batch for point in sweep.points] == [8, 16]
    predicted = predictions(SLOW, step_s=[[np.inf, 4.0]], batches=(1, 8))
    quotes = rank(only, fleet=alone, predictions=predicted, job=job()).quotes
    assert batch_sweeps(quotes, selection=only, fleet=alone, predictions=predicted) == ()
