"""Writes a recommendation as sentences: headline, assumptions, notes and offers left out, the same in all formats."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, takewhile

from advisor import units
from advisor.records.answer import Job, Quote, Recommendation, WorkloadSummary
from advisor.records.device import DeviceKind, Precision
from advisor.records.machine import LOCAL
from advisor.records.options import Objective
from advisor.records.price import ANY_REGION, ExchangeRate, Tier
from advisor.records.price_words import if_price_holds, price_of_date
from advisor.records.rejection import RejectionCode
from advisor.records.sample_words import at_batch_text, batch_text, samples_noun, samples_text
from advisor.report.amounts import (
    SampleUnit,
    in_unit,
    interval_text,
    is_rate,
    money_interval,
    per_samples,
    rate_note,
    unit_of,
)
from advisor.report.emissions import asks_for_co2, co2_text
from advisor.report.marks import KIND_NAMES
from advisor.report.prices import basis_name
from advisor.report.quote_columns import (
    NAMED_RIVAL_COUNT,
    RankedQuote,
    device_label,
    instance_label,
    percent_chance,
    rivals_of,
)
from advisor.report.quote_notes import (
    COMMITMENT_NAMES,
    cost_notes,
    covered_cost,
    load_text,
    loader_notes,
    measured_notes,
    price_terms,
    scaling_notes,
    service_settings,
    steps_note,
    token_notes,
    wheel_notes,
)

_OTHER_KIND: Mapping[DeviceKind, DeviceKind] = {"cpu": "gpu", "gpu": "cpu"}
_PRICE_NAMES = {
    "on_demand": "on-demand prices",
    "spot": "spot prices",
    "commit_1y": "prices with a 1-year commitment",
    "commit_3y": "prices with a 3-year commitment",
}
_LONGER_UNITS = ("m", "h", "d")
_TIME_NAMES = {
    "measured": "measured",
    "calibrated": "calibrated on this device",
    "fitted": "predicted from operators measured on its hardware generation",
    "datasheet": "predicted from its datasheet",
}
_AUTOCAST_NAMES: Mapping[Precision, str] = {"amp-bf16": "with bf16 autocast", "amp-fp16": "with fp16 autocast"}
_AMOUNT_CODES = ("over-", "under-", "does-not-fit")
"""Prefixes of the rejection codes that miss a limit by an amount."""
_NAMED_REASON_COUNT = 2
_OVERLAPPING: Mapping[Objective, str] = {
    "cost": "costs",
    "time": "times",
    "cost-time": "costs x times",
    "co2": "emissions",
}
_BETTER: Mapping[Objective, str] = {
    "cost": "cheaper",
    "time": "faster",
    "cost-time": "better in cost x time",
    "co2": "lower in CO2",
}
_RANKED_BY: Mapping[Objective, str] = {"cost": "cost", "time": "time", "cost-time": "cost x time", "co2": "CO2"}
_TIER_NAMES: Mapping[Tier, str] = {
    "hyperscaler": "hyperscalers",
    "neocloud": "GPU clouds",
    "marketplace": "marketplaces",
    "owned": "your own hardware",
}
_NOT_WORTH_RENTING_S = 3600.0
"""The local machine finishes a shorter job before a rented one is set up."""


def headline(recommendation: Recommendation) -> str:
    """Return the answer as one paragraph: the verdict, how sure it is, and what to know about it."""
    return " ".join((verdict(recommendation), *certainty(recommendation)))


def verdict(recommendation: Recommendation) -> str:
    """Return the instance to take, its cost, its speed, and the margin over the other kind of device.

    Advice not to rent comes first if the local machine does a job of a given size within an hour.
    """
    best, job, rate = recommendation.best, recommendation.job, recommendation.exchange_rate
    if best is not None and best.provider == LOCAL:
        return f"{_local_job(best, job, rate=rate)}."
    enough = None if job.assumed else _enough_at_hand(recommendation)
    keep = "" if enough is None else f"Do not rent: {_local_job(enough, job, rate=rate)}. "
    if best is None:
        count = len(recommendation.rejected)
        offers = "1 offer was" if count == 1 else f"{count:,} offers were"
        return f"{keep}No instance can run this job within the limits: {offers} left out."
    unit = unit_of(recommendation)
    cost = in_unit(best.job_usd, unit=unit)
    per_tokens = ""
    if best.tokens is not None:
        per_million = units.format_money(best.tokens.usd_per_million_tokens, rate=rate, digits=3)
        per_tokens = f", {per_million} per million tokens"
    start = "At full load, " if _is_compared(recommendation) else ""
    if not best.price_is_trusted:
        start = f"If its {price_of_date(best)} still holds, "
    return (
        f"{keep}{start}{best.provider} {instance_label(best)} ({device_label(best)}) {_samples_done(job, unit)} for "
        f"{units.format_money(cost.mid, rate=rate)} "
        f"({units.format_money(cost.low, rate=rate)}-{units.format_money(cost.high, rate=rate)}) "
        f"{_pace(best, job)}{_latencies(best)}{per_tokens}{_obligation(best, rate=rate)}"
        f"{_margin(best, recommendation)}."
    )


def emissions(recommendation: Recommendation) -> str | None:
    """Return the CO2 and the energy of the best offer, with what they rest on; None if CO2 does not matter to the job.

    It matters if it is the objective or has a limit.
    """
    best, job, unit = recommendation.best, recommendation.job, unit_of(recommendation)
    if best is None or not asks_for_co2(job):
        return None
    kwh, grids = in_unit(best.energy_kwh, unit=unit), recommendation.grids
    grid = grids.get(best.id) or grids.get(f"{best.provider}/{best.region}")
    if kwh is None or grid is None:
        return None
    what = "the job" if job.requests_per_day is None else "a month"
    if unit is not None:
        what = f"a {unit.name} {samples_noun(job.generation)}"
    year = "annual average, year not stated" if grid.year is None else f"{grid.year} average"
    where = f"{best.provider} {best.region}: local grid, {year}" if best.tier != "owned" else grid.source
    pue = f" x PUE {grid.pue:g}" if grid.pue else ""
    return (
        f"CO2 of {what}: {co2_text(best, unit=unit)}, from {units.format_kwh(kwh.mid)} x {grid.gco2_per_kwh:g} g/kWh "
        f"({where}){pue}; without embodied carbon."
    )


def certainty(recommendation: Recommendation) -> Iterator[str]:
    """Yield how sure the best offer is, what to beware of, and what the local machine does."""
    best, job = recommendation.best, recommendation.job
    if best is not None:
        if rivals := _rivals(best, recommendation):
            yield rivals
        if doubted := _listed_ahead(best, recommendation):
            yield doubted
        if not recommendation.alternatives and best.time_source == "datasheet" and best.may_lead:
            is_known = any(one.time_source != "datasheet" and one.price_is_trusted for one in recommendation.quotes)
            amount = _RANKED_BY[job.objective]
            why = (
                f"; it is recommended because even the upper end of its {amount} is below the {amount} of the best "
                "measured offer"
            )
            yield f"No measurement backs its time{why if is_known else ', nor that of any other in the ranking'}."
    if recommendation.alternatives:
        if best is not None:
            yield "No offer whose price and prediction can be trusted keeps the limits."
        if other := _other_unit(recommendation):
            yield other
        if closest := _closest(recommendation):
            yield closest
    here = _enough_at_hand(recommendation)
    if job.assumed and here is not None and here is not best:
        done = _local_job(here, job, rate=recommendation.exchange_rate)
        yield f"{done[:1].upper()}{done[1:]}."


def _is_compared(recommendation: Recommendation) -> bool:
    """Return True if the answer compares the costs of CPUs and GPUs for several sizes of the job."""
    return bool(recommendation.situations) and recommendation.job.objective == "cost"


def _closest(recommendation: Recommendation) -> str:
    """Return what the job costs without limits, and the cheapest change of one flag that makes it possible."""
    rate, job = recommendation.exchange_rate, recommendation.job

    def outcome(quote: Quote) -> str:
        time = units.format_duration(quote.time_s)
        amount = units.format_money(quote.job_usd.mid, rate=rate)
        how = f"in {time}" if job.requests_per_day is None else f"per month with a p99 of {time}"
        doubt = ", whose time no measurement backs" if quote.time_source == "datasheet" else ""
        return f"{amount} {how} on {quote.provider} {instance_label(quote)}{doubt}"

    found = {one.kind: one for one in reversed(recommendation.alternatives)}
    if "cheapest" not in found:
        return ""
    named = "the cheapest" if recommendation.best is None else "the cheapest trusted offer"
    said = f"Without limits, {named} is {outcome(found['cheapest'].quote)}"
    if "fastest" in found:
        said += f", and the fastest {outcome(found['fastest'].quote)}"
    split = found.get("split")
    by_hand = f" Split by hand over several machines: {outcome(split.quote)}." if split else ""
    whole = [one for one in recommendation.alternatives if one.kind == "flag" and one.done_ratio == 1]
    if not whole:
        return f"{said}. No change of a single flag is enough for the whole job.{by_hand}"
    change = min(whole, key=lambda one: one.quote.job_usd.mid)
    return f"{said}.{by_hand} Change one flag: {change.flag} ({outcome(change.quote)})."


def _other_unit(recommendation: Recommendation) -> str:
    """Return the unit that was probably meant if the fastest machine does not start within the deadline."""
    deadline_s = recommendation.job.limits.deadline_s
    quotes = [one.quote for one in recommendation.alternatives if one.kind in ("cheapest", "fastest")]
    fastest = min(quotes, key=lambda quote: quote.time_s, default=None)
    if deadline_s is None or fastest is None or deadline_s >= fastest.start_up_s:
        return ""
    meant = next((unit for unit in _LONGER_UNITS if deadline_s * units.SECONDS_PER[unit] >= fastest.time_s), None)
    if meant is None:
        return ""
    return (
        f"Machines take longer than the deadline of {units.format_duration(deadline_s)} to start: did you mean "
        f"--deadline {deadline_s:g}{meant}?"
    )


def _obligation(quote: Quote, *, rate: ExchangeRate | None) -> str:
    """Return what a commitment costs whether it is used or not; nothing without one."""
    if quote.commitment_usd is None:
        return ""
    years = COMMITMENT_NAMES[quote.price_kind]
    return f", with a commitment of {units.format_money(quote.commitment_usd, rate=rate)} for {years}"


def _latencies(best: Quote) -> str:
    """Return the percentiles of a service's latency and its utilization; nothing for other jobs."""
    if best.p50_s is None or best.p99_s is None:
        return ""
    p50, p99 = units.format_duration(best.p50_s), units.format_duration(best.p99_s)
    return f", p50 {p50} and p99 {p99} at {units.format_ratio(1 - best.idle_ratio)} utilization"


