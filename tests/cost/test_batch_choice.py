"""Which batch a device runs the job at: the smallest of about the least cost that is not tight in memory."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from advisor.cost.batch_choice import choose_batches
from advisor.cost.market import no_terms
from advisor.records.answer import JobLimits
from advisor.records.generation import Generation
from advisor.records.options import Objective
from advisor.records.prediction import Scaling
from advisor.records.scale import Plan
from tests.cost.toys import device, job, predictions

SLOW = device("slow")
BATCHES = (8, 16, 32)
# 3,200 samples take 400, 200 and 100 steps: 102, 101 and 100 s.
STEP_S = [[0.255, 0.505, 1.0]]


def chosen(step_s: Any = STEP_S, *, tight: tuple[bool, ...] = (False,) * 3, **changes: Any) -> int:
    found = choose_batches(
        predictions(SLOW, step_s=step_s, batches=BATCHES, is_tight=np.array([tight])), job=job(3200, **changes)
    )
    return BATCHES[int(found.index[0])]


def test_the_smallest_within_two_percent_of_the_least_cost_is_chosen() -> None:
    assert chosen() == 8
    assert chosen([[0.256, 0.505, 1.0]]) == 16  # 2.4 % more than the least


@pytest.mark.parametrize("asked", [{"objective": "time"}, {"limits": JobLimits(deadline_s=101.5)}])
def test_the_fastest_is_chosen_where_time_decides(asked: Any) -> None:
    assert chosen(**asked) == 32


@pytest.mark.parametrize("objective", ["cost", "cost-time"])
def test_a_deadline_that_the_batch_keeps_changes_nothing(objective: Objective) -> None:
    assert chosen(limits=JobLimits(deadline_s=102.5), objective=objective) == 8


# 3,208 samples are 401 steps of 8 or 101 of 32, 1.3 % apart; 3,232 are 404 of 8, 2.1 % more than 101 of 32.
@example(sample_s=[1.021, 1.03, 1.0], samples=3208, more=24)
@given(
    sample_s=st.lists(st.floats(1.0, 1.05), min_size=3, max_size=3),
    samples=st.integers(1, 3000),
    more=st.integers(0, 100),
)
def test_more_samples_never_cost_less(sample_s: list[float], samples: int, more: int) -> None:
    step_s = [batch * each_s for batch, each_s in zip(BATCHES, sample_s, strict=True)]

    def cost_s(samples: int) -> float:
        found = choose_batches(predictions(SLOW, step_s=[step_s], batches=BATCHES), job=job(samples))
        at = int(found.index[0])
        return math.ceil(samples / BATCHES[at]) * step_s[at]

    assert cost_s(samples) <= cost_s(samples + more)


def test_a_tight_batch_is_chosen_only_if_no_other_fits() -> None:
    assert chosen(tight=(True, False, False)) == 16
    assert chosen([[0.3, 0.505, 1.0]], tight=(False, True, True)) == 8  # 20 % more than the least, and safe
    assert chosen(tight=(True, True, True)) == 8


def test_machines_count_against_a_faster_batch() -> None:
    # 3,200 samples take 400, 200 and 100 steps: 1,000 s of one machine, or 300 and 250 of four (in all 1,200 or 1,000)
    plans = Scaling(
        plans=(Plan(), Plan(machines=4, data=4)), plan=np.array([[0, 1, 1]]), efficiency_ratio=np.ones((1, 3))
    )

    def with_deadline(deadline_s: float | None, *, start_up_s: float = 0.0, objective: Objective = "cost") -> int:
        found = choose_batches(
            predictions(SLOW, step_s=[[2.5, 1.5, 2.5]], batches=BATCHES, scaling=plans),
            job=job(3200, limits=JobLimits(deadline_s=deadline_s), objective=objective),
            terms=replace(no_terms(1), start_up_s=np.array([start_up_s])),
        )
        return BATCHES[int(found.index[0])]

    assert with_deadline(1100.0) == 8
    assert with_deadline(900.0) == 32
    assert with_deadline(1100.0, start_up_s=200.0) == 32  # 1,200 s would be too late
    assert with_deadline(100.0) == 32  # nothing keeps it: the fastest
    assert with_deadline(1100.0, objective="time") == 32
    assert with_deadline(None, start_up_s=200.0) == 8  # four machines pay for four starts


@pytest.mark.parametrize(
    ("objective", "most_machines", "batch"), [("cost", 99.0, 32), ("time", 99.0, 8), ("time", 1.0, 32)]
)
def test_the_batch_of_a_service_follows_the_objective(objective: Objective, most_machines: float, batch: int) -> None:
    # 100 requests a second take 1.25 machines at 8 in 0.1 s, 0.94 at 16 in 0.15 s and 0.63 at 32 in 0.2 s. On one
    # machine they wait for two steps of 32 at most, 0.4 s, or for four of 16, as it has hardly any time left. On many
    # machines they wait for two steps at any batch.
    found = choose_batches(
        predictions(SLOW, step_s=[[0.1, 0.15, 0.2]], batches=BATCHES),
        job=job(requests_per_day=100 * 86400, max_utilization=0.95, objective=objective),
        terms=replace(no_terms(1), most_machines=np.array([most_machines])),
    )
    assert BATCHES[int(found.index[0])] == batch


def test_of_batches_with_the_same_latency_a_service_by_time_takes_the_one_on_the_fewest_machines() -> None:
    # 5 a second of 0.1 s each wait on one GPU per machine unless there are five machines (see test_service.py). With a
    # copy on each of eight GPUs, 0.0625^(sqrt(2 x 9) - 1) = 0.01 % of the requests wait on one machine.
    copies = Scaling(plans=(Plan(), Plan(data=8)), plan=np.array([[0, 1]]), efficiency_ratio=np.ones((1, 2)))
    found = choose_batches(
        predictions(SLOW, step_s=[[0.1, 0.1]], batches=(1, 8), scaling=copies),
        job=job(requests_per_day=5 * 86400, objective="time"),
    )
    assert found.index.tolist() == [1]


def test_a_larger_batch_that_needs_fewer_machines_is_compared_with_its_start_up() -> None:
    # 3,200 samples take 400 steps of 0.25 s on four machines, 100 of 4 s on one: 400 s of a machine both.
    plans = Scaling(
        plans=(Plan(), Plan(machines=4, data=4)), plan=np.array([[1, 1, 0]]), efficiency_ratio=np.ones((1, 3))
    )

    def with_start_up(start_up_s: float) -> int:
        found = choose_batches(
            predictions(SLOW, step_s=[[0.25, 0.55, 4.0]], batches=BATCHES, scaling=plans),
            job=job(3200),
            terms=replace(no_terms(1), start_up_s=np.array([start_up_s])),
        )
        return BATCHES[int(found.index[0])]

    assert with_start_up(0.0) == 8
    assert with_start_up(100.0) == 32  # 500 s instead of 800 s


def test_a_family_of_plans_counts_only_if_it_costs_less() -> None:
    # One machine takes 1.0 s for 8 requests; two together take 0.6 s, which is 1.2 s of one machine, or 0.45 s.
    def machines(two_s: float, *, per_second: float) -> int:
        families = Scaling(
            plans=(Plan(), Plan(machines=2, tensor=2)),
            plan=np.array([[0, 1]]),
            efficiency_ratio=np.ones((1, 2)),
            family=np.array([0, 1]),
        )
        found = predictions(SLOW, step_s=[[1.0, two_s]], batches=(8, 8), scaling=families)
        load = replace(job(), requests_per_day=int(86400 * per_second), max_utilization=1.0) if per_second else job()
        load = replace(load, generation=Generation(prompt_tokens=10, output_tokens=10))
        return int(choose_batches(found, job=load).index[0]) + 1

    assert machines(0.6, per_second=0) == 1
    assert machines(0.45, per_second=0) == 2
    assert machines(0.5, per_second=0) == 1
    # 7 requests a second need one machine of 8 a second, and a group of two whatever it gives.
    assert machines(0.45, per_second=7) == 1
    # 17 a second need three machines, or one group of 17.8 a second.
    assert machines(0.45, per_second=17) == 2
