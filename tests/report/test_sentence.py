"""The sentences that every format shares."""

from dataclasses import replace

from advisor.records.answer import Alternative, DeviceChance, JobLimits, Recommendation
from advisor.records.rejection import RejectionCode
from advisor.report import sentence
from advisor.report.quote_columns import columns_for, table_rows
from advisor.report.situations import alternative_tables
from tests.report.toys import A10G, GENOA, HERE, L4, T4, quote, recommendation, rejection, shown_quotes
from tests.says import assert_says

# The machine at hand: its job takes 1,800 s, 1,620 to 1,980, which is 27 to 33 min.
MACHINE = ("machine's cpu", "16 threads of AMD EPYC 7763", "1,000,000 samples", "30 min [27-33]")
MACHINE_RATE = ("machine's cpu", "16 threads of AMD EPYC 7763", "556 samples/s")


def given(answer: Recommendation) -> Recommendation:
    """The same answer for a job whose size the user gave."""
    return replace(answer, job=replace(answer.job, assumed=False))


def test_the_headline_names_the_instance_its_cost_and_the_margin() -> None:
    # 2.86 / 0.42 = 6.81; the interval is 0.9 and 1.1 times 0.42; 64 samples take 115.2 ms.
    assert_says(
        sentence.headline(recommendation(L4, A10G, GENOA)),
        *("aws g6.xlarge", "1x L4", "million samples", "$0.42", "$0.38-$0.46", "556 samples/s"),
        *("GPU", "6.8x cheaper", "CPU", "aws c7a.xlarge", "$2.86"),
    )


def test_a_small_margin_is_given_in_percent() -> None:
    # A CPU job for 0.504 beside one for 0.42: 1 - 0.42 / 0.504 = 16.7 % less.
    cpu = replace(GENOA, job_usd=replace(GENOA.job_usd, mid=0.504))
    assert_says(sentence.headline(recommendation(L4, cpu)), "GPU", "17 % cheaper", "CPU")


def test_a_cpu_can_win() -> None:
    cpu = replace(GENOA, job_usd=replace(GENOA.job_usd, mid=0.1, low=0.09, high=0.12))
    # 0.42 / 0.10 = 4.2
    assert_says(
        sentence.headline(recommendation(cpu, L4)),
        *("aws c7a.xlarge", "4 vCPU AMD EPYC 9R14", "million samples", "$0.10", "$0.09-$0.12", "556 samples/s"),
        *("CPU", "4.2x cheaper", "GPU", "aws g6.xlarge", "$0.42"),
    )


def test_overlapping_intervals_are_no_margin() -> None:
    cpu = replace(GENOA, indistinguishable=True)
    said = sentence.headline(recommendation(L4, cpu))
    assert_says(said, "$0.42", "CPU", "aws c7a.xlarge", "$2.86", "overlap", "1 other")
    assert "6.8x" not in said


def test_the_headline_names_an_offer_that_cannot_be_told_apart_with_both_chances() -> None:
    said = sentence.headline(recommendation(L4, T4, A10G))
    assert_says(said, "61 %", "1 other", "aws g4dn.xlarge", "39 %")
    assert "g5.xlarge" not in said


def test_of_many_rivals_the_three_likeliest_are_named() -> None:
    rivals = [
        quote(name, kind="gpu", device="T4", usd=0.5, chance_cheapest=chance, indistinguishable=True)
        for name, chance in (("b", 0.1), ("c", 0.02), ("d", 0.2), ("e", 0.05))
    ]
    said = sentence.headline(recommendation(L4, *rivals))
    assert_says(said, "61 %", "4 other", "aws d", "20 %", "aws b", "10 %", "aws e", "5 %", "1 more")
    assert "aws c" not in said


def test_a_rival_that_is_never_the_cheapest_is_not_one() -> None:
    rivals = [
        quote(name, kind="gpu", device="T4", usd=0.5, chance_cheapest=chance, indistinguishable=True)
        for name, chance in (("b", 0.1), ("c", 0.001))
    ]
    said = sentence.headline(recommendation(L4, *rivals))
    assert_says(said, "1 other", "aws b")
    assert "more" not in said
    assert "aws c" not in said