def short_headline(recommendation: Recommendation) -> str:
    """Return the answer in one line: the instance, its cost and its time."""
    best, job = recommendation.best, recommendation.job
    enough = None if job.assumed else _enough_at_hand(recommendation)
    advised = enough or best
    if advised is None:
        return "No instance can run this job within the limits"
    name = f"{advised.provider} {instance_label(advised)}" if enough is None else f"Do not rent, {advised.instance}"
    obligation = _obligation(advised, rate=recommendation.exchange_rate)
    return f"{name}: {_cost_text(advised, recommendation)} {_pace(advised, job)}{obligation}"


def _enough_at_hand(recommendation: Recommendation) -> Quote | None:
    """Return the quote of the local machine if it does the job before a rented one is set up."""
    at_hand = recommendation.at_hand
    return at_hand if at_hand is not None and at_hand.job_s.mid < _NOT_WORTH_RENTING_S else None


def _local_job(at_hand: Quote, job: Job, *, rate: ExchangeRate | None) -> str:
    """Return the time and electricity that the local machine needs for the job, or for a month of a service."""
    name = f"{at_hand.instance} ({device_label(at_hand)})"
    if is_rate(job):
        return f"{name} does {_throughput(at_hand, job)}"
    paid = f" for {units.format_money(at_hand.job_usd.mid, rate=rate)} of electricity" if at_hand.usd_per_hour else ""
    if job.requests_per_day is not None:
        return f"{name} {_samples_done(job)}{f'{paid} per month' if paid else ''}{_latencies(at_hand)}"
    return f"{name} {_samples_done(job)} in {interval_text(at_hand.job_s)}{paid}"


