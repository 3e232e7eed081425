"""Break-even in sentences and tables."""

from dataclasses import replace
from typing import Any

import pytest

from advisor.cost.crossing_curve import curve_of
from advisor.records.answer import Contender, Crossing, CurvePoint, Interval
from advisor.records.break_even_curves import BreakEven, Curve, CurveKind, FolkRule
from advisor.records.generation import Generation
from advisor.records.price import ExchangeRate
from advisor.report.break_even import break_even_content
from advisor.report.content import View
from advisor.report.terminal import to_text
from tests.cost.crossings_toys import kind_cost
from tests.report.toys import L4, recommendation
from tests.says import assert_says


def contender(kind: Any, usd: float, **changes: Any) -> Contender:
    (point,) = curve_of("batch", (1,), lambda place: {kind: kind_cost(kind, usd)}).points
    found = point.cpu or point.gpu
    assert found is not None
    return replace(found, **changes)


def point(at: int, cpu_usd: float | None, gpu_usd: float | None, *, width: float = 1.0) -> CurvePoint:
    """The ratio's interval reaches `width` times up and down."""
    both = cpu_usd is not None and gpu_usd is not None
    ratio = cpu_usd / gpu_usd if both else 1.0  # type: ignore[operator]
    return CurvePoint(
        at=at,
        cpu=None if cpu_usd is None else contender("cpu", cpu_usd),
        gpu=None if gpu_usd is None else contender("gpu", gpu_usd),
        cost_ratio=Interval(mid=ratio, low=ratio / width, high=ratio * width) if both else None,
    )


def curve(
    *points: CurvePoint, kind: CurveKind = "batch", crossings: tuple[Crossing, ...] = (), name: str = ""
) -> Curve:
    return Curve(kind=kind, name=name or kind, points=points, crossings=crossings)


def text(*curves: Curve, width: int = 120, **changes: Any) -> str:
    values: dict[str, Any] = {
        "schema_version": 1,
        "workload": "toy",
        "job": recommendation(L4).job,
        "folk_rule": None,
        "curves": curves,
        "left_out": (),
        "warnings": (),
    }
    return to_text(break_even_content(BreakEven(**(values | changes))), View(width=width))


def findings(*curves: Curve, **changes: Any) -> str:
    """What is said of the curves, without the headline and the tables."""
    lines = text(*curves, width=1000, **changes).splitlines()
    return "\n".join(line for line in lines if line.startswith("  ") and line[2:3].isalpha())


def test_the_folk_rule_stands_beside_the_truth() -> None:
    rule = FolkRule(
        cpu=contender("cpu", 4.2, usd_per_hour=0.2),
        gpu=contender("gpu", 1.0, usd_per_hour=0.54),
        price_ratio=2.7,
        speed_ratio=Interval(mid=11.3, low=8.9, high=14.1),
        cost_ratio=Interval(mid=4.2, low=3.3, high=5.2),
    )
    shown = findings(folk_rule=rule)
    assert_says(shown, "2.7x", "11.3x [8.9-14.1] faster", "aws gpu", "$0.54", "4.2x [3.3-5.2]", "CPU", "GPU")
    slow = replace(rule, speed_ratio=Interval(mid=0.4, low=0.3, high=0.5))
    shown = findings(folk_rule=slow)
    assert_says(shown, "0.4x [0.3-0.5]")
    assert "faster" not in shown


def test_a_curve_without_a_crossing_names_the_winner() -> None:
    assert_says(findings(curve(point(1, 2.0, 1.0), point(4096, 3.0, 1.0))), "GPU", "cheaper", "batch 1", "batch 4,096")
    assert_says(findings(curve(point(1, 1.0, 2.0), point(8, 1.0, 1.0))), "CPU", "cheaper", "batch 1", "batch 8")


