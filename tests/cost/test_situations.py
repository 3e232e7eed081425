"""The uses of a model on the market of `tests/answers/test_break_even.py`, and choices, worked out by hand."""

from dataclasses import replace

import pytest

from advisor.answers.break_even import break_even
from advisor.answers.ranking import rank
from advisor.cost.situations import choices_of
from advisor.question.from_source import question_of
from advisor.records.answer import Interval, Situation
from advisor.records.billing import Billing
from advisor.records.options import Options
from tests.answers.test_break_even import catalog, net
from tests.cost.toys import job, start_up
from tests.report.toys import GENOA


def sides(one: Situation) -> tuple[float, float]:
    assert one.point.cpu is not None
    assert one.point.gpu is not None
    return one.point.cpu.job_usd.mid, one.point.gpu.job_usd.mid


def test_busy_once_and_service_on_a_toy_market() -> None:
    # In batches of one a sample takes the CPU 1 s ($1e-4) and the GPU 0.41 s ($4.1e-4). A start takes 10 s: the job
    # costs $1e-4 x (1e6 + 10) and $1e-3 x (4.1e5 + 10). A month of 730 h costs $262.80 and $2,628.
    options = Options(batch="1", precision="fp32")
    question = question_of(net(), options, catalog=catalog(billing=Billing(start_ups={"acme": start_up(10.0)})))
    found = rank(question).situations
    assert [one.kind for one in found] == ["busy", "once", "service"]
    usd = [pytest.approx((100.0, 410.0)), pytest.approx((100.001, 410.01)), pytest.approx((262.8, 2628.0))]
    assert [sides(one) for one in found] == usd
    assert [one.point.cost_ratio.mid for one in found if one.point.cost_ratio] == pytest.approx(
        [0.244, 0.244, 0.1], rel=0.01
    )
    assert found[0].crossings == found[1].crossings == ()


def test_the_uses_agree_with_break_even() -> None:
    question = question_of(net(), Options(precision="fp32"), catalog=catalog())
    busy, once, service = rank(question).situations
    answer = break_even(question)
    assert answer.folk_rule is not None
    assert busy.point.cost_ratio == answer.folk_rule.cost_ratio
    curves = {curve.kind: curve for curve in answer.curves}
    for one, kind in ((once, "samples"), (service, "requests_per_day")):
        assert one.point in curves[kind].points
        assert one.crossings == curves[kind].crossings
        (crossing,) = one.crossings
        assert one.at_crossing is not None
        assert one.at_crossing.at == crossing.at
        assert crossing.cheaper == "gpu"
        assert one.at_crossing.cost_ratio is not None
        assert one.at_crossing.cost_ratio.mid > 1


def test_no_uses_for_a_job_with_a_size_and_no_service_for_training() -> None:
    sized = question_of(net(), Options(precision="fp32", samples=10), catalog=catalog())
    assert rank(sized).situations == ()
    training = Options(precision="fp32", mode="training")
    trained = rank(question_of(replace(net(), mode="training"), training, catalog=catalog())).situations
    assert [one.kind for one in trained] == ["busy", "once"]


def test_the_cheapest_choice_of_a_ranking_by_time_is_that_of_a_ranking_by_cost() -> None:
    # One CPU serves a request every 10 s, $262.80 a month; ranked by time, more of them shorten the 99th percentile.
    options = Options(precision="fp32", requests_per_second=0.1, objective="time")
    found = rank(question_of(net(), options, catalog=catalog()))
    assert all(quote.job_usd.mid > 2 * 262.8 for quote in found.quotes)
    assert found.choices["cheapest"].job_usd.mid == pytest.approx(262.8)
    assert found.choices["cheapest"].instance_count == 1


def test_three_choices() -> None:
    # $1 in 100 s, $1.2 in 40 s, $1.9 in 30 s; $2.1 in 10 s is more than twice the cheapest, and the first may not lead.
    offers = [
        replace(
            GENOA, id=name, job_usd=Interval(mid=usd, low=usd, high=usd), may_lead=name != "old",
            job_s=Interval(mid=time_s, low=time_s, high=time_s),
        )
        for name, usd, time_s in (
            ("old", 0.5, 1.0), ("slow", 1.0, 100.0), ("mid", 1.2, 40.0), ("quick", 1.9, 30.0), ("dear", 2.1, 10.0)
        )
    ]  # fmt: skip
    found = choices_of(offers, job=job())
    assert {choice: one.id for choice, one in found.items()} == {
        "cheapest": "slow",
        "balanced": "mid",
        "fastest": "quick",
    }
    assert choices_of(offers, job=job(assumed=True)) == {}