def _pace(quote: Quote, job: Job) -> str:
    """Return how long the job takes, how fast it goes if it has no size, or that a service is paid per month."""
    if job.requests_per_day is not None:
        return "per month"
    return f"at {_throughput(quote, job)}" if is_rate(job) else f"in {units.format_duration(quote.job_s.mid)}"


def _throughput(quote: Quote, job: Job) -> str:
    return f"{units.format_rate(quote.samples_per_s)} {samples_noun(job.generation)}/s"


def _samples_done(job: Job, unit: SampleUnit | None = None) -> str:
    if job.requests_per_day is not None:
        return f"serves {load_text(job)}"
    verb = "answers" if job.generation is not None else "trains on" if job.mode == "training" else "processes"
    count = (
        samples_text(job.samples, job.generation) if unit is None else f"a {unit.name} {samples_noun(job.generation)}"
    )
    if job.packed_samples is not None and unit is None:
        return f"{verb} {samples_text(job.packed_samples, None)}, packed into {job.samples:,} sequences,"
    return f"{verb} {count}"


def _margin(best: Quote, recommendation: Recommendation) -> str:
    """Return how the best of the other kind of device compares, or the best rented offer with the user's own hardware.

    There is no margin if the intervals overlap, and none where the answer begins with a comparison of the two kinds.
    """
    job, unit, other_kind = recommendation.job, unit_of(recommendation), _OTHER_KIND[best.device.kind]
    if best.tier == "owned" and (rented := recommendation.best_rented) is not None:
        cost = _cost_text(rented, recommendation)
        name = f"{rented.provider} {instance_label(rented)}"
        return f"; the best rented offer: {name}, {cost} {_pace(rented, job)}{if_price_holds(rented)}"
    if _is_compared(recommendation):
        return ""
    of_kind = [quote for quote in recommendation.quotes if quote.device.kind == other_kind]
    compared = {getattr(one.point, other_kind).id for one in recommendation.situations if one.kind == "busy"}
    leading = (quote for quote in of_kind if quote.id in compared or (quote.may_lead and not compared))
    other = next(leading, of_kind[0] if of_kind else None)
    if other is None:
        return f"; no {KIND_NAMES[other_kind]} is in the ranking"
    cost = _money(other, recommendation)
    if job.objective == "co2":
        cost = co2_text(other, unit=unit)
    elif job.objective != "cost":
        cost += f" in {units.format_duration(other.time_s)}" if unit is None else f" {_pace(other, job)}"
    rival = f"the best {KIND_NAMES[other_kind]} ({other.provider} {other.instance}, {cost}{if_price_holds(other)})"
    if other.indistinguishable:
        return f", not clearly {_BETTER[job.objective]} than {rival}: their intervals overlap"
    ratio = _amount(other, job) / _amount(best, job)
    saved = units.format_times(ratio) if ratio >= 2 else units.format_ratio(1 - 1 / ratio)
    return f": a {KIND_NAMES[best.device.kind]} is {saved} {_BETTER[job.objective]} than {rival}"


