"""Ranks the selected offers from best to worst, and explains every rejection."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import compress
from operator import attrgetter

import numpy as np

from advisor import units
from advisor.cost.batch_choice import BatchChoice, choose_batches, why_over_limits
from advisor.cost.collector import collector_paused
from advisor.cost.job_cost import cost_job
from advisor.cost.job_limits import OfferLimits
from advisor.cost.machines import machine_counts
from advisor.cost.miss import LimitViolation
from advisor.cost.offer_terms import offer_terms
from advisor.cost.quotes import CostedOffers, quotes_of, ranked_time_s
from advisor.cost.selection import Selection, reject_all, rejection
from advisor.records.answer import Job, Quote
from advisor.records.billing import Billing
from advisor.records.options import Objective
from advisor.records.prediction import BoolArray, Fleet, FloatArray, IndexArray, Predictions
from advisor.records.price import Offer, PricedOffer, Rejection, RejectionCode
from advisor.records.sample_words import at_batch_text

_TYPE_OF = attrgetter("provider", "instance", "tier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Quotes, best first, one per instance type; `notes` say what the offers that were set apart would save."""

    quotes: tuple[Quote, ...]
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...]


@collector_paused()
def rank(
    selection: Selection, *, fleet: Fleet, predictions: Predictions, job: Job, billing: Billing | None = None
) -> Ranking:
    """Price the job on every selected offer and rank the quotes by `job.objective`.

    `fleet` belongs to `selection.offers`, and `predictions` to `fleet.devices`. Without `billing`, only the hours of
    computing are priced. Each instance type is quoted once, in its cheapest region.
    """
    billing = billing or Billing()
    choice = choose_batches(predictions, job=job)
    costed = cost_offers(
        selection.priced, fleet=fleet, predictions=predictions, choice=choice, billing=billing, job=job
    )
    limits = OfferLimits(job.limits, costs=costed.costs, terms=costed.terms)

    may_win = np.arange(len(selection.priced)) < selection.may_win_count
    is_possible = np.isfinite(costed.costs.job_usd)
    ranked = np.flatnonzero(may_win & is_possible & limits.kept)
    order = best_first(costed, ranked, objective=job.objective)
    chosen, other_regions = _one_per_type(selection.priced, order)
    quotes = quotes_of(costed, chosen, predictions=predictions, job=job, billing=billing)
    impossible = np.flatnonzero(may_win & ~is_possible).tolist()
    return Ranking(
        quotes=quotes,
        rejected=(
            *selection.rejected,
            *selection.apart,
            *_reject_impossible(selection.priced, impossible, fleet=fleet, predictions=predictions, job=job),
            *_reject_over_limits(selection.priced, np.flatnonzero(may_win & is_possible & ~limits.kept), limits=limits),
            *other_regions,
        ),
        notes=_savings(selection, np.where(limits.kept, costed.costs.job_usd, np.inf), quotes=quotes),
    )


def cost_offers(
    priced: Sequence[PricedOffer],
    *,
    fleet: Fleet,
    predictions: Predictions,
    choice: BatchChoice,
    billing: Billing,
    job: Job,
) -> CostedOffers:
    """Price the job on every offer at the batch chosen for its device; the cost is infinite if it cannot run."""
    terms = offer_terms(priced, billing=billing, job=job)
    devices = np.arange(len(choice.index))
    step_s = np.where(choice.is_possible, predictions.step_s[devices, choice.index], np.inf)
    # The appended entry is at index -1, which means no device.
    step_s = np.append(step_s, np.inf)[fleet.device_index]
    batch_index = np.append(choice.index, 0)[fleet.device_index]
    terms = replace(terms, machine_count=machine_counts(predictions, fleet.device_index, batch_index))
    costs = cost_job(step_s, batch=predictions.batches[batch_index], terms=terms, job=job)
    return CostedOffers(
        priced=priced,
        device=fleet.device_index,
        batch_index=batch_index,
        terms=terms,
        costs=costs,
        time_s=ranked_time_s(costs, step_s, job=job),
    )


def best_first(costed: CostedOffers, ranked: IndexArray, *, objective: Objective) -> IndexArray:
    """Sort the offers by the objective, ties by cost, time and id, so the order of the offers does not matter."""
    usd, time_s = costed.costs.job_usd[ranked], costed.time_s[ranked]
    keys = {"cost": (time_s, usd), "time": (usd, time_s), "cost-time": (time_s, usd, usd * time_s)}[objective]
    order = np.lexsort(keys)
    is_tie = np.ones(max(0, len(order) - 1), dtype=np.bool_)
    for key in keys:
        is_tie &= key[order][1:] == key[order][:-1]
    indices: list[int] = ranked[order].tolist()
    for start, end in _runs(is_tie):
        indices[start:end] = sorted(indices[start:end], key=lambda index: costed.priced[index].offer.id)
    return np.array(indices, dtype=np.intp)