def test_a_ranking_of_one_kind_says_that_the_other_is_missing() -> None:
    said = sentence.headline(recommendation(L4, A10G))
    assert_says(said, "556 samples/s", "no CPU")
    assert "cheaper" not in said


def test_a_training_job_trains() -> None:
    answer = recommendation(L4)
    training = replace(answer, job=replace(answer.job, mode="training"))
    assert_says(sentence.headline(training), "1x L4", "trains", "million samples")


def test_no_quote_is_said_with_the_number_of_offers() -> None:
    answer = recommendation(rejected=(rejection("p5.48xlarge", code="does-not-fit", reason="needs 90 GiB of 80 GiB"),))
    assert_says(sentence.headline(answer), "1 offer")


def test_the_basis_names_every_default_and_every_note() -> None:
    job, best, workload, note = sentence.basis(recommendation(L4, notes=("./advisor.yaml is in force.",)))
    assert_says(
        job, "inference", "auto", "fp32", "bf16", "fp16", "eager", "NCHW", "on-demand", "no job size", "compute"
    )
    assert_says(best, "Batch 64", "amp-bf16", "$0.84", "list", "2025-11-02", "generation")
    assert_says(workload, "resnet50", "25.6M parameters", "8.18 GFLOP", "batch 1")
    assert "%" not in workload
    assert note == "./advisor.yaml is in force."


def test_a_price_after_a_discount_says_so() -> None:
    discounted = replace(L4, price_adjustment="less 60 % plus 3 %")
    assert_says(sentence.basis(recommendation(discounted))[1], "(list price less 60 % plus 3 %, 2025-11-02)")


def test_a_job_that_was_given_is_not_called_assumed() -> None:
    answer = recommendation(L4)
    job = replace(answer.job, assumed=False, batch="32", precision="fp32", compile="compile", price="spot")
    said = sentence.basis(replace(answer, job=job))[0]
    assert_says(said, "inference", "batch 32", "fp32", "torch.compile", "NCHW", "spot")
    assert "1,000,000" not in said


def test_operators_without_a_formula_are_listed_with_the_coverage() -> None:
    workload = sentence.basis(recommendation(L4, unknown_ops={"aten.foo": 3, "aten.bar": 1}))[2]
    assert_says(workload, "98 %", "aten.bar x1", "aten.foo x3", "--strict")


def test_what_was_left_out_is_counted_by_reason_commonest_first() -> None:
    answer = recommendation(
        L4,
        rejected=(
            rejection("p3.2xlarge", code="does-not-fit", reason="needs 20 GiB of 16 GiB"),
            rejection("g6.12xlarge", code="too-few-gpus", reason="has 4 GPUs, not 8"),
            rejection("p5.48xlarge", code="too-few-gpus", reason="has 1 GPU, not 8"),
        ),
    )
    few, large = sentence.left_out(answer)
    assert_says(few, "2 too-few-gpus", "aws g6.12xlarge", "has 4 GPUs, not 8")
    assert_says(large, "1 does-not-fit", "aws p3.2xlarge", "needs 20 GiB of 16 GiB")


def test_the_summary_of_what_was_left_out_names_the_two_most_common_reasons() -> None:
    codes: tuple[RejectionCode, ...] = ("no-price", "too-few-gpus", "does-not-fit", "too-few-gpus", "over-ttft")
    answer = recommendation(L4, rejected=tuple(rejection("p5", code=code, reason="why") for code in codes))
    assert_says(sentence.left_out_summary(answer), "5", "2 too-few-gpus", "1 no-price", "2 other")


def test_of_those_that_miss_a_limit_the_first_is_called_the_nearest() -> None:
    late = [rejection(name, code="over-ttft", reason=f"its first token is late on {name}") for name in ("near", "far")]
    (line,) = sentence.left_out(recommendation(L4, rejected=tuple(late)))
    assert_says(line, "2 over-ttft", "closest aws near", "its first token is late on near")