def _amount(quote: Quote, job: Job) -> float:
    """Return the amount that the ranking minimizes."""
    usd, time_s = quote.job_usd.mid, quote.time_s
    co2_kg = quote.co2_kg.mid if quote.co2_kg else 0.0
    return {"cost": usd, "time": time_s, "cost-time": usd * time_s, "co2": co2_kg}[job.objective]


def in_other_precision(recommendation: Recommendation) -> str | None:
    """Return what the script's job would cost in another precision, or None if it would cost about the same."""
    quote = recommendation.best_in_auto
    if quote is None:
        return None
    name = _AUTOCAST_NAMES.get(quote.precision, f"in {quote.precision}")
    cost = _cost_text(quote, recommendation)
    return f"{name[:1].upper()}{name[1:]} it would cost {cost} on {quote.provider} {instance_label(quote)}."


def better_if_price_holds(recommendation: Recommendation) -> str | None:
    """Return the offer that would be best if its doubtful price still held, or None if there is none."""
    quote, job = recommendation.better_if_price_holds, recommendation.job
    if quote is None:
        return None
    cost = _cost_text(quote, recommendation)
    better = _BETTER[job.objective]
    pace = f" {_pace(quote, job)}" if job.requests_per_day is None else ""
    return (
        f"{better[:1].upper()}{better[1:]} if its {price_of_date(quote)} still holds: {quote.provider} "
        f"{instance_label(quote)} ({device_label(quote)}), {cost}{pace}."
    )


