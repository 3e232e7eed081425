import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.answers.accuracy_score import kendall_tau_b, score
from tests.answers.toys import failed, predicted


def test_a_failed_row_counts_as_an_error_of_100_percent() -> None:
    # Ratios 1.25, 0.75, 1: errors 0, 0.25, 0.25 and 1 for the failed row; mean 1.5 / 4, median 0.25.
    # The 90th percentile of four lies 2.7 steps up: 0.25 + 0.7 x 0.75.
    overall = score([predicted(1.25), predicted(1.5, 2.0), predicted(1.0)], [failed()]).overall
    assert (overall.n, overall.failed_count) == (4, 1)
    assert (overall.mape, overall.median_ape, overall.p90_ape) == pytest.approx((0.375, 0.25, 0.775))


def test_bias_is_the_geometric_mean_so_half_and_double_cancel() -> None:
    assert score([predicted(2.0), predicted(0.5)], [failed()]).overall.bias == pytest.approx(0.0)
    assert score([predicted(4.0), predicted(1.0)], []).overall.bias == pytest.approx(1.0)  # sqrt(4 x 1) - 1


def test_coverage_is_the_share_of_truths_inside_the_interval() -> None:
    # Each interval is 10 % either way: 1.05 is inside that of 1, 1.2 and 0.8 are not; the failed row has none.
    rows = [predicted(1.0, 1.05), predicted(1.0, 1.2), predicted(1.0, 0.8), predicted(1.0)]
    assert score(rows, [failed()]).overall.coverage_90 == 0.5


def test_the_half_width_is_relative_to_the_mean_error_in_log() -> None:
    # Intervals 0.9 to 1.1 times the prediction: half-width ln(1.1 / 0.9) / 2. Errors in log are ln 2, ln 2 and 0.
    rows = [predicted(2.0), predicted(0.5), predicted(1.0)]
    expected = (math.log(1.1 / 0.9) / 2) / (2 * math.log(2) / 3)
    assert score(rows, [failed()]).overall.half_width_ratio == pytest.approx(expected)
    assert score([predicted(1.0)], []).overall.half_width_ratio is None
    assert score([], [failed()]).overall.half_width_ratio is None


def test_where_all_failed_there_is_no_bias_and_no_coverage() -> None:
    overall = score([], [failed(), failed()]).overall
    assert (overall.mape, overall.bias, overall.kendall, overall.coverage_90) == (1.0, None, None, None)
    assert (overall.roofline_mape, overall.constant_mape) == (1.0, 1.0)


def test_the_baselines_are_judged_on_the_same_rows() -> None:
    # Rooflines are half of the predictions 1 and 4 of truths 1 and 2: ratios 0.5 and 1, errors 0.5, 0 and 1 (failed).
    overall = score([predicted(1.0), predicted(4.0, 2.0)], [failed()]).overall
    assert overall.roofline_mape == pytest.approx(0.5)


def test_the_constant_is_the_median_of_its_kind_of_device() -> None:
    # GPUs take 2, 1 and 2 s per FLOP: the constant is 2 and the errors 0, 1 and 0. The CPU's own constant fits it.
    rows = [
        predicted(1.0, 2.0, flops=1.0),
        predicted(1.0, 2.0, flops=2.0),
        predicted(1.0, 8.0, flops=4.0),
        predicted(1.0, 50.0, flops=1.0, kind="cpu"),
    ]
    assert score(rows, []).overall.constant_mape == pytest.approx(1 / 4)


def test_the_error_without_own_figures_is_that_of_all_rows_where_none_has_any() -> None:
    # On the T4 0 with them and 0.5 without, on the V100 0.25 and no figures of its own, 1 for what failed.
    rows = [predicted(1.0, without_own_s=1.5), predicted(1.25, device="v100")]
    accuracy = score(rows, [failed()])
    overall = accuracy.overall
    assert (overall.n, overall.own_figures_count) == (3, 1)
    assert overall.mape == pytest.approx(1.25 / 3)
    assert overall.mape_without_own_figures == pytest.approx(1.75 / 3)
    by_device = {group.by["device"]: group.score for group in accuracy.groups if "device" in group.by}
    assert by_device["t4"].mape_without_own_figures == pytest.approx(1.5 / 2)
    assert (by_device["v100"].own_figures_count, by_device["v100"].mape_without_own_figures) == (0, None)


def test_nothing_is_no_row_to_score() -> None:
    with pytest.raises(ValueError, match="nothing to score"):
        score([], [])


