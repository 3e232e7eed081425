"""Finds offers just outside the limits when no offer keeps all of them, and the single flags to change."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from functools import cache
from typing import Any, TypeAlias

from advisor import units
from advisor.answers.market import markets_of
from advisor.answers.predicted_steps import predict_asked
from advisor.cost.job import SIZES, job_for
from advisor.cost.leading import best_of
from advisor.cost.rank_offers import rank as rank_offers
from advisor.question.record import Question
from advisor.records.answer import Alternative, AlternativeKind, CostParts, Interval, JobLimits, Quote
from advisor.records.flag_values import flag_name
from advisor.records.options import PERCENTILES, Objective, Options, Statistic, TimeLimit
from advisor.scale.kept_steps import KeptSteps

_LIMITS = list(dict.fromkeys(one.metadata["option"] for one in fields(JobLimits)))
"""The options that are limits."""
_SELECTIONS = ("provider", "region", "tier", "device", "arch", "instance", "gpus", "max_gpus")
"""Flags that leave offers out."""
_SIZES = ("epochs", *SIZES)
"""The size that is cut to meet a limit is the first of these that is given: epochs, not the samples of an epoch."""
_MOST_MACHINES = 32
_SLACK = 1.1
"""Factor by which a value that proves too tight is relaxed: under it, another batch or plan may be chosen. Chosen, not
measured: a larger factor takes fewer tries, but may name a looser value than needed, by up to this factor."""
_AMOUNT_LIMITS = ("max_usd", "max_hourly", "max_co2")
"""Limits on amounts, which several machines use up together."""
_TRIES = 4
"""Values that are tried, each with a ranking of its own; the last is relaxed by 1.1^3 = 1.33. Chosen, not
measured; if all are too tight, the flag is not named."""

_Ask: TypeAlias = Callable[[Options], tuple[Quote, ...]]
_Change: TypeAlias = tuple[str, dict[str, Any]]
"""A change of one flag: what to type, and the options that it sets."""


def alternatives(question: Question, *, today: date | None = None) -> tuple[Alternative, ...]:
    """Return the cheapest and the fastest offer without limits, what budget and deadline buy, and flags that help.

    Every flag is changed alone, and the job is ranked again with its new value before it is named. Only offers that may
    lead count, if any may without limits. Empty if no limit is set, or if no offer can do the job at all.
    """
    ask_all, options = _asker(question, today=today), question.options
    limits = [name for name in _LIMITS if getattr(options, name) is not None]
    no_limits: dict[str, Any] = dict.fromkeys(limits)
    free = replace(options, **no_limits, objective="cost")
    everything = ask_all(free) if limits else ()
    is_trusted = any(quote.may_lead for quote in everything)

    def ask(other: Options) -> tuple[Quote, ...]:
        return tuple(quote for quote in ask_all(other) if quote.may_lead or not is_trusted)

    unlimited = ask(free) if everything else ()
    cheapest = best_of(unlimited)
    if cheapest is None or ask(options):
        return ()
    by_time = ask(replace(free, objective="time"))
    fastest, unlimited = best_of(by_time) or cheapest, (*unlimited, *by_time)
    found = [Alternative(kind="cheapest", quote=cheapest)]
    is_same = (fastest.id, fastest.plan) == (cheapest.id, cheapest.plan)
    found += [] if is_same else [Alternative(kind="fastest", quote=fastest)]
    total = job_for(question.workload, options).samples
    bought: tuple[tuple[str, AlternativeKind, Objective], ...] = (
        ("max_usd", "budget", "time"), ("deadline", "deadline", "cost")
    )  # fmt: skip
    for name, kind, objective in bought:
        if name in limits:
            alone = replace(_with(free, name, getattr(options, name)), objective=objective)
            found += _bought(ask, alone, kind=kind, unlimited=unlimited, total=total)
    found += _split(ask, options, unlimited=ask(free), total=total)
    for typed, change in _changes(question, ask, limits):
        if (quote := best_of(ask(replace(options, **change)))) is not None:
            found.append(Alternative(kind="flag", flag=typed, quote=quote))
    return (*found, *_bought(ask, options, kind="flag", unlimited=unlimited, total=total))


def _asker(question: Question, *, today: date | None) -> _Ask:
    """Return a function that ranks the offers for the question's model under other options, best first."""
    kept = KeptSteps()

    @cache
    def ask(options: Options) -> tuple[Quote, ...]:
        job = job_for(question.workload, options)
        asked = replace(question, options=options)
        market, _ = markets_of(asked, job=job, today=today)
        return rank_offers(market, predictions=predict_asked(asked, market, job=job, kept=kept), job=job).quotes

    return ask