def better_if_prediction_holds(recommendation: Recommendation) -> str | None:
    """Return the offer that would be best if the prediction from its datasheet held, or None if there is none."""
    quote, job = recommendation.better_if_prediction_holds, recommendation.job
    if quote is None:
        return None
    cost = money_interval(in_unit(quote.job_usd, unit=unit_of(recommendation)), rate=recommendation.exchange_rate)
    return (
        f"Perhaps {_BETTER[job.objective]}: {quote.provider} {instance_label(quote)} ({device_label(quote)}), "
        f"{cost}{per_samples(recommendation)}; no measurement backs its time: rent it for an hour and time "
        f"{'the service' if quote.tokens is not None else 'a step'} there before you rely on it."
    )


def by_tier(recommendation: Recommendation) -> tuple[str, ...]:
    """Return the best offer of each tier, without those that the sentences above name."""
    job, best = recommendation.job, recommendation.best_by_tier
    named = [recommendation.best, recommendation.better_if_price_holds, recommendation.better_if_prediction_holds]
    if recommendation.best is not None and recommendation.best.tier == "owned":
        named.append(recommendation.best_rented)
    ids = {quote.id for quote in named if quote is not None}
    lines = [(name, best.get(tier)) for tier, name in _TIER_NAMES.items()]

    def line(name: str, quote: Quote) -> str:
        cost = _cost_text(quote, recommendation)
        pace = f" {_pace(quote, job)}" if job.requests_per_day is None else ""
        offer = f"{quote.provider} {instance_label(quote)} ({device_label(quote)})"
        return f"{name}: {cost}{pace}, {offer}{if_price_holds(quote)}"

    return tuple(line(name, quote) for name, quote in lines if quote is not None and quote.id not in ids)


def _cost_text(quote: Quote, recommendation: Recommendation) -> str:
    """Return the cost, with what it is for if the job has no size: "$0.13 per million samples"."""
    return f"{_money(quote, recommendation)}{per_samples(recommendation)}"


def _money(quote: Quote, recommendation: Recommendation) -> str:
    cost = in_unit(quote.job_usd, unit=unit_of(recommendation))
    return units.format_money(cost.mid, rate=recommendation.exchange_rate)