def test_a_crossing_has_its_interval() -> None:
    one = Crossing(at=37, low=12, high=None, cheaper="gpu")
    shown = findings(curve(point(1, 1.0, 2.0), point(1000, 2.0, 1.0), crossings=(one,)))
    assert_says(shown, "CPU", "cheaper", "batch 37 [12-?]", "GPU above")


@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("requests_per_day", "", "86,400 [864-12,300,000] requests per day"),
        ("samples", "", "86,400 [864-12,300,000] samples"),
        ("parameter", "width", "width 86,400 [864-12,300,000]"),
    ],
)
def test_each_curve_has_its_own_words(kind: CurveKind, name: str, said: str) -> None:
    one = Crossing(at=86_401, low=864, high=12_345_678, cheaper="gpu")
    points = (point(1, 1.0, 2.0), point(10**9, 2.0, 1.0))
    assert_says(findings(curve(*points, kind=kind, name=name, crossings=(one,))), "CPU", said, "GPU")


def test_a_device_that_can_do_no_more_leaves_the_other_alone() -> None:
    gone = Crossing(at=600, low=600, high=600, cheaper="cpu")
    shown = findings(curve(point(1, 2.0, 1.0), point(1024, 2.0, None), crossings=(gone,)))
    assert_says(shown, "GPU", "cheaper", "batch 600", "CPU", "only")
    assert_says(findings(curve(point(1, None, None))), "no CPU", "no GPU")
    ended = curve(point(1, 2.0, 1.0), point(1024, 2.0, None), point(2048, None, None), crossings=(gone,))
    assert_says(findings(ended), "CPU", "only", "batch 1,024", "no GPU", "batch 2,048")
    assert "above" not in findings(ended)
    assert_says(findings(curve(point(1, None, 1.0))), "GPU", "only", "batch 1", "batch 1")


def test_many_changes_are_counted() -> None:
    changes = tuple(Crossing(at=at, low=at, high=at, cheaper="gpu" if at % 2 else "cpu") for at in (3, 4, 5, 6, 7))
    points = tuple(point(at, 1.0, 0.5 if at % 2 else 2.0) for at in range(2, 9))
    said = findings(curve(*points, crossings=changes))
    assert_says(said, "CPU", "cheaper", "batch 5 [5-5]", "2 more", "GPU", "cheaper")


def test_places_at_which_the_intervals_leave_it_open_are_counted() -> None:
    points = (point(1, 1.0, 2.0), point(8, 1.0, 1.1, width=2.0), point(64, 1.0, 2.0))
    assert_says(findings(curve(*points)), "1 of 3 points")
    assert "of 2 points" not in text(curve(points[0], points[2]))


def test_the_table_has_the_ends_and_what_lies_around_a_crossing() -> None:
    points = [point(at, 1.0 if at < 500 else 3.0, 2.0) for at in (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)]
    one = Crossing(at=300, low=300, high=300, cheaper="gpu")
    rows = [line.split() for line in text(curve(*points, crossings=(one,))).splitlines() if line.strip()[:1].isdigit()]
    # Of 11 points the ends, the two around 300, and one of those that divide them into quarters: the third (2.5).
    assert [row[0] for row in rows] == ["1", "4", "256", "512", "1,024"]
    assert rows[0] == ["1", "aws", "cpu", "$1.00", "aws", "gpu", "$2.00", "0.5x"]


def test_a_language_model_in_service_has_requests_in_flight() -> None:
    generation = Generation(prompt_tokens=1024, output_tokens=256)
    one = Crossing(at=8, low=8, high=8, cheaper="gpu")
    points = (point(1, 1.0, 2.0), point(8, 3.0, 2.0))
    shown = text(
        *(curve(*points, crossings=(one,), kind=kind) for kind in ("batch", "samples", "requests_per_day")),
        job=replace(recommendation(L4).job, generation=generation, samples=1_000),
        folk_rule=FolkRule(
            cpu=contender("cpu", 4.2),
            gpu=contender("gpu", 1.0),
            price_ratio=2.7,
            speed_ratio=Interval(mid=2.0, low=1.0, high=4.0),
            cost_ratio=Interval(mid=2.0, low=1.0, high=4.0),
        ),
    )
    assert_says(shown, "inference", "1,000 requests")
    assert_says(shown, "8 [8-8] requests in flight", "8 [8-8] requests", "8 [8-8] requests per day")
    assert "in flight  CPU" in shown
    assert "batch" not in shown
    assert "sample" not in shown


