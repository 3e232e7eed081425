"""Checks which offers break a limit on time, cost or quota, and by how much."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor import units
from advisor.cost.job_cost import JobCosts
from advisor.cost.miss import LimitViolation
from advisor.cost.offer_terms import OfferTerms
from advisor.records.answer import JobLimits
from advisor.records.prediction import BoolArray, FloatArray
from advisor.records.price import RejectionCode


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Limit:
    """One limit of each offer and the amount checked against it, both (offers,), with the text for a violation."""

    code: RejectionCode
    limits: FloatArray
    amounts: FloatArray
    reason: Callable[[float, float], str]

    def reason_of(self, offer: int) -> str:
        return self.reason(float(self.amounts[offer]), float(self.limits[offer]))

    def ratio_of(self, offer: int) -> float:
        limit = float(self.limits[offer])
        return float(self.amounts[offer]) / limit if limit else math.inf


class OfferLimits:
    """Check every offer against the limits on time and money and against the user's quota."""

    def __init__(self, limits: JobLimits, *, costs: JobCosts, terms: OfferTerms) -> None:
        count = costs.instance_count
        hourly_usd = terms.usd_per_hour * count
        duration, usd = units.format_duration, units.format_usd
        asked: tuple[
            tuple[RejectionCode, float | FloatArray | None, FloatArray, Callable[[float, float], str]], ...
        ] = (
            ("over-quota", terms.quota_instances, count, _over_quota),
            ("over-deadline", limits.deadline_s, costs.job_s, _over("takes", "--deadline", duration)),
            ("over-max-usd", limits.max_usd, costs.job_usd, _over("costs", "--max-usd", usd)),
            ("over-max-hourly", limits.max_usd_per_hour, hourly_usd, _over("costs per hour", "--max-hourly", usd)),
        )
        self._limits = [
            _Limit(code=code, limits=np.broadcast_to(limit, count.shape), amounts=amounts, reason=reason)
            for code, limit, amounts, reason in asked
            if limit is not None
        ]
        self.kept: BoolArray = np.ones(count.shape, dtype=np.bool_)
        for one in self._limits:
            self.kept &= one.amounts <= one.limits

    def why_broken(self, offer: int) -> LimitViolation:
        """Return the code of the first limit that the offer breaks, and the excess over each broken limit."""
        broken = [one for one in self._limits if one.amounts[offer] > one.limits[offer]]
        return LimitViolation(
            code=broken[0].code,
            reason="; ".join(one.reason_of(offer) for one in broken),
            ratio=max(one.ratio_of(offer) for one in broken),
        )


def _over(verb: str, flag: str, text: Callable[[float], str]) -> Callable[[float, float], str]:
    return lambda amount, limit: f"{verb} {text(amount)}, {text(amount - limit)} more than {flag} {text(limit)}"


def _over_quota(count: float, allowed: float) -> str:
    needed = "1 instance" if count == 1 else f"{count:,.0f} instances"
    return f"needs {needed}, but your quota allows {allowed:,.0f}"