def _rivals(best: Quote, recommendation: Recommendation) -> str:
    """Return the chance of the best and of its device, and the offers that could cost less or are as fast."""
    quotes, is_cost = recommendation.quotes, recommendation.job.objective == "cost"
    if len(quotes) < 2:
        return ""
    own_chance = percent_chance(best.chance_among_trusted)
    chance = f"{own_chance} likely to be the cheapest" if is_cost else ""
    of_device = next((one.chance for one in recommendation.chance_by_device if one.id == best.device.id), 0.0)
    device_chance = percent_chance(of_device)
    if is_cost and of_device and device_chance != own_chance:
        chance += f", its device {device_chance}"
    rivals = rivals_of(best, recommendation)
    if not rivals:
        aside = (
            " (not counting offers marked ?)" if any(one.is_candidate != best.is_candidate for one in quotes) else ""
        )
        return f"How sure: {chance or 'no other offer comes close'}{aside}."
    shown = rivals[:NAMED_RIVAL_COUNT]
    named = ", ".join(
        f"{rival.provider} {rival.instance}{f' ({percent_chance(rival.chance_among_trusted)})' if is_cost else ''}"
        for rival in shown
    )
    unnamed = f" and {len(rivals) - len(shown):,} more" if len(rivals) > len(shown) else ""
    offers = "1 other offer" if len(rivals) == 1 else f"{len(rivals):,} other offers"
    closeness = (
        "could cost less" if is_cost else "is too close to call" if len(rivals) == 1 else "are too close to call"
    )
    first = rivals[0]
    is_likelier = is_cost and first.chance_among_trusted > best.chance_among_trusted
    yields = is_likelier and best.may_lead and not first.may_lead
    why = (
        f" {best.instance} is recommended, because {first.instance} rents for more than twice as much as another offer "
        "at about the same cost."
    )
    return f"How sure: {chance}{'; ' if chance else ''}{offers} {closeness}: {named}{unnamed}.{why if yields else ''}"


def _listed_ahead(best: Quote, recommendation: Recommendation) -> str:
    """Return how many offers rank before the best with a doubtful price or an unmeasured time.

    Nothing is said without any, nor if `better_if_price_holds` and `better_if_prediction_holds` name all of them.
    """
    ahead = tuple(takewhile(lambda quote: quote.id != best.id, recommendation.quotes))
    counts = {
        "with a price in doubt": sum(not quote.price_is_trusted for quote in ahead),
        "whose time no measurement backs": sum(quote.needs_measurement for quote in ahead),
    }
    named = (recommendation.better_if_price_holds, recommendation.better_if_prediction_holds)
    if sum(counts.values()) <= sum(one is not None for one in named):
        return ""
    listed = [f"{'1 offer' if count == 1 else f'{count:,} offers'} {why}" for why, count in counts.items() if count]
    better = _BETTER[recommendation.job.objective]
    return f"{better[:1].upper()}{better[1:]}, but not recommended: {' and '.join(listed)}."


def basis(recommendation: Recommendation) -> tuple[str, ...]:
    """Return the assumptions of the headline: the job, the best offer, the traced step, and further notes."""
    job, *others = settings(recommendation)
    return (job, *best_figures(recommendation), *further_basis(recommendation), *others)


def settings(recommendation: Recommendation) -> tuple[str, ...]:
    """Return the job as understood, then the assumptions and notes that could change the decision."""
    best, job, rate = recommendation.best, recommendation.job, recommendation.exchange_rate
    terms = () if best is None else price_terms(best, job, rate=rate)
    of_best = () if best is None else (*scaling_notes(best, job), *terms, *loader_notes(best, job))
    return (
        _job(job),
        *of_best,
        *recommendation.workload.assumptions,
        *measured_notes(recommendation.measured),
        *recommendation.notes,
    )


def best_figures(recommendation: Recommendation) -> tuple[str, ...]:
    """Return the batch, the precision and the price of the best offer with their sources, and its times per token."""
    best, job, rate = recommendation.best, recommendation.job, recommendation.exchange_rate
    if best is None:
        return ()
    return (_figures(best, job, rate=rate), *islice(token_notes(best, job, rate=rate), 1))


