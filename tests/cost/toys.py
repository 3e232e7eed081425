"""Offers and predictions with round numbers, for the tests of the ranking."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from advisor.cost import rank_offers
from advisor.cost.batch_choice import BatchChoice
from advisor.cost.market import Market
from advisor.cost.rank_offers import Ranking
from advisor.cost.selection import Selection, select_offers
from advisor.records.answer import Job
from advisor.records.billing import Billing, BillingRule, Extras, StartUp
from advisor.records.device import Device
from advisor.records.options import Options
from advisor.records.prediction import Fleet, Predictions
from advisor.records.price import Offer, Price, PriceErrors, PriceKind, Rejected
from advisor.records.rejection import rejections


def price(usd_per_hour: float = 3.6, **changes: Any) -> Price:
    return Price(
        **({"kind": "on_demand", "usd_per_hour": usd_per_hour, "date": "2026-01-01", "source": "by hand"} | changes)
    )


def offer(instance: str = "m1", *, usd_per_hour: float = 3.6, **changes: Any) -> Offer:
    """A CPU instance at 3.6 $/h: 0.001 $/s."""
    region = changes.get("region", "us-1")
    values: dict[str, Any] = {
        "id": f"acme/{region}/{instance}",
        "provider": "acme",
        "tier": "hyperscaler",
        "region": "us-1",
        "geo": "US",
        "instance": instance,
        "vcpus": 8,
        "threads_per_core": 2,
        "memory_bytes": 32e9,
        "cpu": "xeon",
        "gpu": None,
        "gpu_count": 0,
        "prices": (price(usd_per_hour),),
    }
    return Offer(**(values | changes))


def said(rejected: Iterable[Rejected], *, job: Job | None = None) -> list[tuple[str, str, str]]:
    """The instance of each rejected offer, its code, and the sentence that a user reads."""
    return [(one.instance, one.code, one.reason) for one in rejections(rejected, job.generation if job else None)]


def selection(*offers: Offer, price_kind: PriceKind = "on_demand", **options: Any) -> Selection:
    return select_offers(offers, options=Options(**options), price_kind=price_kind, errors=PriceErrors())


def rank(
    offers: Selection,
    *,
    fleet: Fleet,
    predictions: Predictions,
    job: Job,
    billing: Billing | None = None,
    choice: BatchChoice | None = None,
) -> Ranking:
    """The offers ranked on their devices."""
    market = Market(offers, fleet=fleet, billing=billing)
    return rank_offers.rank(market, predictions=predictions, job=job, choice=choice)


def device(name: str, **changes: Any) -> Device:
    values: dict[str, Any] = {
        "id": name,
        "name": name,
        "kind": "cpu",
        "vendor": "Acme",
        "generation": "First",
        "core_count": 4,
        "peak_flops_per_s": {},
        "memory_bytes": 32e9,
        "memory_bytes_per_s": 1e11,
        "cache_bytes": 0.0,
    }
    return Device(**(values | changes))


def fleet(*device_index: int, devices: tuple[Device, ...]) -> Fleet:
    problems = tuple("" if index >= 0 else "it is a riddle" for index in device_index)
    return Fleet(devices=devices, device_index=np.array(device_index, dtype=np.intp), problems=problems)


def predictions(*devices: Device, step_s: Any, batches: tuple[int, ...] = (1,), **changes: Any) -> Predictions:
    """Times within 10 % either way, as much in each device's own error, everything fits, a peak of 1 GB per sample."""
    mid_s = np.array(step_s, dtype=np.float64)
    values: dict[str, Any] = {
        "precisions": np.full(mid_s.shape, "fp32", dtype=np.object_),
        "time_sources": np.full(mid_s.shape, "fitted", dtype=np.object_),
        "compile": "eager",
        "step_low_s": mid_s * 0.9,
        "step_high_s": mid_s * 1.1,
        "log_spread": np.full(mid_s.shape, math.log(1.1) / 1.645),  # 1.645: the 95th percentile of a normal
        "own_log_spread": np.full(mid_s.shape, math.log(1.1) / 1.645),
        "bound": np.zeros(mid_s.shape, dtype=np.intp),
        "peak_memory_bytes": np.full(mid_s.shape, 1e9) * np.array(batches),
        "fits": np.ones(mid_s.shape, dtype=np.bool_),
    }
    return Predictions(devices=devices, batches=np.array(batches, dtype=np.intp), step_s=mid_s, **(values | changes))


def job(samples: int = 1000, **changes: Any) -> Job:
    values: dict[str, Any] = {
        "mode": "inference",
        "samples": samples,
        "epochs": None,
        "steps": None,
        "assumed": False,
        "batch": "auto",
        "precision": "auto",
        "layout": "nchw",
        "compile": "eager",
        "price": "on_demand",
    }
    return Job(**(values | changes))


def billing(
    *,
    increment_s: float = 0.0,
    minimum_s: float = 0.0,
    start_up_s: float = 0.0,
    start_up_ratio: float = 2.0,
    **extras: float,
) -> Billing:
    """How acme bills; without an increment nothing is known of it, nor without a time of its start-up."""
    rule = BillingRule(increment_s=increment_s, minimum_s=minimum_s, basis="published", source="by hand")
    return Billing(
        rules={"acme": rule} if increment_s else {},
        start_ups={"acme": start_up(start_up_s, ratio=start_up_ratio)} if start_up_s else {},
        extras=Extras(**extras),
    )


def start_up(median_s: float, *, ratio: float = 2.0) -> StartUp:
    """One start-up in ten takes less than the median over `ratio`, and one more than the median times `ratio`."""
    return StartUp(
        sample_count=100,
        boot_script_median_s=median_s,
        boot_script_p10_s=median_s / ratio,
        boot_script_p90_s=median_s * ratio,
        container_running_median_s=median_s,
    )
