"""Which quotes and which columns a table shows."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from advisor.records.answer import Quote
from advisor.report.quote_columns import columns_for, device_label, instance_label, percent_chance, table_rows
from tests.report.toys import A10G, GENOA, HERE, L4, T4, quote, recommendation, render_text, shown_quotes


def test_the_best_cpu_takes_the_last_place_when_gpus_fill_the_table() -> None:
    rows = shown_quotes((L4, T4, A10G, GENOA), top=2)
    assert [(row.rank, row.quote.instance) for row in rows] == [(1, "g6.xlarge"), (4, "c7a.xlarge")]


def test_the_best_quote_stays_when_one_row_is_asked_for() -> None:
    rows = shown_quotes((L4, T4, GENOA), top=1)
    assert [row.rank for row in rows] == [1, 3]


def test_a_table_that_shows_both_kinds_is_left_alone() -> None:
    rows = shown_quotes((L4, GENOA, T4, A10G), top=3)
    assert [row.rank for row in rows] == [1, 2, 3]


def test_one_kind_alone_is_cut_at_the_top() -> None:
    assert [row.rank for row in shown_quotes((L4, T4, A10G), top=2)] == [1, 2]


@given(st.lists(st.sampled_from([L4, T4, A10G, GENOA]), max_size=30), st.integers(min_value=1, max_value=40))
def test_both_kinds_are_shown_whenever_both_are_ranked(quotes: list[object], top: int) -> None:
    rows = shown_quotes(quotes, top=top)  # type: ignore[arg-type]
    assert {row.quote.device.kind for row in rows} == {q.device.kind for q in quotes}  # type: ignore[attr-defined]
    assert len(rows) <= max(top, 2)
    assert [row.rank for row in rows] == sorted({row.rank for row in rows})


def test_an_arm_machine_is_marked_beside_its_name_which_no_width_hides() -> None:
    arm = replace(GENOA, architecture="arm")
    assert instance_label(arm) == "c7a.xlarge [Arm]"
    assert instance_label(replace(arm, instance_count=3)) == "3x c7a.xlarge [Arm]"
    assert instance_label(replace(GENOA, architecture="x86")) == instance_label(GENOA) == "c7a.xlarge"
    assert "c7a.xlarge [Arm]" in render_text(recommendation(arm, L4), width=60, color=False)


def test_a_gpu_is_labelled_by_its_count_and_a_cpu_by_its_vcpus() -> None:
    assert device_label(L4) == "1x L4"
    assert device_label(GENOA) == "4 vCPU AMD EPYC 9R14"


def test_the_cells_of_a_row_say_what_the_quote_says() -> None:
    (row,) = shown_quotes((quote("g6.xlarge", kind="gpu", device="L4", usd=0.42, chance_cheapest=0.614),), top=1)
    cells = {column.header: column.cell(row) for column in columns_for(())}
    assert cells == {
        "#": "1",
        "instance": "g6.xlarge",
        "provider": "aws",
        "region": "us-east-1",
        "device": "1x L4",
        "per h": "$0.84",  # half an hour for $0.42
        "batch": "64",
        "precision": "amp-bf16",
        "samples/s": "556",  # 64 / 0.1152 = 555.6
        "time": "30 min",
        "cost": "$0.42",
        "cost [90 %]": "0.38-0.46",  # 10 % up and down
        "P(best)": "61 %",
        "memory": "12 %",  # 2 GiB of 16 GiB = 12.5 %, to even
        "bound": "memory",
        "price date": "2025-11-02",
    }


def test_a_chance_is_told_in_whole_percents_alone() -> None:
    chances = (0.0, 0.004, 0.006, 0.9949, 0.9951, 0.9999, 1.0)
    assert list(map(percent_chance, chances)) == ["0 %", "0 %", "1 %", "99 %", ">99 %", ">99 %", "100 %"]


def test_the_machine_at_hand_follows_the_ranked_rows_without_a_rank() -> None:
    rows = table_rows(recommendation(L4, T4, A10G, GENOA, at_hand=HERE), top=2)

    assert [(row.rank, row.quote.provider) for row in rows] == [(1, "aws"), (4, "aws"), (None, "local")]
    cells = {column.header: column.cell(rows[-1]) for column in columns_for(())}
    assert (cells["#"], cells["per h"], cells["cost"], cells["P(best)"]) == ("-", "$0", "$0", "-")
    assert cells["device"] == "16 threads of AMD EPYC 7763"


def test_a_machine_at_hand_that_is_ranked_is_shown_once() -> None:
    assert [row.rank for row in table_rows(recommendation(HERE, L4, at_hand=HERE), top=5)] == [1, 2]


def test_a_service_has_percentiles_of_its_latency_because_it_never_ends() -> None:
    answer = recommendation(replace(L4, p50_s=0.12, p99_s=0.3))
    service = replace(answer, job=replace(answer.job, requests_per_day=1000))
    (row,) = table_rows(service, top=1)
    cells = {column.header: column.cell(row) for column in columns_for([row])}
    assert (cells["p50"], cells["p99"]) == ("120 ms", "300 ms")
    assert "time" not in cells


def test_what_differs_follows_the_name_of_an_instance_that_is_there_twice() -> None:
    four = replace(L4, device=replace(L4.device, count=4))
    elsewhere = replace(four, region="eu-west-1")
    rows = table_rows(recommendation(L4, four, elsewhere, T4, replace(L4, provider="gcp")), top=9)
    assert [row.name for row in rows] == [
        "g6.xlarge (1x L4)",
        "g6.xlarge (4x L4) (us-east-1)",
        "g6.xlarge (4x L4) (eu-west-1)",
        "g4dn.xlarge",
        "g6.xlarge",  # its provider differs already
    ]


def test_the_first_that_may_lead_are_shown_after_three_that_may_not() -> None:
    doubtful = [
        replace(quote(f"old {place}", kind="gpu", device="T4", usd=0.1 + place), is_candidate=False, may_lead=False)
        for place in range(5)
    ]
    leading = [quote(f"new {place}", kind="gpu", device="T4", usd=10.0 + place) for place in range(4)]
    between = replace(quote("between", kind="gpu", device="T4", usd=11.5), is_candidate=False, may_lead=False)
    answer = replace(recommendation(*doubtful, *leading[:2], between, *leading[2:]), best=leading[0])

    def ranks(top: int) -> list[int | None]:
        return [row.rank for row in table_rows(answer, top=top)]

    assert ranks(5) == [1, 2, 3, 6, 7]
    assert ranks(7) == [1, 2, 3, 6, 7, 9, 10]
    assert ranks(10) == [*range(1, 11)]
    assert ranks(1) == [6]


def test_offers_that_the_answer_names_have_a_row() -> None:
    def rival(name: str, chance: float) -> Quote:
        return replace(
            quote(name, kind="gpu", device="T4", usd=0.5, chance_cheapest=chance, indistinguishable=True),
            may_lead=False,
        )

    doubtful = [
        replace(quote(f"old {place}", kind="gpu", device="T4", usd=0.1 + place), is_candidate=False, may_lead=False)
        for place in range(5)
    ]
    best = quote("best", kind="gpu", device="T4", usd=0.6, chance_cheapest=0.1)
    leading = [quote(f"new {place}", kind="gpu", device="T4", usd=10.0 + place) for place in range(9)]
    rivals = [rival(name, chance) for name, chance in (("a", 0.2), ("b", 0.1), ("c", 0.3), ("d", 0.25))]
    answer = replace(
        recommendation(*doubtful, *rivals, best, *leading), best=best, better_if_prediction_holds=doubtful[4]
    )
    # a, c and d are the likeliest of four rivals, at 6, 8 and 9; old 4 is at 5, the best at 10.
    assert [row.rank for row in table_rows(answer, top=9)] == [1, 2, 3, 5, 6, 8, 9, 10, 11]
    assert [row.rank for row in table_rows(answer, top=4)] == [1, 2, 3, 10]