def further_basis(recommendation: Recommendation) -> tuple[str, ...]:
    """Return what else the cost rests on: its parts, start-up, service, tokens, the traced step and the currency."""
    best, job, rate = recommendation.best, recommendation.job, recommendation.exchange_rate
    of_best: list[str] = []
    if best is not None:
        is_covered = not job.assumed and not _is_free(best)
        of_best += islice(token_notes(best, job, rate=rate), 1, None)
        of_best += [covered_cost(best, job, rate=rate)] if is_covered else []
        of_best += cost_notes(best, job)
    return (*of_best, _workload(recommendation.workload, job), *(f"{note}." for note in rate_note(rate)))


def _job(job: Job) -> str:
    size = "; no job size given: costs are for compute time on a device that is always busy" if job.assumed else ""
    if counted := steps_note(job):
        size = f"; {counted}"
    if service := service_settings(job):
        return f"{service}, {_PRICE_NAMES[job.price]}{size}."
    precision, compiled = job.precision, "torch.compile" if job.compile == "compile" else "eager"
    if precision == "auto":
        precision = "precision auto (fp32 or autocast in bf16 or fp16)"
    named = f"{job.mode}, batch {job.batch}, {precision}, {compiled}, {job.layout.upper()}, {_PRICE_NAMES[job.price]}"
    return f"{named}{size}."


def _is_free(quote: Quote) -> bool:
    """Return True for the local machine if the price of its electricity is not known."""
    return quote.provider == LOCAL and not quote.usd_per_hour


def _figures(best: Quote, job: Job, *, rate: ExchangeRate | None) -> str:
    batch = batch_text(best.batch, job.generation)
    price = (
        "it counts as free, because the price of its electricity is unknown (set `owned` in an overlay)"
        if _is_free(best)
        else f"{units.format_money(best.usd_per_hour, rate=rate, digits=3)} per hour{_place(best)} "
        f"({basis_name(best)}, {best.price_date})"
    )
    return f"{batch[:1].upper()}{batch[1:]}, {best.precision}; {price}; time {_time_name(best)}."


def _time_name(quote: Quote) -> str:
    """Return what the time is based on. In LLM serving, a measured device may run an unmeasured kernel or plan."""
    is_unlike = quote.tokens is not None and quote.time_source == "datasheet"
    return "predicted; no similar service was measured" if is_unlike else _TIME_NAMES[quote.time_source]


def _place(quote: Quote) -> str:
    """Return " in us-east-1"; nothing for a price of all regions or for own hardware."""
    return "" if quote.tier == "owned" or quote.region == ANY_REGION else f" in {quote.region}"


def _workload(workload: WorkloadSummary, job: Job) -> str:
    totals = workload.totals
    optimizer = f", {workload.optimizer}" if workload.optimizer else ""
    counted = (
        f"{workload.name}: {units.format_count(totals.parameter_count)} parameters{optimizer}, "
        f"{units.format_flops(totals.flops)} per step {at_batch_text(totals.batch, job.generation)}"
    )
    if not workload.unknown_ops:
        return f"{counted}; every operator has a formula."
    calls = ", ".join(f"{op} x{count}" for op, count in sorted(workload.unknown_ops.items()))
    return (
        f"{counted}; formulas cover {units.format_ratio(workload.coverage_ratio)} of the operator calls, "
        f"but not {calls} (--strict fails on these)."
    )


