import math

import numpy as np
import pytest

from advisor.fit.own import HIGH, LOG_SIGMA, LOW, OwnFigures, OwnStep, fit_own, left_out_seconds, own_seconds
from tests.predict.toys import device, efficiency, kernels


def step(model: str, *, measured_s: float, flops: float = 0.0, data_bytes: float = 0.0) -> OwnStep:
    """On a device of 1 TFLOP/s and 100 GB/s, whose compute and memory time hide behind each other."""
    return OwnStep(
        model=model,
        kernels=kernels(flops=[[flops]], data_bytes=[[data_bytes]]),
        device=device(),
        efficiency=efficiency(),
        measured_s=measured_s,
    )


def streaming(model: str, measured_s: float) -> OwnStep:
    """1 s of streaming."""
    return step(model, measured_s=measured_s, data_bytes=1e11)


def test_the_ratios_that_made_the_times_are_found() -> None:
    # Predicted 1 s each: at 0.8 of the compute it takes 1 / 0.8 s, at 1.25 of the bandwidth 1 / 1.25 s.
    steps = [step(f"computing {index}", measured_s=1 / 0.8, flops=1e12) for index in range(20)]
    steps += [streaming(f"streaming {index}", 1 / 1.25) for index in range(20)]
    found = fit_own(steps)
    assert (found.compute_ratio, found.memory_ratio) == pytest.approx((0.8, 1.25), rel=0.01)
    assert own_seconds(steps, found) == pytest.approx([one.measured_s for one in steps], rel=0.01)


def test_what_no_row_depends_on_stays_at_its_prior() -> None:
    found = fit_own([streaming(str(index), 2.0) for index in range(20)])
    assert found.compute_ratio == pytest.approx(1.0)
    assert found.compute_log_sigma == pytest.approx(LOG_SIGMA)
    assert found.memory_ratio == pytest.approx(0.5, rel=0.02)


@pytest.mark.parametrize(("models", "weight"), [("a", 0.6923), ("aaaa", 0.6923), ("abcd", 0.9)])
def test_a_model_counts_once_against_the_prior(models: str, weight: float) -> None:
    # x = log(ratio) minimises k ((x + 0.01) / 0.1)^2 + (x / 0.15)^2 for k models that are all 1 % slow:
    # x = -0.01 x 100 k / (100 k + 44.4), a weight of 0.692 for one and of 0.9 for four; sigma is (100 k + 44.4)^-0.5.
    found = fit_own([streaming(model, math.exp(0.01)) for model in models])
    assert math.log(found.memory_ratio) == pytest.approx(-0.01 * weight, rel=0.02)
    assert found.memory_log_sigma == pytest.approx(math.sqrt(weight / (100 * len(set(models)))), rel=0.02)


def test_one_odd_model_hardly_moves_the_figures() -> None:
    # Beyond 10 % a model pulls with 1 / 0.1 at most; nine exact ones hold with 9 x 100 x: x is 0.011 at most.
    steps = [streaming(str(index), 1.0) for index in range(9)]
    assert math.log(fit_own([*steps, streaming("odd", 10.0)]).memory_ratio) == pytest.approx(0.0, abs=0.012)


@pytest.mark.parametrize(("measured_s", "bound"), [(100.0, LOW), (0.01, HIGH)])
def test_the_figures_stay_within_their_bounds(measured_s: float, bound: float) -> None:
    found = fit_own([streaming(str(index), measured_s) for index in range(50)])
    assert found.memory_ratio == pytest.approx(bound, rel=0.01)


def test_a_left_out_model_is_predicted_from_the_others() -> None:
    exact, slow = streaming("exact", 1.0), streaming("slow", 2.0)
    seconds = left_out_seconds([exact, slow, exact])
    # Nothing but the slow model tells the exact ones' figures, and nothing but the exact ones that of the slow one.
    assert seconds[[0, 2]] == pytest.approx(own_seconds([exact, exact], fit_own([slow])))
    assert seconds[0] > 1.1
    assert seconds[1] == pytest.approx(1.0)


def test_of_many_models_each_is_left_out_once() -> None:
    # All are twice as slow as predicted, and each is seen to be by the others.
    seconds = left_out_seconds([streaming(str(index), 2.0) for index in range(23)])
    assert seconds == pytest.approx(np.full(23, 2.0), rel=0.03)


def test_without_another_model_the_figures_are_1() -> None:
    assert left_out_seconds([streaming("only", 2.0)] * 3) == pytest.approx([1.0] * 3)
    assert OwnFigures() == OwnFigures(compute_ratio=1.0, memory_ratio=1.0)


def test_an_odd_model_of_many_rows_hardly_moves_the_figures_either() -> None:
    # Its hundred rows count as one model, and beyond 10 % they pull as that with 1 / 0.1 at most.
    steps = [streaming(str(index), 1.0) for index in range(9)]
    odd = [streaming("odd", 2.0)] * 100
    assert math.log(fit_own([*steps, *odd]).memory_ratio) == pytest.approx(0.0, abs=0.012)
