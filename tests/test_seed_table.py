"""The table of well-known models in docs/breakeven.md is what the advisor says of them."""

import pytest

from advisor.records.answer import Crossing, CurvePoint, Interval
from advisor.records.break_even_curves import Curve
from scripts.write_seed_table import PAGE, SEEDS, seed_table, where, with_table
from tests.report.test_break_even import contender, doubtful


def point(at: int, cpu_usd: float | None, gpu_usd: float | None) -> CurvePoint:
    both = cpu_usd is not None and gpu_usd is not None
    return CurvePoint(
        at=at,
        cpu=None if cpu_usd is None else contender("cpu", cpu_usd),
        gpu=None if gpu_usd is None else contender("gpu", gpu_usd),
        cost_ratio=Interval(mid=1.0, low=1.0, high=1.0) if both else None,
    )


def curve(*points: CurvePoint, crossings: tuple[Crossing, ...] = ()) -> Curve:
    return Curve(kind="batch", name="batch", points=points, crossings=crossings)


def test_a_cell_says_who_is_cheaper_where() -> None:
    to_gpu = Crossing(at=5, low=4, high=None, cheaper="gpu")
    gone = Crossing(at=600, low=600, high=600, cheaper="cpu")
    points = (point(1, 1.0, 2.0), point(8, 2.0, 1.0))
    assert where(curve(*points, crossings=(to_gpu,))) == "CPU below 5 [4-?], then GPU"
    assert where(curve(*points, point(1024, 2.0, None), crossings=(to_gpu, gone))) == (
        "CPU below 5 [4-?], then GPU below 600, then CPU alone"
    )
    assert where(curve(points[0])) == "CPU everywhere"
    in_doubt = doubtful(points[1], price_is_trusted=True)
    assert where(curve(points[0], in_doubt, crossings=(to_gpu,))) == "CPU below 5 [4-?], then perhaps GPU"
    assert where(curve(point(1, None, 1.0))) == "GPU alone everywhere"


def test_only_the_table_is_replaced() -> None:
    text = PAGE.read_text(encoding="utf-8")
    changed = with_table(text, "a table")
    before, _, after = changed.partition("a table")
    assert text.startswith(before)
    assert text.endswith(after)
    assert len(before) > 1000 < len(after)
    assert all(f"| [{name}](" in text for name in SEEDS)


@pytest.mark.slow
def test_the_table_is_what_the_advisor_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert with_table(text, seed_table()) == text, "run scripts/write_seed_table.py"
