"""Ranks the selected offers from best to worst, with the causes of every rejection."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from advisor import units
from advisor.cost.batch_choice import BatchChoice, choose_batches
from advisor.cost.costed_offers import CostedOffers, ranked_time_s
from advisor.cost.job_cost import cost_job
from advisor.cost.leading import trial_usd
from advisor.cost.limits import Limit, broken_limits, closest_batch, keeps_all, offer_limits
from advisor.cost.market import Market
from advisor.cost.offer_terms import OfferTerms
from advisor.cost.power import (
    WATTS_PER_KW,
    MachinePower,
    co2_kg_per_kwh,
    energy_kwh,
    machine_power,
    why_unknown,
)
from advisor.cost.quotes import quotes_of
from advisor.cost.selection import Selection
from advisor.cost.service import machines_together, server_counts
from advisor.cost.token_queue import is_queued, times_at
from advisor.records.answer import Job, JobLimits, Quote
from advisor.records.energy import EnergyData
from advisor.records.generation import Generation
from advisor.records.machine import LOCAL
from advisor.records.options import Objective
from advisor.records.prediction import Fleet, FloatArray, IndexArray, Predictions
from advisor.records.price import Offer, PricedOffer, Rejected
from advisor.records.rejection import Cause, RejectionCode

_OF_COST = ("over-max-usd", "over-max-co2")
"""The limits that the batches of least cost may keep where others do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Quotes, best first; `notes` say how much those of `Selection.apart` would save."""

    quotes: tuple[Quote, ...]
    rejected: tuple[Rejected, ...]
    notes: tuple[str, ...]


def rank(market: Market, *, predictions: Predictions, job: Job, choice: BatchChoice | None = None) -> Ranking:
    """Price the job on every offer of the market and rank the quotes by `job.objective`.

    `predictions` belong to `market.fleet.devices`. Each instance type is quoted in its cheapest region, and in the
    cheapest one whose price is trusted. `choice` is that of `choose_batches`, if it is known already.
    """
    selection, fleet, billing = market.selection, market.fleet, market.billing
    choice = choice or choose_batches(predictions, job=job, terms=market.on_devices(job))
    costed, limits = cost_within_limits(market, predictions=predictions, choice=choice, job=job)
    is_possible = np.isfinite(costed.costs.job_usd)
    has_co2 = np.ones_like(is_possible) if costed.co2_kg is None else ~np.isnan(costed.co2_kg)
    is_kept = keeps_all(limits, among=is_possible & has_co2)
    why_impossible = _causes(fleet, predictions=predictions, choice=choice, job=job)

    ranked: list[int] = []
    impossible: list[Rejected] = []
    without_co2: list[Rejected] = []
    over_limits: list[Rejected] = []
    for index, one in enumerate(selection.priced[: selection.may_win_count]):
        if is_kept[index]:
            ranked.append(index)
        elif is_possible[index] and not has_co2[index]:
            cause = Cause(code="unknown-co2", what=why_unknown(billing.energy, one.offer))
            without_co2.append(Rejected(offer=one.offer, causes=(cause,)))
        elif is_possible[index]:
            machine_count = int(costed.terms.machine_count[index])
            causes = broken_limits(limits, index, machine_count=machine_count)
            if one.offer.provider == LOCAL:
                causes = tuple(map(_of_this_machine, causes))
            over_limits.append(Rejected(offer=one.offer, causes=causes))
        else:
            impossible.append(Rejected(offer=one.offer, causes=(why_impossible(index, one.offer),)))
    ranked.sort(key=best_first(costed, objective=job.objective))
    chosen, other_regions = _one_per_type(selection.priced, ranked)
    left_out = best_measured_left_out(market, costed, ranked, predictions=predictions, job=job)
    quotes = quotes_of(costed, chosen, predictions=predictions, job=job, billing=billing, left_out=left_out)
    return Ranking(
        quotes=quotes,
        rejected=(
            *selection.rejected,
            *selection.apart,
            *_closest_first(impossible),
            *_closest_first(without_co2),
            *_closest_first(over_limits),
            *other_regions,
        ),
        notes=_savings(selection, np.where(is_kept, costed.costs.job_usd, np.inf), quotes=quotes),
    )


def _of_this_machine(cause: Cause) -> Cause:
    """Return the cause for leaving out the local machine: there is one, which is no quota of the user's."""
    return replace(cause, code="only-machine") if cause.code == "over-quota" else cause


