"""What the comparison of a CPU and a GPU in each use of a model says."""

from dataclasses import replace

import pytest

from advisor.records.answer import Contender, Crossing, CurvePoint, Interval, Quote, Situation, SituationKind
from advisor.records.device import DeviceKind
from advisor.report.quote_columns import compared_ids, table_rows
from advisor.report.sentence import table_notes
from advisor.report.situations import choice_tables, situation_tables, when_to_use_which
from tests.report.toys import A10G, GENOA, L4, recommendation
from tests.says import assert_says


def exact(mid: float) -> Interval:
    return Interval(mid=mid, low=mid, high=mid)


def situation(kind: SituationKind, *, cpu_usd: float, gpu_usd: float, width: float = 1.1, crossing: int | None = None,
              at: int = 10**6) -> Situation:  # fmt: skip
    def contender(quote: Quote, usd: float) -> Contender:
        names = (
            "id",
            "device",
            "usd_per_hour",
            "price_is_trusted",
            "is_candidate",
            "instance_count",
            "precision",
            "batch",
            "step_s",
            "samples_per_s",
            "time_source",
            "job_s",
        )
        values = {name: getattr(quote, name) for name in names}
        return Contender(name=f"aws {quote.instance}", job_usd=exact(usd), **values)

    ratio, cheaper = cpu_usd / gpu_usd, ("gpu", "cpu")[cpu_usd > gpu_usd]
    kinds: dict[str, DeviceKind] = {"gpu": "gpu", "cpu": "cpu"}
    return Situation(
        kind=kind,
        point=CurvePoint(
            at=at, cpu=contender(GENOA, cpu_usd), gpu=contender(L4, gpu_usd),
            cost_ratio=Interval(mid=ratio, low=ratio / width, high=ratio * width),
        ),
        crossings=() if crossing is None else (Crossing(at=crossing, low=1, high=None, cheaper=kinds[cheaper]),),
    )  # fmt: skip


def test_the_sentence_names_the_kind_for_each_use() -> None:
    answer = replace(
        recommendation(),
        situations=(
            situation("busy", cpu_usd=3.6, gpu_usd=1.0),
            situation("once", cpu_usd=1.0, gpu_usd=2.0, crossing=17_612),
            situation("service", cpu_usd=25.0, gpu_usd=375.0, at=1),
        ),
    )
    said = when_to_use_which(answer)
    assert_says(said, "GPU", "3.6x", "CPU", "17,600 samples", "service", "CPU", "1B requests")  # searched up to 10^9
    (table,) = situation_tables(answer)
    assert [row[-1] for row in table.rows] == ["", "3.6x cheaper", "2x cheaper", "", "15x cheaper", ""]
    assert [row[3] for row in table.rows][::5] == ["$3.60/M", "$375.00/mo"]


@pytest.mark.parametrize(("usd", "shown"), [(0.02, "$0.02/M"), (0.002, "$2.00/B")])
def test_small_costs_are_per_billion_samples(usd: float, shown: str) -> None:
    (table,) = situation_tables(
        replace(recommendation(), situations=(situation("busy", cpu_usd=2 * usd, gpu_usd=usd),))
    )
    assert table.rows[1][3] == shown


def test_overlapping_intervals_are_too_close() -> None:
    answer = replace(recommendation(), situations=(situation("busy", cpu_usd=1.2, gpu_usd=1.0, width=1.3),))
    assert_says(when_to_use_which(answer), "neither")
    (table,) = situation_tables(answer)
    assert table.rows[1][-1] == "too close"


@pytest.mark.parametrize("unknown", ["time", "price"])
def test_a_side_that_may_not_head_the_answer_is_only_perhaps_cheaper(unknown: str) -> None:
    busy = situation("busy", cpu_usd=3.6, gpu_usd=1.0)
    assert busy.point.gpu is not None
    gpu = replace(busy.point.gpu, is_candidate=False, price_is_trusted=unknown != "price", time_source="datasheet")
    in_doubt = replace(busy, point=replace(busy.point, gpu=gpu))
    answer = replace(recommendation(GENOA), situations=(in_doubt,))
    assert_says(when_to_use_which(answer), "perhaps 3.6x cheaper", unknown, "aws g6.xlarge")
    (table,) = situation_tables(answer)
    assert table.rows[1][-1] == "perhaps 3.6x"
    # L4 heads this answer, which says itself what is in doubt.
    assert "perhaps" not in when_to_use_which(replace(answer, best=L4))