def _with(options: Options, name: str, value: Any) -> Options:
    return replace(options, **{name: value})


def _bought(
    ask: _Ask, options: Options, *, kind: AlternativeKind, unlimited: Sequence[Quote], total: int
) -> Iterator[Alternative]:
    """Yield the job within these limits, or as much of it as they allow: a number of samples, epochs or requests."""
    if kind != "flag" and (quote := best_of(ask(options))) is not None:
        yield Alternative(kind=kind, quote=quote)
        return
    name = next((name for name in _SIZES if getattr(options, name) is not None), "samples")
    size = getattr(options, name) or total
    share = max(_share(quote, options) for quote in unlimited)
    if share <= 0:
        return
    for _ in range(_TRIES):
        _, part = _typed(name, size * min(share, 1.0), is_least=True)
        if name != "requests_per_second":
            part = math.floor(part)
        if not part:
            return
        if (quote := best_of(ask(_with(options, name, part)))) is not None:
            short = f"{part / 1e6:.10g}e6" if part >= 1e6 else f"{part:.10g}"
            yield Alternative(kind=kind, flag=f"{flag_name(name)} {short}", quote=quote, done_ratio=part / size)
            return
        share /= _SLACK


def _split(ask: _Ask, options: Options, *, unlimited: Sequence[Quote], total: int) -> Iterator[Alternative]:
    """Yield an inference job that keeps the deadline because several machines of one offer do a part of it each.

    The offer costs least, by the cost of the whole job and of all start-ups. A part of the job is ranked again, for the
    fewest machines.
    """
    is_service = options.requests_per_second is not None or options.requests_per_day is not None
    if options.mode != "inference" or is_service or options.deadline is None:
        return
    unlimited_amounts: dict[str, Any] = dict.fromkeys(_AMOUNT_LIMITS)
    alone = replace(options, **unlimited_amounts, objective="cost")
    found = []
    for quote in unlimited:
        share = _share(quote, alone)
        if share > 0:
            count = math.ceil(1 / share)
            found.append((quote.job_usd.mid + (count - 1) * quote.job_parts_usd.start_up, quote.id, count))
    if not found:
        return
    _, name, count = min(found)
    sizes: dict[str, Any] = dict.fromkeys(_SIZES)
    for more in range(_TRIES):
        part = replace(alone, **sizes | {"samples": math.ceil(total / (count + more))})
        for quote in ask(part):
            if quote.id == name:
                whole = _times(quote, count + more)
                limits = {name: most for name in _AMOUNT_LIMITS if (most := getattr(options, name)) is not None}
                if all(_AMOUNTS[limit, "mean"](whole) <= most for limit, most in limits.items()):
                    yield Alternative(kind="split", quote=whole)
                return


def _times(quote: Quote, count: int) -> Quote:
    """Return the quote for `count` machines that each do the work of `quote`."""

    def times(one: Interval) -> Interval:
        return Interval(mid=one.mid * count, low=one.low * count, high=one.high * count)

    parts = quote.job_parts_usd
    return replace(
        quote,
        instance_count=quote.instance_count * count,
        job_usd=times(quote.job_usd),
        job_parts_usd=CostParts(**{one.name: getattr(parts, one.name) * count for one in fields(parts)}),
        commitment_usd=None if quote.commitment_usd is None else quote.commitment_usd * count,
        energy_kwh=None if quote.energy_kwh is None else times(quote.energy_kwh),
        co2_kg=None if quote.co2_kg is None else times(quote.co2_kg),
    )


def _share(quote: Quote, options: Options) -> float:
    """Return the share of the job that an offer does within budget and deadline after its start-up."""
    of_budget = 1.0
    if options.max_usd is not None:
        whole_usd, parts = quote.job_usd.mid, quote.job_parts_usd
        once_usd = (parts.start_up + parts.egress) * whole_usd / max(whole_usd - parts.tax, 1e-12)
        of_budget = max(0.0, options.max_usd - once_usd) / max(whole_usd - once_usd, 1e-12)
    if options.deadline is None:
        return of_budget
    start_s = quote.start_up_s + quote.wait_s
    return min(of_budget, max(0.0, options.deadline - start_s) / max(quote.job_s.mid - start_s, 1e-12))