def test_the_notes_of_a_table_explain_marks_jumps_and_cuts() -> None:
    rows = shown_quotes((L4, T4, A10G, GENOA), top=3)
    marks, cut = sentence.table_notes(rows, quote_count=4)
    assert_says(marks, "~", "4", "CPU")
    assert_says(cut, "1 more", "--top 4")
    (meaning,) = sentence.table_details(rows)
    assert_says(meaning, "~", "costs", "P(best)", "probability", "cheapest")


def test_a_table_that_hides_nothing_needs_no_notes() -> None:
    rows = shown_quotes((A10G, GENOA), top=10)
    assert (*sentence.table_notes(rows, quote_count=2), *sentence.table_details(rows)) == ()


def test_a_machine_at_hand_that_does_the_job_within_the_hour_stands_before_the_headline() -> None:
    said = sentence.headline(given(recommendation(L4, A10G, at_hand=HERE)))

    assert_says(
        said,
        "not rent",
        *MACHINE,
        *("aws g6.xlarge", "1x L4", "1,000,000 samples", "$0.42", "$0.38-$0.46", "30 min"),
    )


def test_a_job_whose_size_nobody_gave_gets_facts_and_no_advice() -> None:
    said = sentence.headline(recommendation(L4, A10G, at_hand=HERE))

    assert_says(said, "aws g6.xlarge", "1x L4", "a million samples", "$0.42", *MACHINE_RATE)
    assert "not rent" not in said


def test_a_machine_at_hand_that_takes_an_hour_is_no_reason_not_to_rent() -> None:
    slow = replace(HERE, job_s=replace(HERE.job_s, mid=3600.0))

    assert sentence.headline(given(recommendation(L4, A10G, at_hand=slow))).startswith("aws g6.xlarge")


def test_where_nothing_can_be_rented_the_machine_at_hand_is_still_named() -> None:
    said = sentence.headline(given(recommendation(at_hand=HERE)))

    assert_says(said, "not rent", *MACHINE, "0 offers")


def test_the_machine_at_hand_costs_its_electricity_where_that_has_a_price() -> None:
    paid = replace(HERE, usd_per_hour=0.1, job_usd=replace(HERE.job_usd, mid=0.05))  # half an hour

    said = sentence.headline(given(recommendation(L4, at_hand=paid)))
    assert_says(said, "30 min [27-33]", "$0.05", "electricity")


def test_the_machine_at_hand_asked_for_by_name_is_the_headline_without_a_margin() -> None:
    said = sentence.headline(recommendation(HERE, L4, at_hand=HERE))

    assert_says(said, *MACHINE_RATE)
    assert "cheaper" not in said


def test_a_service_on_the_machine_at_hand_has_percentiles_and_no_end() -> None:
    here = replace(HERE, p50_s=0.015, p99_s=0.020, usd_per_hour=0.1, job_usd=replace(HERE.job_usd, mid=73.0))
    found = recommendation(here, at_hand=here)
    month = replace(found, job=replace(found.job, assumed=False, requests_per_day=86_400))

    said = sentence.headline(month)
    assert_says(said, "serves 86,400 requests per day", "$73.00", "per month", "p50 15 ms", "p99 20 ms", "utilization")
    assert " in " not in said


def test_a_best_that_costs_nothing_says_why() -> None:
    _, best, *_ = sentence.basis(recommendation(HERE, at_hand=HERE))

    assert_says(best, "free", "electricity", "`owned`")


OLD = replace(
    quote("RTX 3080", kind="gpu", device="RTX 3080", usd=0.1, provider="neo"),
    tier="neocloud",
    price_date="2025-05-24",
    price_is_trusted=False,
    is_candidate=False,
    may_lead=False,
)


def test_an_offer_whose_old_price_would_be_better_is_named_beside_the_best() -> None:
    answer = replace(recommendation(OLD, L4), best=L4, better_if_price_holds=OLD)
    assert_says(sentence.better_if_price_holds(answer) or "", "Cheaper", OLD.price_date, "neo RTX 3080", "$0.10")
    assert_says(sentence.headline(answer), "aws g6.xlarge")
    assert sentence.better_if_price_holds(recommendation(L4)) is None


