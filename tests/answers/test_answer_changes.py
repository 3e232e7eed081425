from dataclasses import replace

import pytest

from advisor.answers.comparison import _change, _module_changes, compare_answers, cost_rise_ratio
from advisor.records.answer import Group, Interval, Quote, Recommendation, TokenQuote
from advisor.records.change import Change, InstanceChange
from advisor.records.generation import Generation, WeightFormat
from advisor.records.rejection import Rejection, RejectionCode
from tests.report.toys import GENOA, L4, T4, recommendation
from tests.says import assert_says

BASE = recommendation(L4, T4)


def slower(quote: Quote, times: float) -> Quote:
    def longer(interval: Interval) -> Interval:
        return Interval(mid=interval.mid * times, low=interval.low * times, high=interval.high * times)

    return replace(quote, step_s=longer(quote.step_s), job_s=longer(quote.job_s), job_usd=longer(quote.job_usd))


def changed(instance: InstanceChange | None, measure: str) -> Change:
    assert instance is not None
    (found,) = (one for one in instance.changes if one.measure == measure)
    return found


def with_flops(answer: Recommendation, flops: float) -> Recommendation:
    return replace(answer, workload=replace(answer.workload, totals=replace(answer.workload.totals, flops=flops)))


def test_an_answer_compared_with_itself_has_not_changed() -> None:
    comparison = compare_answers(BASE, BASE)
    assert [one.ratio for one in comparison.counted] == [1.0] * 4
    assert comparison.cheapest is not None
    assert [one.ratio for one in comparison.cheapest.changes] == [1.0] * 3
    assert comparison.same_instance is None
    assert comparison.notes == ()
    assert cost_rise_ratio(comparison) == 0


def test_counts_are_compared_one_by_one() -> None:
    # 8.178e9 x 2 FLOP; 2e8 read + 1e8 written is 3e8 on both sides.
    comparison = compare_answers(BASE, with_flops(BASE, 16.356e9))
    by_measure = {one.measure: one for one in comparison.counted}
    assert by_measure["flops"].ratio == 2.0
    assert (by_measure["moved_bytes"].before, by_measure["moved_bytes"].ratio) == (3e8, 1.0)
    assert by_measure["flops"].is_inside_interval is None


def test_a_difference_within_the_interval_of_the_old_prediction_is_called_so() -> None:
    # L4: $0.42 with an interval of 0.9 to 1.1 of it; a step of 115.2 ms, 104 to 128.
    for times, step_inside, cost_inside in (
        (1.08, True, True),
        (1.105, True, False),
        (1.2, False, False),
        (0.95, True, True),
    ):
        comparison = compare_answers(BASE, recommendation(slower(L4, times), T4))
        assert changed(comparison.cheapest, "step_s").is_inside_interval is step_inside
        assert changed(comparison.cheapest, "job_usd").is_inside_interval is cost_inside


def test_the_old_best_is_compared_with_itself_where_another_is_best_now() -> None:
    # The L4 is 1.2 x 0.42 = $0.504 now, so the T4 at $0.45 is best: 0.45 / 0.42 = 1.0714.
    comparison = compare_answers(BASE, recommendation(T4, slower(L4, 1.2)))
    assert comparison.cheapest is not None
    assert comparison.cheapest.before.startswith("aws g6.xlarge")
    assert comparison.cheapest.after.startswith("aws g4dn.xlarge")
    assert changed(comparison.same_instance, "job_usd").ratio == pytest.approx(1.2)
    assert cost_rise_ratio(comparison) == pytest.approx(0.0714, abs=1e-4)


def test_another_price_by_the_hour_is_shown_as_such() -> None:
    dearer = replace(L4, usd_per_hour=1.0)
    assert changed(compare_answers(BASE, recommendation(dearer)).cheapest, "usd_per_hour").before == 0.84
    assert len(compare_answers(BASE, recommendation(L4)).cheapest.changes) == 3  # type: ignore[union-attr]


def test_a_job_that_nothing_does_any_more_costs_more_than_any_threshold() -> None:
    comparison = compare_answers(BASE, recommendation())
    assert comparison.cheapest is None
    assert cost_rise_ratio(comparison) == float("inf")
    (note,) = comparison.notes
    assert_says(note, "no instance", "now")
    assert cost_rise_ratio(compare_answers(recommendation(), recommendation())) == float("inf")


def test_a_job_that_nothing_did_before_has_not_become_dearer() -> None:
    comparison = compare_answers(recommendation(), BASE)
    assert (comparison.cheapest, comparison.new_fits) == (None, True)
    assert cost_rise_ratio(comparison) == 0


def test_what_was_free_and_costs_now_has_risen() -> None:
    free = replace(GENOA, job_usd=Interval(mid=0.0, low=0.0, high=0.0))
    assert cost_rise_ratio(compare_answers(recommendation(free), BASE)) == float("inf")
    assert cost_rise_ratio(compare_answers(recommendation(free), recommendation(free))) == 0


def test_jobs_that_differ_are_told() -> None:
    limits = replace(BASE.job.limits, max_usd=5.0)
    other = replace(BASE, job=replace(BASE.job, samples=2_000_000, limits=limits))
    samples, max_usd = compare_answers(BASE, other).notes
    assert_says(samples, "samples", "1000000", "2000000")
    assert_says(max_usd, "--max-usd", "none", "5")
    hurried = replace(BASE, job=replace(BASE.job, limits=replace(BASE.job.limits, deadline_s=86400.0)))
    assert_says(*compare_answers(BASE, hurried).notes, "--deadline", "none", "1 day")