def cost_within_limits(
    market: Market, *, predictions: Predictions, choice: BatchChoice, job: Job
) -> tuple[CostedOffers, list[Limit]]:
    """Price the job on every offer of the market like `cost_offers`, and return the limits too.

    If no offer that may be ranked keeps the limits on cost and CO2 at the batches of `choice`, those of least cost are
    taken. Offers whose price is not trusted count only if no others keep the other limits.
    """
    selection = market.selection
    costed = cost_offers(
        selection.priced,
        fleet=market.fleet,
        predictions=predictions,
        choice=choice,
        terms=market.terms(job),
        job=job,
        energy=market.billing.energy,
    )
    limits = offer_limits(job.limits, costs=costed.costs, terms=costed.terms, co2_kg=costed.co2_kg)
    is_possible = np.isfinite(costed.costs.job_usd)
    is_possible[selection.may_win_count :] = False
    is_possible = keeps_all([one for one in limits if one.code not in _OF_COST], among=is_possible)
    is_trusted = is_possible & np.array([one.is_trusted for one in selection.priced], dtype=np.bool_)
    may_lead = is_trusted if is_trusted.any() else is_possible
    if choice.least is None or keeps_all(limits, among=may_lead).any():
        return costed, limits
    choice = replace(choice, index=choice.least, least=None)
    return cost_within_limits(market, predictions=predictions, choice=choice, job=job)


def best_measured_left_out(
    market: Market, costed: CostedOffers, kept: Sequence[int], *, predictions: Predictions, job: Job
) -> tuple[float, float] | None:
    """Return the amount of the best measured offer without limits, and what a trial there costs (`trial_usd`).

    None if the offers at the indices `kept` have one, or if there are none at all. Prices have to be trusted.
    """
    selection = market.selection

    def measured(costed: CostedOffers, places: Iterable[int]) -> list[int]:
        sources = predictions.time_sources[costed.device, costed.batch_index]
        return [one for one in places if costed.priced[one].is_trusted and sources[one] != "datasheet"]

    if job.limits == JobLimits() or measured(costed, kept):
        return None
    job = replace(job, limits=JobLimits())
    costed = cost_offers(
        selection.priced,
        fleet=market.fleet,
        predictions=predictions,
        choice=choose_batches(predictions, job=job, terms=market.on_devices(job)),
        terms=market.terms(job),
        job=job,
        energy=market.billing.energy,
    )
    amount = best_first(costed, objective=job.objective)
    possible = np.flatnonzero(np.isfinite(costed.costs.job_usd[: selection.may_win_count])).tolist()
    found = [one for one in measured(costed, possible) if np.isfinite(amount(one)[0])]
    best = min(found, key=amount, default=None)
    return None if best is None else (amount(best)[0], float(trial_usd(costed.terms, job=job)[best]))