def test_the_best_rented_offer_beside_ones_own_machine_says_that_its_price_is_doubtful() -> None:
    own = replace(T4, provider="own", tier="owned", instance="home")
    doubtful, trusted = (
        sentence.verdict(replace(recommendation(one, own), best=own, best_rented=one)) for one in (OLD, L4)
    )
    assert_says(doubtful, "own home", "neo RTX 3080", f"price of {OLD.price_date} still holds")
    assert_says(trusted, "own home", "aws g6.xlarge")
    assert L4.price_date not in trusted


def test_the_best_of_the_other_kind_says_that_its_price_is_doubtful() -> None:
    said = sentence.verdict(replace(recommendation(GENOA, OLD), best=GENOA))
    assert_says(said, "neo RTX 3080", f"price of {OLD.price_date} still holds")


def test_a_commitment_stands_beside_the_cost_of_the_job() -> None:
    committed = replace(L4, price_kind="commit_3y", commitment_usd=26280.0)
    for said in (sentence.verdict(recommendation(committed)), sentence.short_headline(recommendation(committed))):
        assert_says(said, "$0.42", "$26,280", "three years")
    assert "commitment" not in sentence.verdict(recommendation(L4))


def test_a_deadline_before_any_machine_starts_is_asked_about() -> None:
    # The job takes 30 min with its start-up of 40 s: 6 min are too few, so 6 h are the next unit up.
    slow = Alternative(kind="cheapest", quote=replace(L4, start_up_s=40.0))

    def said(deadline_s: float) -> str:
        answer = recommendation()
        job = replace(answer.job, assumed=False, limits=JobLimits(deadline_s=deadline_s))
        return sentence.headline(replace(answer, job=job, alternatives=(slow,)))

    assert_says(said(6.0), "deadline of 6 s", "--deadline 6h")
    assert_says(said(35.0), "--deadline 35m")
    assert "did you mean" not in said(60.0)


def test_an_unmeasured_offer_outside_the_limits_is_marked() -> None:
    unmeasured = Alternative(kind="fastest", quote=replace(A10G, time_source="datasheet"))
    answer = replace(recommendation(), alternatives=(Alternative(kind="cheapest", quote=L4), unmeasured))
    assert_says(sentence.headline(answer), "aws g5.xlarge, whose time no measurement backs")
    (table,) = alternative_tables(answer)
    assert [row[1] for row in table.rows] == ["aws g6.xlarge", "aws g5.xlarge ?"]


def test_a_part_of_the_job_within_a_limit_is_told_with_its_share() -> None:
    part = Alternative(kind="budget", quote=L4, flag="--samples 1.5e6", done_ratio=0.0015)
    answer = recommendation()
    job = replace(answer.job, assumed=False, limits=JobLimits(max_usd=50.0))
    (table,) = alternative_tables(replace(answer, job=job, alternatives=(part,)))
    assert_says(table.rows[0][0], "$50.00", "--samples 1.5e6", "0.15 %")
    assert_says(" ".join(table.notes), "share of the job")


def test_the_price_per_hour_is_said_with_its_region() -> None:
    # The job takes half an hour: $0.84 per hour.
    everywhere, own = replace(L4, region="global"), replace(L4, region="own", tier="owned")
    figures = [sentence.best_figures(recommendation(one))[0] for one in (L4, everywhere, own)]
    assert_says(figures[0], "$0.84 per hour in us-east-1")
    assert not any(
        f"per hour in {one.region}" in said for one, said in zip((everywhere, own), figures[1:], strict=True)
    )


def test_a_spot_price_is_not_called_a_list_price() -> None:
    spot = replace(L4, price_kind="spot", price_is_trusted=False, may_lead=False)
    answer = recommendation(spot)
    assert_says(sentence.headline(answer), f"spot price of {L4.price_date}")
    assert "list price" not in " ".join(sentence.basis(answer))
    assert_says(" ".join(sentence.basis(recommendation(L4))), "list price")