def _changes(question: Question, ask: _Ask, limits: Sequence[str]) -> Iterator[_Change]:
    """Yield changes of one flag that may help."""
    options = question.options
    for name in limits:
        yield from _relaxed(question, ask, name)
    if options.mode == "training" and options.batch.strip() != "auto" and question.workload.batch_is_affine:
        auto = best_of(ask(replace(options, batch="auto")))
        yield "--batch auto", {"batch": "auto"}
        smaller = (1 << power for power in range(auto.batch.bit_length() - 1)) if auto else ()
        first = next((size for size in smaller if ask(replace(options, batch=str(size)))), None)
        if first is not None:
            yield f"--batch {first}", {"batch": str(first)}
    is_served = question.workload.generation is not None
    if (options.mode == "training" or is_served) and options.max_machines == 1:
        several = ask(replace(options, max_machines=_MOST_MACHINES))
        fewest = min((quote.plan.machines for quote in several if quote.plan), default=1)
        if fewest > 1:
            yield f"--max-machines {fewest}", {"max_machines": fewest}
    if options.price == "on-demand":
        yield "--price spot", {"price": "spot"}
    for name in _SELECTIONS:
        default = getattr(_DEFAULTS, name)
        if getattr(options, name) != default:
            yield f"no {flag_name(name)}", {name: default}


def _relaxed(question: Question, ask: _Ask, name: str) -> Iterator[_Change]:
    """Yield the tightest value of this limit, rounded to two digits, with which some offer keeps all the others."""
    options = question.options
    without, given = _with(options, name, None), getattr(options, name)
    if name == "deadline":  # what costs least may take fewer machines than are allowed
        without = replace(without, objective="time")
    if name in ("max_usd", "max_hourly"):  # the fastest may take more than is needed
        without = replace(without, objective="cost")
    if name in _OF_A_STEP and not options.batch.strip() and question.workload.batch_is_affine:
        without = replace(without, batch="1")  # the batch with the shortest step
    quotes = ask(without)
    if not quotes:
        return
    is_least = name == "min_throughput"
    of = given.of if isinstance(given, TimeLimit) else "mean"
    amount = (max if is_least else min)(_AMOUNTS[name, of](quote) for quote in quotes)
    if not math.isfinite(amount):  # no quote's CO2 is known
        return
    for _ in range(_TRIES):
        text, number = _typed(name, amount, is_least=is_least)
        if name in _TIMES and number > units.LONGEST_S:  # no flag takes it
            return
        value = replace(given, seconds=number) if isinstance(given, TimeLimit) else number
        text = text if of == "mean" else f"{of}:{text}"
        if ask(_with(options, name, value)):
            yield f"{flag_name(name)} {text}", {name: value}
            return
        amount *= 1 / _SLACK if is_least else _SLACK


def _typed(name: str, amount: float, *, is_least: bool) -> tuple[str, float]:
    """Return the amount as a user types it, rounded to two digits that it keeps, and the value of this text."""
    unit, in_unit = ("", 1.0)
    if name in _TIMES:
        unit, in_unit = next((one for one in _TIME_UNITS if amount >= one[1]), _TIME_UNITS[-1])
    digit = 10.0 ** (math.floor(math.log10(amount / in_unit)) - 1)
    count = amount / in_unit / digit
    rounded = f"{(math.floor(count + 1e-9) if is_least else math.ceil(count - 1e-9)) * digit:.10g}"
    return f"{rounded}{unit}", float(rounded) * in_unit


def _of_tokens(name: str) -> Callable[[Quote], float]:
    def amount(quote: Quote) -> float:
        found = None if quote.tokens is None else getattr(quote.tokens, name)
        return math.inf if found is None else float(getattr(found, "mid", found))

    return amount


_AMOUNTS: Mapping[tuple[str, Statistic], Callable[[Quote], float]] = {
    ("deadline", "mean"): lambda quote: quote.job_s.mid,
    ("max_usd", "mean"): lambda quote: quote.job_usd.mid,
    ("max_hourly", "mean"): lambda quote: quote.usd_per_hour * quote.instance_count,
    ("max_co2", "mean"): lambda quote: math.inf if quote.co2_kg is None else quote.co2_kg.mid,
    ("max_latency", "mean"): lambda quote: quote.step_s.mid,
    ("p99", "mean"): lambda quote: quote.step_s.mid,
    ("min_throughput", "mean"): lambda quote: quote.samples_per_s,
    **{(f"max_{name}", "mean"): _of_tokens(f"{name}_s") for name in ("ttft", "tpot")},
    **{(f"max_{name}", of): _of_tokens(f"{name}_{of}_s") for name in ("ttft", "tpot") for of in PERCENTILES},
}
"""The amount of a quote that each limit bounds. For a latency it is the step alone, which no change can go below."""
_OF_A_STEP = ("max_latency", "p99", "max_ttft", "max_tpot")
_TIMES = ("deadline", *_OF_A_STEP)
_TIME_UNITS = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6))
_DEFAULTS = Options()
