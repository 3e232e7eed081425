import numpy as np

from advisor.predict.precision_choice import cheapest_runs
from advisor.records.prediction import FloatArray, Predictions
from tests.predict.toys import device

PLACES = np.array([0, 0], dtype=np.intp)


def runs(*, step_s: FloatArray, fits: tuple[bool, bool] = (True, True)) -> Predictions:
    """One device at one batch, in fp32 and under autocast."""
    return Predictions(
        devices=(device(), device()),
        precisions=np.array([["fp32"], ["amp-bf16"]], dtype=np.object_),
        time_sources=np.full(step_s.shape, "datasheet", dtype=np.object_),
        compile="eager",
        batches=np.array([8], dtype=np.intp),
        step_s=step_s,
        step_low_s=step_s,
        step_high_s=step_s,
        log_spread=np.zeros_like(step_s),
        own_log_spread=np.zeros_like(step_s),
        bound=np.zeros(step_s.shape, dtype=np.intp),
        peak_memory_bytes=np.array([[2e9], [1e9]]),
        fits=np.array(fits)[:, np.newaxis],
    )


def column(first: float, second: float) -> FloatArray:
    return np.array([[first], [second]])


def chosen(predictions: Predictions, **given: FloatArray) -> str:
    return str(cheapest_runs(predictions, PLACES, **given).precisions[0, 0])


def test_the_faster_run_is_kept_if_both_fit() -> None:
    assert chosen(runs(step_s=column(1.0, 3.0))) == "fp32"
    assert chosen(runs(step_s=column(1.0, 3.0), fits=(False, True))) == "amp-bf16"


def test_the_run_with_the_least_memory_is_kept_if_none_fits() -> None:
    assert chosen(runs(step_s=column(1.0, 3.0), fits=(False, False))) == "amp-bf16"


def test_a_run_in_time_wins_over_a_cheaper_one_that_is_late() -> None:
    # Two machines for 2 s cost less than four for 1.5 s, but are late.
    steps = runs(step_s=column(2.0, 1.5))
    assert chosen(steps, machine_s=column(4.0, 6.0)) == "fp32"
    assert chosen(steps, machine_s=column(4.0, 6.0), late=column(1.2, 1.0)) == "amp-bf16"


def test_cost_grows_with_the_machines() -> None:
    # One machine for 2 s, two for 1.5 s.
    steps = runs(step_s=column(2.0, 1.5))
    assert chosen(steps) == "amp-bf16"
    assert chosen(steps, machine_s=column(2.0, 3.0)) == "fp32"
