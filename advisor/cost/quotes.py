"""Builds quotes, with intervals and chances, from the costs of the job on each offer."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from advisor.cost.costed_offers import ChosenOffers, CostedOffers, chosen_offers
from advisor.cost.coverage import commitment_usd, coverage
from advisor.cost.interruptions import interruption_of
from advisor.cost.service import SECONDS_PER_HOUR
from advisor.cost.standing import Standing, standing_of
from advisor.cost.token_quotes import token_quote
from advisor.records.answer import BOUNDS, CostParts, Interval, Job, Quote, QuotedDevice
from advisor.records.billing import Billing
from advisor.records.energy import Watts
from advisor.records.prediction import FloatArray, Predictions
from advisor.records.scale import Plan


def quotes_of(
    costed: CostedOffers,
    chosen: Sequence[int],
    *,
    predictions: Predictions,
    job: Job,
    billing: Billing,
    left_out: tuple[float, float] | None = None,
) -> tuple[Quote, ...]:
    """Return the quotes of the offers at the indices `chosen`, in that order; `left_out` as in `candidates_of`."""
    if not chosen:
        return ()
    offers = chosen_offers(costed, chosen, predictions=predictions, job=job, energy=billing.energy)
    standing = standing_of(offers, predictions=predictions, job=job, billing=billing, left_out=left_out)
    return tuple(
        _quote(place, offers, standing, power=power, predictions=predictions, job=job, billing=billing)
        for place, power in enumerate(offers.power.parts())
    )


def _quote(
    place: int,
    offers: ChosenOffers,
    standing: Standing,
    *,
    power: Watts | None,
    predictions: Predictions,
    job: Job,
    billing: Billing,
) -> Quote:
    """Return the quote of the offer at this place among `offers`."""
    priced, terms, costs = offers.priced[place], offers.terms, offers.costs
    offer, price = priced.offer, priced.price
    at = int(offers.device[place]), int(offers.batch_index[place])
    device, precision = predictions.devices[at[0]], predictions.precisions[at]
    if precision is None:
        raise ValueError(f"{device.id} was ranked without a precision")
    plan = plan_at(predictions, at)
    is_measured = predictions.measured is not None and predictions.measured[at]
    instance_count, usd_per_hour = int(costs.instance_count[place]), float(terms.usd_per_hour[place])
    idle_ratio, idle_price_ratio = float(costs.idle_ratio[place]), float(terms.idle_price_ratio[place])
    samples_per_s = float(offers.batch[place] / offers.step_s[0, place])
    covers, not_covered = coverage(job, priced, billing=billing)
    return Quote(
        id=offer.id,
        provider=offer.provider,
        tier=offer.tier,
        region=offer.region,
        instance=offer.instance,
        vcpus=offer.vcpus,
        device=QuotedDevice(id=device.id, name=device.name, kind=device.kind, count=max(1, offer.gpu_count)),
        gpus_used=(plan or Plan()).gpu_count if device.kind == "gpu" else 0,
        price_kind=price.kind,
        price_basis=price.basis,
        price_adjustment=price.adjustment,
        usd_per_hour=usd_per_hour * (1 - idle_ratio * (1 - idle_price_ratio)),
        price_date=price.date,
        price_marks=priced.marks,
        precision=precision,
        compile=predictions.compile,
        batch=int(offers.batch[place]),
        step_s=_interval(offers.step_s[:, place]),
        samples_per_s=samples_per_s,
        usd_per_million_samples=float(
            usd_per_hour * terms.machine_count[place] / SECONDS_PER_HOUR / samples_per_s * 1e6
        ),
        job_usd=_interval(offers.job_usd[:, place]),
        job_s=_interval(offers.job_s[:, place]),
        peak_memory_bytes=float(predictions.peak_memory_bytes[at]),
        device_memory_bytes=device.memory_bytes,
        fits=True,
        bound=BOUNDS[predictions.bound[at]],
        time_source="measured" if is_measured else predictions.time_sources[at],
        chance_cheapest=float(standing.chance_cheapest[place]),
        chance_among_trusted=float(standing.chance_among_candidates[place]),
        indistinguishable=bool(standing.is_too_close[place]),
        price_is_trusted=priced.is_trusted,
        is_candidate=bool(standing.is_candidate[place]),
        may_lead=bool(standing.may_lead[place]),
        on_pareto_front=standing.on_pareto_front[place],
        architecture=offer.architecture,
        wheel=offer.wheel,
        instance_count=instance_count,
        idle_ratio=idle_ratio,
        p50_s=None if offers.p50_s is None else float(offers.p50_s[place]),
        p99_s=None if offers.p99_s is None else float(offers.p99_s[place]),
        server_count=int(terms.server_count[place]),
        wait_s=float(terms.wait_s[place]),
        start_up_s=float(terms.start_up_s[place]),
        software_s=float(terms.software_s[place]),
        weights_s=float(terms.weights_s[place]),
        start_up_measured=bool(terms.start_up_measured[place]),
        lost_s=float(costs.lost_s[place]),
        interruption=interruption_of(priced, billing=billing),
        interruption_is_assumed=price.kind == "spot" and offer.interruption is None,
        commitment_usd=commitment_usd(price.kind, usd_per_hour=price.usd_per_hour, instance_count=instance_count),
        loader_vcpus=None if predictions.loader_vcpus is None else float(predictions.loader_vcpus[at]),
        is_tight=predictions.is_tight is not None and bool(predictions.is_tight[at]),
        host_cpu=device.host_cpu,
        plan=plan,
        scaling_efficiency_ratio=None
        if plan is None or predictions.scaling is None
        else float(predictions.scaling.efficiency_ratio[at]),
        tokens=token_quote(
            predictions,
            *at,
            step_s=offers.step_s[:, place],
            job_usd=float(offers.job_usd[0, place]),
            job=job,
            queued=offers.queued.at(place) if offers.queued else {},
        ),
        power=power,
        energy_kwh=_known_interval(offers.kwh[:, place]),
        co2_kg=_known_interval(offers.co2_kg[:, place]),
        on_co2_front=standing.on_co2_front[place],
        job_parts_usd=CostParts(**{name: float(usd[place]) for name, usd in costs.parts_usd.items()}),
        covers=covers,
        not_covered=not_covered,
    )


def busy_usd_per_hour(quote: Quote) -> float:
    """Return the price of an hour of work on one machine, without the idle hours that `Quote.usd_per_hour` averages."""
    usd_per_s = quote.usd_per_million_samples / 1e6 * quote.samples_per_s
    return usd_per_s * SECONDS_PER_HOUR / (quote.plan or Plan()).machines


def quoted_fields(quote: Quote, record: type[Any]) -> dict[str, Any]:
    """Return the values of the fields that `record` has in common with a quote."""
    common = {field.name for field in fields(Quote)} & {field.name for field in fields(record)}
    return {name: getattr(quote, name) for name in common}


def _interval(mid_low_high: FloatArray) -> Interval:
    mid, low, high = mid_low_high.tolist()
    return Interval(mid=mid, low=low, high=high)


def _known_interval(mid_low_high: FloatArray) -> Interval | None:
    return None if np.isnan(mid_low_high[0]) else _interval(mid_low_high)


def plan_at(predictions: Predictions, at: tuple[int, int]) -> Plan | None:
    """Return the plan of a step, given as (device, batch); None if it runs on one GPU in one pass."""
    scaling = predictions.scaling
    plan = None if scaling is None else scaling.plans[scaling.plan[at]]
    return None if plan == Plan() else plan
