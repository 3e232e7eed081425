"""The costs of two kinds of device along a curve, and where they cross."""

import pytest

from advisor.cost.crossing_curve import ByKind, curve_of, folk_rule_of, parameter_curve
from tests.cost.crossings_toys import kind_cost, times


def test_a_curve_has_its_points_and_its_crossing() -> None:
    # A CPU costs 2 cents a place, a GPU 50 cents and 1 cent a place: even at 50, so a GPU is cheaper from 51 on.
    def cheapest(place: int) -> ByKind:
        return {"cpu": kind_cost("cpu", 0.02 * place), "gpu": kind_cost("gpu", 0.5 + 0.01 * place)}

    curve = curve_of("batch", (1, 10, 100), cheapest)
    assert [crossing.at for crossing in curve.crossings] == [51]
    assert [point.at for point in curve.points] == [1, 10, 100]
    last = curve.points[-1]
    assert last.cpu is not None
    assert last.gpu is not None
    assert last.cost_ratio is not None
    # $2.00 and $1.50.
    assert (last.cpu.job_usd.mid, last.gpu.job_usd.mid) == pytest.approx((2.0, 1.5))
    assert last.cost_ratio.mid == pytest.approx(4 / 3)


def test_a_kind_that_cannot_do_the_job_is_not_in_its_point() -> None:
    curve = curve_of("batch", (1, 2), lambda place: {"cpu": kind_cost("cpu", 1.0)} if place == 1 else {})
    first, second = curve.points
    assert (first.cpu is not None, first.gpu, first.cost_ratio) == (True, None, None)
    assert (second.cpu, second.gpu) == (None, None)


def test_between_the_values_of_a_parameter_the_ratio_is_interpolated() -> None:
    # The CPU costs a quarter of the GPU at 16 and 4 times as much at 256: the same at 64, half way in the logarithm,
    # and that tie is the CPU's.
    curve = parameter_curve(
        "width",
        {
            256: {"cpu": kind_cost("cpu", 4.0), "gpu": kind_cost("gpu", 1.0)},
            16: {"cpu": kind_cost("cpu", 1.0), "gpu": kind_cost("gpu", 4.0)},
        },
    )
    assert (curve.kind, curve.name, [point.at for point in curve.points]) == ("parameter", "width", [16, 256])
    assert [crossing.at for crossing in curve.crossings] == [65]


def test_the_folk_rule_has_the_price_of_an_hour_and_the_speed() -> None:
    # $2.70 against $1 an hour, 1,130 against 100 samples a second; the job costs 11.3 / 2.7 as much on the CPU.
    rule = folk_rule_of(
        {
            "cpu": kind_cost("cpu", 11.3, own_usd=times(11.3, 1.25)),
            "gpu": kind_cost("gpu", 2.7, usd_per_hour=2.7, samples_per_s=1130.0),
        }
    )
    assert rule is not None
    assert rule.price_ratio == pytest.approx(2.7)
    assert rule.speed_ratio.mid == pytest.approx(11.3)
    assert (rule.cost_ratio.mid, rule.cost_ratio.high) == pytest.approx((11.3 / 2.7, 1.25 * 11.3 / 2.7))


def test_without_both_there_is_no_folk_rule() -> None:
    assert folk_rule_of({"cpu": kind_cost("cpu", 1.0)}) is None
    assert folk_rule_of({}) is None


def test_what_costs_nothing_on_either_has_no_price_ratio() -> None:
    assert folk_rule_of({kind: kind_cost(kind, 0.0, usd_per_hour=0.0) for kind in ("cpu", "gpu")}) is None