def cost_offers(
    priced: Sequence[PricedOffer],
    *,
    fleet: Fleet,
    predictions: Predictions,
    choice: BatchChoice,
    terms: OfferTerms,
    job: Job,
    energy: EnergyData,
) -> CostedOffers:
    """Price the job on every offer at the batch chosen for its device; the cost is infinite if it cannot run.

    `terms` are those of one machine; the plans of `predictions` say how many each offer needs. The price of an owned
    machine follows the power that `energy` gives for its step, and in a service for the time between requests.
    """
    devices = np.arange(len(choice.index))
    step_s = np.where(choice.is_possible, predictions.step_s[devices, choice.index], np.inf)
    # The appended entry is at index -1, which means no device.
    step_s = np.append(step_s, np.inf)[fleet.device_index]
    batch_index = np.append(choice.index, 0)[fleet.device_index]
    if predictions.scaling is not None:
        terms = replace(terms, machine_count=machines_together(predictions)[fleet.device_index, batch_index])
    if job.requests_per_day is not None:
        servers = server_counts(predictions, job=job)[fleet.device_index, batch_index]
        terms = replace(terms, server_count=servers)
    if choice.fewest is not None:
        terms = replace(terms, least_count=np.append(choice.fewest.counts, np.inf)[fleet.device_index])

    def power_of(offers: IndexArray) -> MachinePower:
        return machine_power(
            [priced[index] for index in offers.tolist()],
            device=fleet.device_index[offers],
            batch=batch_index[offers],
            predictions=predictions,
            energy=energy,
        )

    own = np.flatnonzero((terms.electricity_usd_per_kwh > 0) & (fleet.device_index >= 0))
    if len(own):
        terms = _with_electricity(terms, own, priced=priced, power=power_of(own))
    batch = predictions.batches[batch_index]
    costs = cost_job(step_s, batch=batch, terms=terms, job=job)
    time_s = ranked_time_s(costs, step_s, batch=batch, terms=terms, job=job)
    if choice.fewest is not None:
        time_s = np.append(choice.fewest.times.whole_s[-1], np.inf)[fleet.device_index]
    elif job.objective in ("time", "cost-time") and is_queued(job):
        some = np.flatnonzero(np.isfinite(costs.instance_count))
        if len(some):
            at = fleet.device_index[some], batch_index[some]
            groups = costs.instance_count[some] / terms.machine_count[some]
            queued = times_at(predictions, *at, instance_counts=groups, job=job)
            time_s[some] = queued.whole_s[-1]
    co2_kg = None
    if job.objective == "co2" or job.limits.max_co2_kg is not None:
        busy_kwh, idle_kwh = energy_kwh(costs, terms=terms, power=power_of(np.arange(len(priced))), job=job)
        co2_kg = (busy_kwh + idle_kwh) * co2_kg_per_kwh(energy, priced)
    return CostedOffers(
        priced=priced,
        device=fleet.device_index,
        batch_index=batch_index,
        terms=terms,
        costs=costs,
        time_s=time_s,
        queued=choice.fewest.times if choice.fewest else None,
        co2_kg=co2_kg,
    )


def _with_electricity(
    terms: OfferTerms, own: IndexArray, *, priced: Sequence[PricedOffer], power: MachinePower
) -> OfferTerms:
    """Return the terms with the price of the electricity that the machines at the indices `own` use at this power.

    Where the power is not known, the price stays that at full load, busy or idle.
    """
    is_known = ~np.isnan(power.load_w)
    own, known = own[is_known], np.flatnonzero(is_known)
    at_full_load = np.array([priced[index].offer.running_usd_per_hour or 0.0 for index in own.tolist()])
    running, idle = (
        watts[known] / WATTS_PER_KW * terms.electricity_usd_per_kwh[own] for watts in (power.load_w, power.idle_w)
    )
    usd_per_hour, idle_price_ratio = terms.usd_per_hour.copy(), terms.idle_price_ratio.copy()
    power_log_spread, idle_power_log_spread = terms.power_log_spread.copy(), terms.idle_power_log_spread.copy()
    usd_per_hour[own] += running - at_full_load
    idle_price_ratio[own] -= (running - idle) / usd_per_hour[own]
    # The electricity is a part of the price, beside the share of the purchase.
    power_log_spread[own] = power.log_spread[known] * running / usd_per_hour[own]
    idle_power_log_spread[own] = power.idle_log_spread[known] * idle / (usd_per_hour * idle_price_ratio)[own]
    return replace(
        terms,
        usd_per_hour=usd_per_hour,
        idle_price_ratio=idle_price_ratio,
        power_log_spread=power_log_spread,
        idle_power_log_spread=idle_power_log_spread,
    )


def best_first(costed: CostedOffers, *, objective: Objective) -> Callable[[int], tuple[float, float, float, str]]:
    """Return the sort key of offers: the objective, ties by cost, time and id, so that their order does not matter."""
    usd, time_s = costed.costs.job_usd.tolist(), costed.time_s.tolist()
    co2_kg = [0.0] * len(usd) if costed.co2_kg is None else costed.co2_kg.tolist()

    def key(index: int) -> tuple[float, float, float, str]:
        cost, time = usd[index], time_s[index]
        first = {"cost": cost, "time": time, "cost-time": cost * time, "co2": co2_kg[index]}[objective]
        return first, cost, time, costed.priced[index].offer.id

    return key


def _one_per_type(priced: Sequence[PricedOffer], ranked: Sequence[int]) -> tuple[list[int], list[Rejected]]:
    """Return the offers of each instance type to quote, best first, and the rejections of its other regions.

    These are its first offer and, where that one's price is not trusted, the first whose price is.
    """
    first: dict[tuple[str, str, str], int] = {}
    trusted: dict[tuple[str, str, str], int] = {}
    for index in ranked:
        first.setdefault(_type_of(priced[index].offer), index)
        if priced[index].is_trusted:
            trusted.setdefault(_type_of(priced[index].offer), index)
    quoted = {*first.values(), *trusted.values()}
    other_regions = []
    for index in sorted(set(ranked) - quoted):
        offer = priced[index].offer
        cause = Cause(code="pricier-region", what=priced[first[_type_of(offer)]].offer.region)
        other_regions.append(Rejected(offer=offer, causes=(cause,)))
    return [index for index in ranked if index in quoted], other_regions


