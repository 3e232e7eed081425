"""Predicts the time of a job on spot instances that may be interrupted."""

import re
from functools import cache

import numpy as np

from advisor.cost.service import SECONDS_PER_MONTH
from advisor.records.billing import Billing
from advisor.records.prediction import FloatArray
from advisor.records.price import PricedOffer

_NUMBER = re.compile(r"[\d.]+")
MOST_INTERRUPTIONS = 6.0
"""Expected interruptions between two checkpoints above which a job never ends. At the highest rate that AWS publishes,
20 % a month, there is one every 136 days, and that work takes (e^6 - 1) x 136 days: 150 years."""
_LARGEST_EXPONENT = 500.0
"""Cap that keeps the expected time of such a job a number."""


def interruption_of(priced: PricedOffer, *, billing: Billing) -> str | None:
    """Return the monthly share of interrupted instances: published, or else assumed; None unless it is a spot price."""
    if priced.price.kind != "spot":
        return None
    typical = billing.extra_costs.spot_interruption
    return priced.offer.interruption or (None if typical is None else typical.share)


@cache  # providers publish a few ranges
def interruptions_per_s(interruption: str | None) -> float:
    """Return the interruption rate behind a monthly share of interrupted instances: "5-10 %", "<5 %", ">20 %".

    At a constant rate, an instance survives a month with probability e^(-rate x month). The share used is the upper
    end of the range; ">20 %" has no upper end, so 20 % is used, which is a lower bound. An unknown share counts as 0.
    """
    if interruption is None:
        return 0.0
    share = float(_NUMBER.findall(interruption)[-1]) / 100
    return float(-np.log1p(-share)) / SECONDS_PER_MONTH


def interruption_count(
    work_s: FloatArray, *, checkpoint_every_s: float | None, interruptions_per_s: FloatArray
) -> FloatArray:
    """Return the expected interruptions in a stretch of work between checkpoints; all work without checkpoints."""
    stretch_s = work_s if checkpoint_every_s is None else np.minimum(work_s, checkpoint_every_s)
    return np.where(np.isfinite(work_s), stretch_s, 0.0) * interruptions_per_s


def expected_s(
    work_s: FloatArray, *, counts: FloatArray, interruptions_per_s: FloatArray, restart_s: FloatArray
) -> FloatArray:
    """Return the expected time of the work, with lost work and restarts but without the first start.

    `counts` are those of `interruption_count`.

    For work W in stretches of c between checkpoints, mean time M between interruptions and restart time R it is
    (M + R) (e^(c/M) - 1) W/c. A stretch fails e^(c/M) - 1 times on average before it completes; see Daly, "A higher
    order estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22 (2006),
    here with checkpoints that take no time and restarts that are never interrupted. Without checkpoints all work is
    one stretch.
    """
    expected = work_s.copy()
    hit = counts > 0
    count, rate = counts[hit], np.broadcast_to(interruptions_per_s, work_s.shape)[hit]
    restart = np.broadcast_to(restart_s, work_s.shape)[hit]
    per_stretch = (1 / rate + restart) * np.expm1(np.minimum(count, _LARGEST_EXPONENT))
    expected[hit] = per_stretch * work_s[hit] * rate / count
    return expected