def test_kendalls_tau_counts_pairs_in_order_less_pairs_out_of_order() -> None:
    # One of the six pairs is out of order: (5 - 1) / 6.
    assert kendall_tau_b(np.array([1.0, 2, 3, 4]), np.array([1.0, 2, 4, 3])) == pytest.approx(4 / 6)
    # The tied pair leaves 2 of 3: 2 / sqrt(2 x 3).
    assert kendall_tau_b(np.array([1.0, 1, 2]), np.array([1.0, 2, 3])) == pytest.approx(2 / math.sqrt(6))
    assert kendall_tau_b(np.array([1.0, 1, 1]), np.array([1.0, 2, 3])) is None


@given(st.lists(st.floats(1e-3, 1e3), min_size=2, max_size=20, unique=True))
def test_the_same_order_has_a_tau_of_1_and_the_reverse_one_of_minus_1(values: list[float]) -> None:
    times = np.array(values)
    assert kendall_tau_b(times, times**3) == pytest.approx(1.0)
    assert kendall_tau_b(times, -times) == pytest.approx(-1.0)


def test_kendall_is_the_mean_over_devices_and_ways_of_running_with_three_rows() -> None:
    # In order on the T4 (1), reversed on the V100 (-1) and in order there when compiled (1): 1 / 3 in the mean.
    # The P4's two rows do not count.
    rows = [predicted(time, time) for time in (1.0, 2.0, 3.0)]
    rows += [predicted(time, 4 - time, device="v100") for time in (1.0, 2.0, 3.0)]
    rows += [predicted(time, time, device="v100", compile="compile") for time in (1.0, 2.0, 3.0)]
    rows += [predicted(1.0, 2.0, device="p4"), predicted(2.0, 1.0, device="p4")]
    assert score(rows, []).overall.kendall == pytest.approx(1 / 3)


def test_kendall_over_devices_compares_devices_at_the_same_step() -> None:
    # Batch 8 on three devices, one pair of three out of order: (2 - 1) / 3. Batch 16 ran on two: not ranked.
    rows = [
        predicted(1.0, 1.0, device="a"),
        predicted(2.0, 3.0, device="b"),
        predicted(3.0, 2.0, device="c"),
        predicted(1.0, 2.0, device="a", batch=16),
        predicted(2.0, 1.0, device="b", batch=16),
    ]
    assert score(rows, []).kendall_devices == pytest.approx(1 / 3)


def test_choosing_the_cheapest_device_is_judged_by_what_it_truly_costs() -> None:
    # Batch 8: predicted costs 4 x 1 and 2 x 3, so "a" is taken; true costs are 4 and 3: 1/3 too much.
    # Batch 16: "a" is taken and is the cheapest. Without a price "c" is no choice.
    a, b = {"device": "a", "usd_per_hour": 1.0}, {"device": "b", "usd_per_hour": 3.0}
    rows = [
        predicted(4.0, 4.0, **a),
        predicted(2.0, 1.0, **b),
        predicted(0.1, 0.1, device="c"),
        predicted(1.0, 1.0, batch=16, **a),
        predicted(1.0, 1.0, batch=16, **b),
    ]
    accuracy = score(rows, [])
    assert accuracy.cheapest_right_ratio == pytest.approx(0.5)
    assert accuracy.mean_extra_cost_ratio == pytest.approx(1 / 6)


def test_without_two_priced_devices_at_one_step_there_is_no_choice() -> None:
    accuracy = score([predicted(1.0, usd_per_hour=1.0), predicted(1.0, device="v100")], [])
    assert (accuracy.cheapest_right_ratio, accuracy.mean_extra_cost_ratio) == (None, None)


def test_every_row_is_in_one_group_of_each_grouping_failed_ones_too() -> None:
    rows = [predicted(1.0), predicted(1.0, device="epyc", kind="cpu", mode="training", precision="bf16")]
    accuracy = score(rows, [failed(device="v100")])
    counts = {next(iter(group.by.items())): group.score.n for group in accuracy.groups}
    assert counts == {
        ("device", "epyc"): 1,
        ("device", "t4"): 1,
        ("device", "v100"): 1,
        ("kind", "cpu"): 1,
        ("kind", "gpu"): 2,
        ("mode", "inference"): 2,
        ("mode", "training"): 1,
        ("precision", "bf16"): 1,
        ("precision", "fp32"): 2,
        ("family", "timm:resnet"): 3,
        ("generation", "Turing"): 3,
        ("known", "device"): 2,
        ("known", "not predicted"): 1,
    }