def _type_of(offer: Offer) -> tuple[str, str, str]:
    return offer.provider, offer.instance, offer.tier


def _causes(fleet: Fleet, *, predictions: Predictions, choice: BatchChoice, job: Job) -> Callable[[int, Offer], Cause]:
    """Return a function that says why the job cannot run on an offer, given by index."""

    @cache  # hundreds of offers have the same device
    def why_no_batch(device: int) -> Cause:
        fits = predictions.fits[device]
        over = closest_batch(choice.limits, device, fits=fits, batches=predictions.batches) if fits.any() else None
        return over or why_too_small(device, predictions=predictions, generation=job.generation)

    def why_impossible(index: int, offer: Offer) -> Cause:
        device = int(fleet.device_index[index])
        if device < 0:
            return Cause(code="no-device-profile", what=fleet.problems[index])
        if predictions.precisions[device, 0] is None:
            lacking = predictions.devices[device]
            if lacking.stack is not None:
                return Cause(code="not-measured", what=lacking.name)
            missing = job.generation.missing_kernels(lacking) if job.generation else ()
            return Cause(code="no-native-precision", what=lacking.name, missing_kernels=missing)
        if job.loader_s_per_sample is not None and job.loader_workers is None and offer.vcpus is None:
            return Cause(code="unknown-vcpus")
        return why_no_batch(device)

    return why_impossible


def why_too_small(index: int, *, predictions: Predictions, generation: Generation | None) -> Cause:
    """Return why no batch fits the device with this index: memory, the engine's limit, or its number of GPUs."""
    needed_bytes, device = predictions.peak_memory_bytes[index], predictions.devices[index]
    engine = None if generation is None else generation.engine
    if not np.isfinite(needed_bytes).any():
        least, most = int(predictions.batches.min()), engine.batch_limits(device).max_num_seqs if engine else np.inf
        if least > most:
            return Cause(code="over-engine-limit", needed=least, available=most)
        return Cause(code="does-not-fit")  # the batch cannot be divided among its GPUs
    smallest = int(needed_bytes.argmin())
    return Cause(
        code="does-not-fit",
        needed=float(needed_bytes[smallest]),
        available=engine.usable_bytes(device) if engine else device.memory_bytes,
        batch=int(predictions.batches[smallest]),
    )


def _closest_first(rejected: Iterable[Rejected]) -> list[Rejected]:
    """Sort by how far the offers are beyond their limits, ties by id."""
    return sorted(rejected, key=lambda one: (max(cause.ratio for cause in one.causes), one.offer.id))


_APART: Mapping[RejectionCode, tuple[str, str]] = {
    "marketplace": ("marketplace offers", ", --tier marketplace"),
    "billed-separately": ("offers with parts billed separately", ""),
    "other-stack": ("accelerators that need {stack} instead of PyTorch's own kernels", ", --instance {instance}"),
}
"""The groups of offers that are priced but not ranked, with the flag that ranks one; the offer fills in the fields."""


def _savings(selection: Selection, job_usd: FloatArray, *, quotes: Sequence[Quote]) -> tuple[str, ...]:
    """Return one sentence per group of offers set apart, if its cheapest offer is cheaper than every quote."""
    least_usd = min((quote.job_usd.mid for quote in quotes), default=0.0)
    usd_apart = job_usd[selection.may_win_count :].tolist()
    notes = []
    for code, (group, flag) in _APART.items():
        apart = [(usd, one.offer) for usd, one in zip(usd_apart, selection.apart, strict=True) if one.code == code]
        usd, offer = min(apart, key=lambda entry: (entry[0], entry[1].id), default=(np.inf, None))
        if offer is not None and usd < least_usd:
            saving = units.format_ratio(1 - usd / least_usd)
            said = f"{group} are not ranked; the cheapest could save up to {saving} ({{provider}} {{instance}}{flag})"
            notes.append(said.format(stack=offer.stack, provider=offer.provider, instance=offer.instance))
    return tuple(notes)