@pytest.mark.parametrize("kind", ["once", "service"])
def test_a_side_in_doubt_at_the_crossing_is_only_perhaps_cheaper_from_there_on(kind: SituationKind) -> None:
    sure = situation(kind, cpu_usd=1.0, gpu_usd=2.0, crossing=17_612)
    assert sure.point.gpu is not None
    unmeasured = replace(sure.point.gpu, is_candidate=False, time_source="datasheet")

    def said(at_crossing: CurvePoint) -> str:
        return when_to_use_which(replace(recommendation(), situations=(replace(sure, at_crossing=at_crossing),)))

    assert "perhaps" not in said(sure.point)
    assert_says(
        said(replace(sure.point, gpu=unmeasured)), "a CPU is cheaper below 17,600", "perhaps a GPU above", "time"
    )
    cpu = replace(unmeasured, name="aws old")
    assert_says(said(replace(sure.point, cpu=cpu)), "a CPU is perhaps cheaper below 17,600", "time of aws old")


def test_an_offer_in_doubt_has_the_mark_of_the_ranking() -> None:
    sure = situation("busy", cpu_usd=1.0, gpu_usd=2.0)
    assert sure.point.gpu is not None
    in_doubt = replace(sure.point, gpu=replace(sure.point.gpu, is_candidate=False))
    (table,) = situation_tables(replace(recommendation(GENOA), situations=(replace(sure, point=in_doubt),)))
    assert [row[2] for row in table.rows] == ["aws c7a.xlarge", "aws g6.xlarge ?"]
    assert_says(" ".join(table.notes), "?", "in doubt")
    (table,) = situation_tables(replace(recommendation(GENOA), situations=(sure,)))
    assert "?" not in " ".join((*table.notes, *(cell for row in table.rows for cell in row)))


def test_the_ranking_shows_the_offers_that_are_compared_as_the_best_of_their_kinds() -> None:
    # The unmeasured L4 is compared with the CPU; the measured A10G would be the first GPU without a "?".
    unmeasured = replace(L4, is_candidate=False, may_lead=False)
    sure = situation("busy", cpu_usd=1.0, gpu_usd=2.0)
    many = [replace(GENOA, id=f"aws/{number}") for number in range(5)]
    answer = replace(recommendation(GENOA, *many, unmeasured, A10G), situations=(sure,))
    rows = table_rows(answer, top=3)
    assert [row.quote.id for row in rows][-1] == L4.id
    marks, _ = table_notes(rows, quote_count=len(answer.quotes), compared=compared_ids(answer))
    assert_says(marks, "row 7 is the best GPU")


def test_one_offer_for_two_choices_is_one_row_and_for_three_none() -> None:
    (table,) = choice_tables(replace(recommendation(), choices={"cheapest": L4, "balanced": L4, "fastest": A10G}))
    assert [row[0] for row in table.rows] == ["cheapest, balanced", "fastest"]
    doubtful = replace(A10G, may_lead=False)
    (table,) = choice_tables(replace(recommendation(), choices={"cheapest": L4, "balanced": L4, "fastest": doubtful}))
    assert [row[1].endswith(" ?") for row in table.rows] == [False, True]
    assert list(choice_tables(replace(recommendation(), choices={"cheapest": L4, "balanced": L4, "fastest": L4}))) == []
    several = replace(L4, instance_count=3)
    (table,) = choice_tables(replace(recommendation(), choices={"cheapest": L4, "balanced": L4, "fastest": several}))
    assert [row[1] for row in table.rows] == ["aws g6.xlarge", "aws 3x g6.xlarge"]
