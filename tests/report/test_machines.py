"""The table over the machines."""

from dataclasses import replace
from typing import Any

from advisor.records.answer import Interval, JobLimits, MachinePoint, MachineSweep, Recommendation
from advisor.records.price import ExchangeRate
from advisor.records.scale import Plan
from tests.report.toys import L4, recommendation, render_text
from tests.says import assert_says


def point(machines: int, hours: float, **changes: Any) -> MachinePoint:
    """8 GPUs each, $10 per hour, 4 GiB of 16."""
    time_s, usd = 3600 * hours, 10.0 * machines * hours
    values: dict[str, Any] = {
        "instance_count": machines,
        "gpus_used": 8 * machines,
        "plan": Plan(machines=machines, data=8 * machines, sharding="zero3"),
        "batch": 64,
        "step_s": Interval(mid=1.0, low=0.9, high=1.1),
        "job_s": Interval(mid=time_s, low=0.9 * time_s, high=1.1 * time_s),
        "job_usd": Interval(mid=usd, low=0.9 * usd, high=1.1 * usd),
        "scaling_efficiency_ratio": 0.9,
        "peak_memory_bytes": 4 * 2**30,
        "keeps_deadline": True,
    }
    return MachinePoint(**(values | changes))


def swept(*points: MachinePoint) -> MachineSweep:
    return MachineSweep(
        id=L4.id,
        provider="aws",
        instance="p9.48xlarge",
        device=replace(L4.device, count=8),
        precision="amp-bf16",
        usd_per_hour=10.0,
        instance_count=2,
        device_memory_bytes=16 * 2**30,
        points=points,
    )


SWEEP = swept(point(1, 10.0, keeps_deadline=False), point(2, 6.0), point(4, 4.0))


def answer(sweep: MachineSweep | None, *, deadline_s: float | None = None) -> Recommendation:
    found = recommendation(L4)
    limits = JobLimits(deadline_s=deadline_s)
    return replace(found, job=replace(found.job, mode="training", limits=limits), machine_sweep=sweep)


def lines(sweep: MachineSweep | None, **how: Any) -> list[str]:
    return render_text(answer(sweep, **how), width=80, color=False).splitlines()


def test_each_number_of_machines_is_a_row_and_the_ranked_one_is_marked() -> None:
    found = lines(SWEEP)
    start = found.index("By number of machines, aws p9.48xlarge (8x L4), amp-bf16:")
    assert [line.split() for line in found[start + 1 : start + 5]] == [
        ["machines", "GPUs", "time", "cost", "efficiency", "memory", "plan"],
        ["1", "8", "10", "h", "$100.00", "90", "%", "25", "%", "FSDP"],
        ["*2", "16", "6", "h", "$120.00", "90", "%", "25", "%", "FSDP"],
        ["4", "32", "4", "h", "$160.00", "90", "%", "25", "%", "FSDP"],
    ]


def note(sweep: MachineSweep, **how: Any) -> str:
    text = " ".join(lines(sweep, **how))
    return text[text.index("* used in the ranking") :]


def test_what_the_deadline_demands_is_said() -> None:
    assert "--deadline 6 h requires 2 or more." in note(SWEEP, deadline_s=6 * 3600)
    late = swept(point(1, 10.0, keeps_deadline=False))
    assert "--deadline 6 h cannot be met." in note(late, deadline_s=6 * 3600)
    assert "--deadline" not in note(SWEEP)


def test_how_many_machines_the_step_needs_is_said() -> None:
    assert_says(note(swept(point(2, 6.0))), "not fit", "2")
    assert "not fit" not in note(SWEEP)


def test_costs_are_in_the_currency_of_the_answer() -> None:
    euro = replace(answer(SWEEP), exchange_rate=ExchangeRate(currency="EUR", usd=1.25, date="2026-01-01"))
    assert "EUR 80.00" in render_text(euro, width=80, color=False)


def test_where_one_machine_was_asked_for_there_is_no_table() -> None:
    assert not any("By machines" in line for line in lines(None))
