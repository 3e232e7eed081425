"""Selected offers and the predictions of their devices in, quotes from the best to the worst out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import compress
from operator import attrgetter

import numpy as np

from advisor.cost.batch_choice import BatchChoice, choose_batches, why_over_limits
from advisor.cost.cheapest import compare_costs
from advisor.cost.coverage import commitment_usd, coverage
from advisor.cost.job_cost import JobCosts, cost_job
from advisor.cost.job_limits import OfferLimits
from advisor.cost.offer_terms import OfferTerms, offer_terms
from advisor.cost.pareto import pareto_front
from advisor.cost.selection import Selection, rejection
from advisor.records.answer import BOUNDS, CostParts, Interval, Job, Quote, QuotedDevice
from advisor.records.billing import Billing, Extras
from advisor.records.options import Objective
from advisor.records.prediction import BoolArray, Fleet, FloatArray, IndexArray, Predictions
from advisor.records.price import Offer, PricedOffer, Rejection

_SECONDS_PER_HOUR = 3600
_TYPE_OF = attrgetter("provider", "instance", "tier")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """Quotes, the best first, one per instance type; `notes` say what the offers set apart would save."""

    quotes: tuple[Quote, ...]
    rejected: tuple[Rejection, ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Field:
    """The offers, and everything about them that is a number; arrays are (offers,). Device -1 is none.

    `time_s` is what the ranking by time is by: that of the job, of a service that of a step.
    """

    priced: Sequence[PricedOffer]
    device: IndexArray
    batch_index: IndexArray
    terms: OfferTerms
    costs: JobCosts
    time_s: FloatArray
    extras: Extras


def rank(
    selection: Selection, *, fleet: Fleet, predictions: Predictions, job: Job, billing: Billing | None = None
) -> Ranking:
    """Price the job on every selected offer; `fleet` is of `selection.offers` and `predictions` of `fleet.devices`.

    Without `billing` nothing but the hours of computing is known. Quotes are in the order of `job.objective`.
    Rejection codes beside those of the selection: "no-device-profile", "no-native-precision", "does-not-fit",
    "over-latency", "under-throughput", "over-deadline", "over-max-usd", "over-max-hourly" and "dearer-region" (every
    type is quoted once, in its cheapest region).
    """
    billing = billing or Billing()
    choice = choose_batches(predictions, job=job)
    field = _field(selection.priced, fleet=fleet, predictions=predictions, choice=choice, billing=billing, job=job)
    limits = OfferLimits(job.limits, costs=field.costs, usd_per_hour=field.terms.usd_per_hour)

    may_win = np.arange(len(selection.priced)) < selection.may_win_count
    is_possible = np.isfinite(field.costs.job_usd)
    ranked = np.flatnonzero(may_win & is_possible & limits.kept)
    order = _best_first(field, ranked, objective=job.objective)
    chosen, dearer = _one_per_type(selection.priced, order)
    quotes = _quotes(field, chosen, predictions=predictions, job=job, billing=billing)
    impossible = np.flatnonzero(may_win & ~is_possible).tolist()
    return Ranking(
        quotes=quotes,
        rejected=(
            *selection.rejected,
            *selection.apart,
            *_reject_impossible(selection.priced, impossible, fleet=fleet, predictions=predictions, job=job),
            *_reject_over_limits(selection.priced, np.flatnonzero(may_win & is_possible & ~limits.kept), limits=limits),
            *dearer,
        ),
        notes=_savings(selection, np.where(limits.kept, field.costs.job_usd, np.inf), quotes=quotes),
    )


def _field(
    priced: Sequence[PricedOffer],
    *,
    fleet: Fleet,
    predictions: Predictions,
    choice: BatchChoice,
    billing: Billing,
    job: Job,
) -> _Field:
    terms = offer_terms(priced, billing=billing, job=job)
    extras = Extras() if job.assumed else billing.extras
    devices = np.arange(len(choice.index))
    step_s = np.where(choice.is_possible, predictions.step_s[devices, choice.index], np.inf)
    # Index -1, no device, is what is appended.
    step_s = np.append(step_s, np.inf)[fleet.device_index]
    batch_index = np.append(choice.index, 0)[fleet.device_index]
    costs = cost_job(step_s, batch=predictions.batches[batch_index], terms=terms, extras=extras, job=job)
    return _Field(
        priced=priced,
        device=fleet.device_index,
        batch_index=batch_index,
        terms=terms,
        costs=costs,
        time_s=_time_s(costs, step_s, job=job),
        extras=extras,
    )


def _time_s(costs: JobCosts, step_s: FloatArray, *, job: Job) -> FloatArray:
    return costs.job_s if job.requests_per_day is None else step_s


def _best_first(field: _Field, ranked: IndexArray, *, objective: Objective) -> IndexArray:
    """The ranked ones by the objective, equals by cost, time and id: the order of the offers does not matter."""
    usd, time_s = field.costs.job_usd[ranked], field.time_s[ranked]
    keys = {"cost": (time_s, usd), "time": (usd, time_s), "cost-time": (time_s, usd, usd * time_s)}[objective]
    order = np.lexsort(keys)
    is_tie = np.ones(max(0, len(order) - 1), dtype=np.bool_)
    for key in keys:
        is_tie &= key[order][1:] == key[order][:-1]
    indices: list[int] = ranked[order].tolist()
    for start, end in _runs(is_tie):
        indices[start:end] = sorted(indices[start:end], key=lambda index: field.priced[index].offer.id)
    return np.array(indices, dtype=np.intp)


def _runs(is_tie: BoolArray) -> list[tuple[int, int]]:
    """The first and the last, exclusive, of each run of equals; `is_tie[i]` says that i and i + 1 are."""
    edges = np.diff(np.concatenate(([0], is_tie.astype(np.int8), [0])))
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1) + 1
    return list(zip(starts.tolist(), ends.tolist(), strict=True))


def _one_per_type(priced: Sequence[PricedOffer], ordered: IndexArray) -> tuple[IndexArray, list[Rejection]]:
    """The first of each instance type, and the rejections of its other regions."""
    # In the order of the offers, not of the ranking: a walk through memory in order takes a third of the time.
    indices = np.sort(ordered)
    offers = [priced[index].offer for index in indices.tolist()]
    numbers: dict[tuple[str, str, str], int] = {}
    types = [numbers.setdefault(key, len(numbers)) for key in map(_TYPE_OF, offers)]
    type_of = np.empty(len(priced), dtype=np.intp)
    type_of[indices] = types
    _, first = np.unique(type_of[ordered], return_index=True)
    chosen = ordered[np.sort(first)]
    reasons = [f"costs the same or less in {priced[index].offer.region}" for index in ordered[first].tolist()]
    is_dearer = np.ones(len(priced), dtype=np.bool_)
    is_dearer[chosen] = False
    dearer = [
        rejection(offer, code="dearer-region", reason=reasons[number])
        for offer, number in compress(zip(offers, types, strict=True), is_dearer[indices].tolist())
    ]
    return chosen, dearer


def _quotes(
    field: _Field, chosen: IndexArray, *, predictions: Predictions, job: Job, billing: Billing
) -> tuple[Quote, ...]:
    if not len(chosen):
        return ()
    devices, batches = field.device[chosen], field.batch_index[chosen]
    step_s = np.stack(
        [times[devices, batches] for times in (predictions.step_s, predictions.step_low_s, predictions.step_high_s)]
    )
    terms, batch_sizes = field.terms.of(chosen), predictions.batches[batches]
    mid, low, high = (cost_job(times, batch=batch_sizes, terms=terms, extras=field.extras, job=job) for times in step_s)
    job_s, job_usd = (np.stack([getattr(one, name) for one in (mid, low, high)]) for name in ("job_s", "job_usd"))
    step = _same_steps(predictions, devices, batch_sizes=batch_sizes, step_s=step_s[0])
    time_s = np.stack([_time_s(one, times, job=job) for one, times in zip((mid, low, high), step_s, strict=True)])
    chances, indistinguishable = _compare(
        job_usd,
        time_s,
        step_s=step_s,
        own_log_spread=predictions.own_log_spread[devices, batches],
        step=step,
        objective=job.objective,
    )
    on_front = pareto_front(job_usd[0], time_s[0])
    samples_per_s = batch_sizes / step_s[0]
    usd_per_million = terms.usd_per_hour / _SECONDS_PER_HOUR / samples_per_s * 1e6
    bounds = predictions.bound[devices, batches]
    peak_bytes = predictions.peak_memory_bytes[devices, batches]
    parts = _all_parts(mid)
    quotes = []
    for position, index in enumerate(chosen.tolist()):
        offer, price = field.priced[index].offer, field.priced[index].price
        device = predictions.devices[devices[position]]
        precision = predictions.precisions[devices[position]]
        if precision is None:
            raise ValueError(f"{device.id} was ranked without a precision")
        covers, not_covered = coverage(
            job,
            extras=field.extras,
            is_owned=offer.tier == "owned",
            start_up_known=bool(billing.start_ups),
            increments_known=offer.provider in billing.rules,
            interruptions_known=offer.interruption is not None,
        )
        instance_count = int(mid.instance_count[position])
        quotes.append(
            Quote(
                id=offer.id,
                provider=offer.provider,
                tier=offer.tier,
                region=offer.region,
                instance=offer.instance,
                vcpus=offer.vcpus,
                device=QuotedDevice(id=device.id, name=device.name, kind=device.kind, count=max(1, offer.gpu_count)),
                gpus_used=1 if device.kind == "gpu" else 0,
                price_kind=price.kind,
                price_basis=price.basis,
                usd_per_hour=price.usd_per_hour,
                price_date=price.date,
                price_marks=field.priced[index].marks,
                precision=precision,
                compile=predictions.compile,
                batch=int(batch_sizes[position]),
                step_s=_interval(step_s, position),
                samples_per_s=float(samples_per_s[position]),
                usd_per_million_samples=float(usd_per_million[position]),
                job_usd=_interval(job_usd, position),
                job_s=_interval(job_s, position),
                peak_memory_bytes=float(peak_bytes[position]),
                device_memory_bytes=device.memory_bytes,
                fits=True,
                bound=BOUNDS[bounds[position]],
                time_source=predictions.time_sources[devices[position]],
                chance_cheapest=float(chances[position]),
                indistinguishable=bool(indistinguishable[position]),
                on_pareto_front=bool(on_front[position]),
                instance_count=instance_count,
                idle_ratio=float(mid.idle_ratio[position]),
                start_up_s=float(terms.start_up_s[position]),
                start_up_measured=bool(terms.start_up_measured[position]),
                lost_s=float(mid.lost_s[position]),
                interruption=offer.interruption if price.kind == "spot" else None,
                commitment_usd=commitment_usd(
                    price.kind, usd_per_hour=price.usd_per_hour, instance_count=instance_count
                ),
                job_parts_usd=parts[position],
                covers=covers,
                not_covered=not_covered,
            )
        )
    return tuple(quotes)


def _all_parts(costs: JobCosts) -> list[CostParts]:
    columns = {field.name: getattr(costs, f"{field.name}_usd").tolist() for field in fields(CostParts)}
    return [CostParts(**dict(zip(columns, values, strict=True))) for values in zip(*columns.values(), strict=True)]


def _compare(
    job_usd: FloatArray,
    time_s: FloatArray,
    *,
    step_s: FloatArray,
    own_log_spread: FloatArray,
    step: IndexArray,
    objective: Objective,
) -> tuple[FloatArray, BoolArray]:
    """The chance that each is the cheapest, and which cannot be told from the first by the objective.

    Amounts are (3, offers): the middle and the ends of the interval. `compare_costs` wants the cheapest first.
    """
    usd_log_spread, time_log_spread = (own_log_spread * _elasticity(amounts, step_s) for amounts in (job_usd, time_s))
    by_cost = np.argsort(job_usd[0], kind="stable")
    cheapest = compare_costs(
        job_usd[0][by_cost], own_log_spread=usd_log_spread[by_cost], step=_renumbered(step[by_cost])
    )
    chances: FloatArray = np.empty_like(job_usd[0])
    chances[by_cost] = cheapest.chance_cheapest
    if objective == "cost":
        return chances, cheapest.indistinguishable
    amounts, log_spread = {
        "time": (time_s[0], time_log_spread),
        "cost-time": (job_usd[0] * time_s[0], usd_log_spread + time_log_spread),
    }[objective]
    return chances, compare_costs(amounts, own_log_spread=log_spread, step=step).indistinguishable


def _elasticity(amounts: FloatArray, step_s: FloatArray) -> FloatArray:
    """How much of an error of the step's time reaches an amount: the widths of their intervals' logarithms as a ratio.

    1 of computing alone; less where start-up, a minimum or whole instances weigh in; more where work is lost. An
    interval that is empty, or of nothing, has no error to pass on.
    """
    has_width = (step_s[2] > step_s[1]) & (amounts[1] > 0)
    safe_step_s, safe_amounts = (np.where(has_width, values, [[1.0], [1.0], [2.0]]) for values in (step_s, amounts))
    elasticity: FloatArray = np.log(safe_amounts[2] / safe_amounts[1]) / np.log(safe_step_s[2] / safe_step_s[1])
    return elasticity


def _renumbered(step: IndexArray) -> IndexArray:
    """The same groups, numbered from 0 in the order in which they come."""
    _, first, group = np.unique(step, return_index=True, return_inverse=True)
    place: IndexArray = np.argsort(np.argsort(first))
    return place[group]


def _interval(mid_low_high: FloatArray, position: int) -> Interval:
    mid, low, high = mid_low_high[:, position].tolist()
    return Interval(mid=mid, low=low, high=high)


def _same_steps(
    predictions: Predictions, devices: IndexArray, *, batch_sizes: IndexArray, step_s: FloatArray
) -> IndexArray:
    """Numbers the distinct steps, from 0 in the order of the quotes.

    A device is one whatever the cloud: where only the rate of copies to it differs, the step is the same unless they
    bound it.
    """
    ids = [predictions.devices[index].id for index in devices]
    numbers: dict[tuple[str, int, float], int] = {}
    keys = zip(ids, batch_sizes.tolist(), step_s.tolist(), strict=True)
    return np.array([numbers.setdefault(key, len(numbers)) for key in keys], dtype=np.intp)


def _reject_impossible(
    priced: Sequence[PricedOffer], impossible: Sequence[int], *, fleet: Fleet, predictions: Predictions, job: Job
) -> list[Rejection]:
    rejected = []
    for index in impossible:
        offer, device_index = priced[index].offer, int(fleet.device_index[index])
        if device_index < 0:
            rejected.append(rejection(offer, code="no-device-profile", reason=fleet.problems[index]))
        elif predictions.precisions[device_index] is None:
            name = predictions.devices[device_index].name
            reason = f"{name} has no unit for the precision asked for, or no kernels for quantized operators"
            rejected.append(rejection(offer, code="no-native-precision", reason=reason))
        elif over := why_over_limits(predictions, device_index, job=job):
            rejected.append(rejection(offer, code=over[0], reason=over[1]))
        else:
            rejected.append(_too_small(offer, device_index, predictions=predictions))
    return rejected


def _reject_over_limits(priced: Sequence[PricedOffer], over: IndexArray, *, limits: OfferLimits) -> Iterator[Rejection]:
    for index in over.tolist():
        code, reason = limits.why_broken(index)
        yield rejection(priced[index].offer, code=code, reason=reason)


def _too_small(offer: Offer, device_index: int, *, predictions: Predictions) -> Rejection:
    needed_gb = predictions.peak_memory_bytes[device_index].min() / 1e9
    batch = predictions.batches[predictions.peak_memory_bytes[device_index].argmin()]
    has_gb = predictions.devices[device_index].memory_bytes / 1e9
    reason = f"needs {needed_gb:.1f} GB at batch {batch}, has {has_gb:.1f} GB"
    return rejection(offer, code="does-not-fit", reason=reason)


def _savings(selection: Selection, job_usd: FloatArray, *, quotes: Sequence[Quote]) -> tuple[str, ...]:
    """One sentence for each reason to set offers apart: the cheapest of them, if it is cheaper than the best quote."""
    notes = []
    for code, title in (("marketplace", "marketplaces"), ("billed-separately", "offers that bill parts separately")):
        members = [
            selection.may_win_count + index for index, reason in enumerate(selection.apart) if reason.code == code
        ]
        members = [index for index in members if np.isfinite(job_usd[index])]
        if not members or not quotes or quotes[0].job_usd.mid == 0:
            continue
        cheapest = min(members, key=lambda index: (job_usd[index], selection.priced[index].offer.id))
        saving = 1 - job_usd[cheapest] / quotes[0].job_usd.mid
        if saving > 0:
            offer = selection.priced[cheapest].offer
            notes.append(
                f"{title} are left out; they would save up to {saving:.0%} ({offer.provider} {offer.instance})"
            )
    return tuple(notes)