def _runs(is_tie: BoolArray) -> list[tuple[int, int]]:
    """Return start and end (exclusive) of each run of ties; `is_tie[i]` says that i and i + 1 are equal."""
    edges = np.diff(np.concatenate(([0], is_tie.astype(np.int8), [0])))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _one_per_type(priced: Sequence[PricedOffer], ordered: IndexArray) -> tuple[IndexArray, list[Rejection]]:
    """Return the first offer of each instance type, and the rejections of its other regions."""
    # Sorted by offer, not by rank: walking through memory in order takes a third of the time.
    indices = np.sort(ordered)
    offers = [priced[index].offer for index in indices.tolist()]
    numbers: dict[tuple[str, str, str], int] = {}
    types = [numbers.setdefault(key, len(numbers)) for key in map(_TYPE_OF, offers)]
    type_of = np.empty(len(priced), dtype=np.intp)
    type_of[indices] = types
    _, first = np.unique(type_of[ordered], return_index=True)
    chosen = ordered[np.sort(first)]
    reasons = [f"costs the same or less in {priced[index].offer.region}" for index in ordered[first].tolist()]
    is_other_region = np.ones(len(priced), dtype=np.bool_)
    is_other_region[chosen] = False
    is_other = is_other_region[indices].tolist()
    others, numbers_of_others = list(compress(offers, is_other)), compress(types, is_other)
    other_regions = reject_all(others, code="dearer-region", reasons=map(reasons.__getitem__, numbers_of_others))
    return chosen, other_regions


def _reject_impossible(
    priced: Sequence[PricedOffer], impossible: Sequence[int], *, fleet: Fleet, predictions: Predictions, job: Job
) -> list[Rejection]:
    violations = []

    @cache  # hundreds of offers have the same device
    def why_impossible(device_index: int) -> LimitViolation:
        return why_over_limits(predictions, device_index, job=job) or _why_too_small(
            device_index, predictions=predictions, job=job
        )

    for index in impossible:
        offer, device_index = priced[index].offer, int(fleet.device_index[index])
        if device_index < 0:
            violation = LimitViolation(code="no-device-profile", reason=fleet.problems[index])
        elif predictions.precisions[device_index] is None:
            name = predictions.devices[device_index].name
            reason = f"{name} has no unit for this precision, or no kernels for quantized operators"
            violation = LimitViolation(code="no-native-precision", reason=reason)
        elif job.loader_s_per_sample is not None and offer.vcpus is None:
            reason = "its number of vCPUs is not known, so the time to load data cannot be predicted"
            violation = LimitViolation(code="unknown-vcpus", reason=reason)
        else:
            violation = why_impossible(device_index)
        violations.append((offer, violation))
    return _nearest_first(violations)


def _reject_over_limits(priced: Sequence[PricedOffer], over: IndexArray, *, limits: OfferLimits) -> list[Rejection]:
    return _nearest_first([(priced[index].offer, limits.why_broken(index)) for index in over.tolist()])


def _nearest_first(violations: Iterable[tuple[Offer, LimitViolation]]) -> list[Rejection]:
    """Return the rejections, the nearest misses first, ties by id."""
    in_order = sorted(violations, key=lambda one: (one[1].ratio, one[0].id))
    return [rejection(offer, code=violation.code, reason=violation.reason) for offer, violation in in_order]


def _why_too_small(device_index: int, *, predictions: Predictions, job: Job) -> LimitViolation:
    code: RejectionCode = "does-not-fit"
    needed_bytes = predictions.peak_memory_bytes[device_index]
    if not np.isfinite(needed_bytes).any():
        return LimitViolation(code=code, reason="the batch cannot be divided among its GPUs as requested")
    least_bytes, has_bytes = float(needed_bytes.min()), predictions.devices[device_index].memory_bytes
    needed, has = map(units.format_bytes, (least_bytes, has_bytes))
    at = at_batch_text(int(predictions.batches[needed_bytes.argmin()]), job.generation)
    return LimitViolation(code=code, reason=f"needs {needed} {at}, has {has}", ratio=least_bytes / has_bytes)


def _savings(selection: Selection, job_usd: FloatArray, *, quotes: Sequence[Quote]) -> tuple[str, ...]:
    """Return one sentence per group of offers set apart, if its cheapest offer is cheaper than every quote."""
    least_usd = min((quote.job_usd.mid for quote in quotes), default=0.0)
    notes = []
    for code, title in (("marketplace", "marketplaces"), ("billed-separately", "offers with parts billed separately")):
        members = [
            selection.may_win_count + index for index, reason in enumerate(selection.apart) if reason.code == code
        ]
        members = [index for index in members if np.isfinite(job_usd[index])]
        if not members or not least_usd:
            continue
        cheapest = min(members, key=lambda index: (job_usd[index], selection.priced[index].offer.id))
        saving = 1 - job_usd[cheapest] / least_usd
        if saving > 0:
            offer = selection.priced[cheapest].offer
            notes.append(
                f"{title} are left out; they could save up to {saving:.0%} ({offer.provider} {offer.instance})"
            )
    return tuple(notes)