def test_each_tier_that_is_not_named_yet_has_a_line_with_its_best_offer_cost_and_speed() -> None:
    answer = replace(recommendation(OLD, L4), best=T4, best_by_tier={"neocloud": OLD, "hyperscaler": L4})
    hyperscalers, clouds = sentence.by_tier(answer)
    assert_says(clouds, "GPU clouds", "$0.10", "556 samples/s", "neo RTX 3080", OLD.price_date)
    assert_says(hyperscalers, "hyperscalers", "$0.42", "aws g6.xlarge")
    assert L4.price_date not in hyperscalers
    assert sentence.by_tier(replace(answer, best=L4)) == (clouds,)
    assert sentence.by_tier(replace(answer, best=L4, better_if_price_holds=OLD)) == ()


def test_the_parts_of_the_headline_and_of_the_basis_lose_nothing() -> None:
    answer = replace(recommendation(OLD, L4, T4), best=L4)
    for part in (sentence.verdict(answer), *sentence.certainty(answer)):
        assert part in sentence.headline(answer)
    parts = (*sentence.settings(answer), *sentence.best_figures(answer), *sentence.further_basis(answer))
    assert sorted(parts) == sorted(sentence.basis(answer))


def test_a_best_of_an_unmeasured_generation_leads_by_its_upper_end_only_if_others_were_measured() -> None:
    unknown = replace(L4, time_source="datasheet")
    assert_says(" ".join(sentence.certainty(replace(recommendation(unknown, A10G), best=unknown))), "upper end")
    answer = recommendation(unknown, A10G)
    by_time = replace(answer, best=unknown, job=replace(answer.job, objective="time"))
    assert_says(" ".join(sentence.certainty(by_time)), "upper end of its time")
    alone = " ".join(sentence.certainty(recommendation(unknown)))
    assert "upper end" not in alone
    assert_says(alone, "No measurement backs")


def test_a_best_that_is_not_the_likeliest_leads_because_it_rents_for_less() -> None:
    best = replace(L4, chance_among_trusted=0.24)
    larger = replace(A10G, chance_among_trusted=0.33, indistinguishable=True)
    why = "g6.xlarge is recommended, because g5.xlarge rents for more than twice as much"
    said = " ".join(sentence.certainty(recommendation(best, replace(larger, may_lead=False))))
    assert_says(said, "(33 %)", why)
    assert why not in " ".join(sentence.certainty(recommendation(best, larger)))
    none_leads = [replace(one, may_lead=False) for one in (best, larger)]
    assert why not in " ".join(sentence.certainty(recommendation(*none_leads)))


def test_offers_in_doubt_that_rank_before_the_best_are_counted_beside_its_chance() -> None:
    doubted = [replace(OLD, id=f"neo/{number}") for number in range(3)]
    unmeasured = replace(A10G, time_source="datasheet", is_candidate=False, may_lead=False)
    answer = replace(recommendation(*doubted, unmeasured, L4, T4), best=L4)
    assert_says(sentence.headline(answer), "61 %", "Cheaper", "3 offers with a price in doubt", "1 offer whose time")
    assert "not recommended" not in sentence.headline(recommendation(L4, T4, unmeasured))
    assert unmeasured.needs_measurement
    yielding = replace(A10G, time_source="calibrated", may_lead=False)  # a smaller machine costs about the same
    assert not yielding.needs_measurement
    assert "not recommended" not in sentence.headline(replace(recommendation(yielding, L4, T4), best=L4))
    named = replace(recommendation(OLD, L4, T4), best=L4, better_if_price_holds=OLD)
    assert "not recommended" not in sentence.headline(named)


def test_the_headline_gives_the_chance_of_the_device() -> None:
    device = DeviceChance(id=L4.device.id, name="L4", kind="gpu", chance=0.73)
    said = sentence.headline(replace(recommendation(L4, T4), chance_by_device=(device,)))
    assert_says(said, "61 %", "device", "73 %")


def test_the_table_marks_a_price_that_is_not_trusted_and_shows_the_best_below_many_such() -> None:
    many = [replace(OLD, id=f"neo/{number}") for number in range(12)]
    rows = table_rows(replace(recommendation(*many, L4), best=L4), top=10)
    assert [row.rank for row in rows] == [*range(1, 10), 13]
    column = next(column for column in columns_for(rows) if column.header == "#")
    assert [column.cell(row) for row in rows][-2:] == ["9?", "13"]