def table_notes(
    rows: Sequence[RankedQuote], *, quote_count: int, compared: frozenset[str] = frozenset()
) -> tuple[str, ...]:
    """Return notes on the table: its marks, the rows that matter most, and how many rows are not shown.

    The best of a kind is the offer in `compared`, or the first row.
    """
    ranked = [row for row in rows if row.rank is not None]
    doubted = [row.quote for row in ranked if not row.quote.is_candidate]
    yields = any(quote.price_is_trusted and quote.time_source != "datasheet" for quote in doubted)
    or_smaller = ", or a smaller machine costs less with its start-up" if yields else ""
    marks = [
        *(["~ too close to the best to call"] if any(row.is_close for row in ranked) else []),
        *([f"? its price or its prediction is in doubt{or_smaller}"] if doubted else []),
        *(["* on the Pareto front"] if any(row.has_front_mark for row in ranked) else []),
        *(["- the local machine"] if len(rows) > len(ranked) else []),
    ]
    leader = next((row for row in ranked if row.quote.may_lead), None)
    if leader is not None and leader.rank != 1:
        ahead = any(row.quote.is_candidate for row in ranked[: ranked.index(leader)])
        marks.append(f"row {leader.rank} is recommended{': it rents for less at about the same cost' if ahead else ''}")
    first = {row.quote.device.kind: row for row in reversed(ranked)}
    first |= {row.quote.device.kind: row for row in ranked if row.quote.id in compared}
    marks += [
        f"row {row.rank} is the best {KIND_NAMES[kind]}"
        for kind, row in first.items()
        if row is not leader and row.rank != ranked.index(row) + 1
    ]
    said = "; ".join(marks)
    notes = [f"{said[:1].upper()}{said[1:]}."] if marks else []
    if quote_count > len(ranked):
        notes.append(f"{quote_count - len(ranked):,} more in the ranking (--top {quote_count} shows all).")
    return tuple(notes)


def table_details(rows: Sequence[RankedQuote]) -> tuple[str, ...]:
    """Return the exact meaning of the marks in the table, and the wheels of PyTorch that its GPUs need."""
    quotes = [row.quote for row in rows if row.rank is not None]
    notes = []
    if any(row.is_close for row in rows):
        objective = rows[0].job.objective
        chance = (
            "; P(best): the probability of being the cheapest of the offers without ?" if objective == "cost" else ""
        )
        notes.append(f"~ the {_OVERLAPPING[objective]} overlap within the errors of device, host and price{chance}.")
    if not all(quote.is_candidate for quote in quotes):
        notes.append(
            "? is not recommended: its price is too old or its list too uncertain, no measurement backs its time, or "
            "a machine of fewer devices costs less with its start-up."
        )
    if any(row.has_front_mark for row in rows):
        notes.append("* on the Pareto front: no other offer is both cheaper and faster.")
    if len(rows) > len(quotes):
        notes.append("- is the local machine; the cost is that of electricity, if known.")
    return (*notes, *wheel_notes(row.quote for row in rows))


def left_out_summary(recommendation: Recommendation) -> str:
    """Return how many offers are not ranked, with the two most common reasons."""
    counts = Counter(rejection.code for rejection in recommendation.rejected)
    named = counts.most_common(_NAMED_REASON_COUNT)
    other_count = len(recommendation.rejected) - sum(count for _, count in named)
    listed = [f"{count:,} {code}" for code, count in named] + ([f"{other_count:,} other"] if other_count else [])
    return f"Left out ({len(recommendation.rejected):,}): {', '.join(listed)}"


def left_out(recommendation: Recommendation) -> tuple[str, ...]:
    """Return one sentence per reason, most common first, with its count and first offer."""
    counts = Counter(rejection.code for rejection in recommendation.rejected)
    first = {rejection.code: rejection for rejection in reversed(recommendation.rejected)}

    def line(code: RejectionCode, count: int) -> str:
        # Rejections by an amount are sorted with the closest first.
        example = ":" if count == 1 else ", the closest" if code.startswith(_AMOUNT_CODES) else ", such as"
        return f"{count:,} {code}{example} {first[code].provider} {first[code].instance}: {first[code].reason}"

    return tuple(line(code, count) for code, count in counts.most_common())