def test_the_length_and_the_requests_of_a_month_of_a_service_are_not_compared() -> None:
    # The month has 1,000 x 730 / 24 = 30,417 requests, which nobody gave as --samples.
    service = replace(BASE, job=replace(BASE.job, samples=30_417, requests_per_day=1_000))
    for base, new in ((BASE, service), (service, BASE)):
        comparison = compare_answers(base, new)
        assert comparison.cheapest is not None
        assert [one.measure for one in comparison.cheapest.changes] == ["step_s", "job_usd"]
        (note,) = comparison.notes
        assert_says(note, "--requests-per-day")


def test_a_flag_that_selects_offers_is_told_if_it_left_out_what_the_other_answer_ranked() -> None:
    def without_t4(code: RejectionCode) -> Recommendation:
        left_out = Rejection(
            id=T4.id, provider=T4.provider, region=T4.region, instance=T4.instance, code=code, reason="left out"
        )
        return replace(recommendation(L4), rejected=(left_out,))

    assert_says(*compare_answers(BASE, without_t4("other-provider")).notes, "offers differ", "--provider")
    assert_says(*compare_answers(without_t4("other-tier"), BASE).notes, "offers differ", "--tier")
    # It was left out before too, or for what it costs, which the tables say.
    assert compare_answers(without_t4("other-tier"), without_t4("other-provider")).notes == ()
    assert compare_answers(BASE, without_t4("over-quota")).notes == ()


TOKENS = TokenQuote(
    ttft_s=Interval(mid=0.2, low=0.16, high=0.25),
    tpot_s=Interval(mid=0.02, low=0.016, high=0.025),
    decode_s=0.015,
    output_tokens_per_s=100.0,
    usd_per_million_output_tokens=1.0,
    usd_per_million_tokens=0.2,
    kv_cache_bytes=5e9,
    weight_bytes=16e9,
    compute_bound_from=None,
)


def served(tokens: TokenQuote, *, weights: WeightFormat = "auto", head_count: int = 32) -> Recommendation:
    answer = recommendation(replace(L4, tokens=tokens))
    generation = Generation(prompt_tokens=1024, output_tokens=256, weights=weights, head_count=head_count)
    return replace(answer, job=replace(answer.job, generation=generation))


def test_tokens_are_compared_where_both_answers_have_them() -> None:
    # 0.2 s to 0.3 s is 1.5, beyond 0.25; 20 ms to 24 ms is 1.2, within 25 ms; $0.2 to $0.1 is a half.
    slow = replace(
        TOKENS,
        ttft_s=Interval(mid=0.3, low=0.2, high=0.4),
        tpot_s=Interval(mid=0.024, low=0.02, high=0.03),
        usd_per_million_tokens=0.1,
    )
    comparison = compare_answers(served(TOKENS), served(slow))
    for measure, ratio, is_inside in (
        ("ttft_s", 1.5, False),
        ("tpot_s", 1.2, True),
        ("usd_per_million_tokens", 0.5, None),
    ):
        found = changed(comparison.cheapest, measure)
        assert (found.ratio, found.is_inside_interval) == (pytest.approx(ratio), is_inside)
    other = compare_answers(BASE, served(TOKENS)).cheapest
    assert other is not None
    assert "ttft_s" not in {one.measure for one in other.changes}


def test_requests_that_differ_are_told_part_by_part_and_the_models_heads_are_not_of_the_job() -> None:
    narrow = served(TOKENS, weights="int4", head_count=64)
    (note,) = compare_answers(served(TOKENS), narrow).notes
    assert_says(note, "weights", "auto", "int4")
    prompt, output, weights, _, cached, *_ = compare_answers(BASE, narrow).notes
    assert_says(prompt, "--prompt-tokens", "none", "1024")
    assert_says(output, "--output-tokens", "none", "256")
    assert_says(weights, "--weights", "none", "int4")
    assert_says(cached, "prefix cached tokens", "none", "0")


def group(name: str, *, flops: float, moved: float = 0.0) -> Group:
    return Group(name=name, flops=flops, read_bytes=moved, write_bytes=0.0, op_count=1, flops_ratio=0.0)


def test_a_figure_that_was_nothing_has_no_ratio() -> None:
    assert _change("flops", 0.0, 5.0).ratio is None
    assert _change("flops", 4.0, 5.0).ratio == 1.25


def test_modules_come_with_the_largest_change_first_and_unchanged_ones_not_at_all() -> None:
    before = [
        group("same", flops=7),
        group("grown", flops=10),
        group("gone", flops=3),
        group("moves", flops=1, moved=5),
    ]
    after = [group("same", flops=7), group("grown", flops=30), group("new", flops=4), group("moves", flops=1, moved=9)]
    # FLOP: grown +20, new +4, gone -3, moves 0 but 4 bytes more.
    changes = _module_changes(before, after)
    assert [one.name for one in changes] == ["grown", "new", "gone", "moves"]
    assert (changes[0].flops.ratio, changes[1].flops.ratio, changes[2].flops.after) == (3.0, None, 0.0)
    assert changes[3].moved_bytes.ratio == 1.8
