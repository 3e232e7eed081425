"""How often spot instances are taken back in, the time that a job is then expected to take out."""

import re

import numpy as np

from advisor.cost.service import SECONDS_PER_MONTH
from advisor.records.prediction import FloatArray

_NUMBER = re.compile(r"[\d.]+")
_MOST_INTERRUPTIONS = 500.0
"""Of one stretch of work; e^500 restarts are for ever, and more would be no number."""


def interruptions_per_s(interruption: str) -> float:
    """The rate behind a range of shares that were taken back within a month: "5-10 %", "<5 %", ">20 %".

    Instances that are taken back at a constant rate are left after a month with the chance e^(-rate x month). The share
    is the upper end of the range; of ">20 %", which has none, the lower: there it is the least that is known.
    """
    share = float(_NUMBER.findall(interruption)[-1]) / 100
    return float(-np.log1p(-share)) / SECONDS_PER_MONTH


def expected_s(
    work_s: FloatArray, *, checkpoint_every_s: float | None, interruptions_per_s: FloatArray, restart_s: FloatArray
) -> FloatArray:
    """The time that the work takes, the first start not counted, with what is done again after interruptions.

    Work W in stretches of c between checkpoints, mean time M between interruptions, restart R:
    (M + R) (e^(c/M) - 1) W/c. A stretch fails e^(c/M) - 1 times on average before it is done; see Daly, "A higher order
    estimate of the optimum checkpoint interval for restart dumps", Future Generation Computer Systems 22 (2006), here
    with no time to write a checkpoint and no interruption of a restart. Without checkpoints all work is one stretch.
    """
    expected = work_s.copy()
    hit = (interruptions_per_s > 0) & np.isfinite(work_s) & (work_s > 0)
    work, rate = work_s[hit], np.broadcast_to(interruptions_per_s, work_s.shape)[hit]
    restart = np.broadcast_to(restart_s, work_s.shape)[hit]
    stretch = work if checkpoint_every_s is None else np.minimum(work, checkpoint_every_s)
    per_stretch = (1 / rate + restart) * np.expm1(np.minimum(stretch * rate, _MOST_INTERRUPTIONS))
    expected[hit] = per_stretch * work / stretch
    return expected