def test_millions_leave_room_for_the_names_of_instances() -> None:
    rows = text(curve(point(999_999, 1.0, 2.0), point(5_623_413, 1.0, 2.0), kind="samples")).splitlines()
    assert [row.split()[:2] for row in rows if "0.5x" in row] == [["1,000,000", "aws"], ["5.62M", "aws"]]


def test_money_is_in_the_currency_asked_for() -> None:
    euro = ExchangeRate(currency="EUR", usd=2.0, date="2026-11-01")
    shown = text(curve(point(1, 1.0, 2.0)), exchange_rate=euro)
    assert "EUR 0.50" in shown
    assert_says(shown, "2 dollars per EUR", "2026-11-01")


def test_what_is_left_out_and_warnings_are_told() -> None:
    shown = text(left_out=("over the batch: why",), warnings=("mind this",))
    assert_says(shown, "over the batch: why", "mind this")


def doubtful(point: CurvePoint, *, price_is_trusted: bool) -> CurvePoint:
    """The GPU of the point may not head an answer."""
    assert point.gpu is not None
    gpu = replace(point.gpu, is_candidate=False, price_is_trusted=price_is_trusted, name="neo RTX 3090")
    return replace(point, gpu=gpu)


@pytest.mark.parametrize(("price_is_trusted", "reason"), [(False, "price"), (True, "measurement")])
def test_a_kind_that_is_cheaper_only_by_a_doubtful_offer_is_perhaps_cheaper(
    price_is_trusted: bool, reason: str
) -> None:
    first, middle, last = point(1, 1.0, 2.0), point(8, 2.0, 1.0), point(64, 4.0, 1.0)
    crossings = (Crossing(at=4, low=2, high=8, cheaper="gpu"),)
    sure = findings(curve(first, middle, last, crossings=crossings))
    assert "perhaps" not in sure
    assert "uncertain" not in sure

    of_last = curve(first, middle, doubtful(last, price_is_trusted=price_is_trusted), crossings=crossings)
    assert "perhaps" not in findings(of_last)  # the other point of the GPU's part is sure
    assert_says(findings(of_last), "1 of 3 points", reason, "neo RTX 3090")

    both = [doubtful(one, price_is_trusted=price_is_trusted) for one in (middle, last)]
    said = findings(curve(first, *both, crossings=crossings))
    assert_says(said, "a CPU is cheaper below", "perhaps a GPU above", "2 of 3 points", reason)


def test_a_doubtful_offer_that_is_dearer_raises_no_doubt() -> None:
    assert "uncertain" not in findings(curve(doubtful(point(1, 1.0, 2.0), price_is_trusted=False)))


def test_a_doubtful_offer_of_the_only_kind_raises_none_either() -> None:
    assert "uncertain" not in findings(curve(doubtful(point(1, None, 2.0), price_is_trusted=False)))


def test_the_folk_rule_says_that_its_cheaper_side_is_in_doubt() -> None:
    rule = FolkRule(
        cpu=contender("cpu", 4.2, usd_per_hour=0.2),
        gpu=contender("gpu", 1.0, usd_per_hour=0.54, is_candidate=False, price_is_trusted=False),
        price_ratio=2.7,
        speed_ratio=Interval(mid=11.3, low=8.9, high=14.1),
        cost_ratio=Interval(mid=4.2, low=3.3, high=5.2),
    )
    assert "perhaps" in findings(folk_rule=rule)
    dearer = replace(rule, cost_ratio=Interval(mid=0.5, low=0.4, high=0.6))
    assert "perhaps" not in findings(folk_rule=dearer)
