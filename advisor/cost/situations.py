"""Compares the cheapest CPU and GPU in each use of a model, and picks three offers for a job with a size."""

from collections.abc import Mapping, Sequence
from functools import partial

from advisor.cost.by_kind import KindMarket
from advisor.cost.crossing_curve import point_of, requests_curve, samples_curve
from advisor.cost.job import ASSUMED_SAMPLES
from advisor.records.answer import Choice, Job, Quote, Situation, SituationKind
from advisor.records.break_even_curves import Curve
from advisor.records.prediction import Predictions

_MOST_COST_RATIO = 2.0
"""Up to this cost, relative to the cheapest offer, a faster one is a choice."""


def situations_of(market: KindMarket, predictions: Predictions, *, job: Job) -> tuple[Situation, ...]:
    """Return each use in which both kinds of device can work; none if the job has a size.

    The service takes one request a day: it is always on, and never has two requests at a time.
    """
    if not job.assumed:
        return ()
    cheapest = partial(market.cheapest, predictions)
    found = [Situation(kind="busy", point=point_of(job.samples, cheapest(job)))]
    curves: dict[SituationKind, Curve] = {"once": samples_curve(cheapest, job=job, shown=(ASSUMED_SAMPLES,))}
    if job.mode == "inference" and job.limits.deadline_s is None and 1 in predictions.batches:
        curves["service"] = requests_curve(cheapest, job=job, shown=(1,))
    for kind, curve in curves.items():
        point, *at_crossing = curve.points
        found.append(
            Situation(kind=kind, point=point, crossings=curve.crossings, at_crossing=next(iter(at_crossing), None))
        )
    return tuple(one for one in found if one.point.cpu is not None and one.point.gpu is not None)


def choices_of(quotes: Sequence[Quote], *, job: Job) -> Mapping[Choice, Quote]:
    """Return the cheapest quote and, among those of at most twice its cost, the fastest and the least cost x time.

    Only quotes that may lead count, if there are any. The time is that of the job, or a service's 99th percentile.
    """
    leading = [quote for quote in quotes if quote.may_lead] or quotes
    if job.assumed or not leading:
        return {}

    def usd(quote: Quote) -> float:
        return quote.job_usd.mid

    cheapest = min(leading, key=lambda one: (usd(one), one.time_s))
    affordable = [quote for quote in leading if usd(quote) <= _MOST_COST_RATIO * usd(cheapest)]
    return {
        "cheapest": cheapest,
        "balanced": min(affordable, key=lambda one: usd(one) * one.time_s),
        "fastest": min(affordable, key=lambda one: (one.time_s, usd(one))),
    }
