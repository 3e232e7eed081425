"""What offers would cost and take in, which of them break a limit and by how much out."""

from dataclasses import dataclass

import numpy as np

from advisor import units
from advisor.cost.job_cost import JobCosts
from advisor.records.answer import JobLimits
from advisor.records.prediction import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Limit:
    """One limit beside the (offers,) that are held against it; `text` is of an amount, `flag` of the limit."""

    code: str
    flag: str
    verb: str
    limit: float
    amounts: FloatArray
    is_money: bool

    def reason(self, offer: int) -> str:
        text = units.format_usd if self.is_money else units.format_duration
        amount = float(self.amounts[offer])
        return f"{self.verb} {text(amount)}, {text(amount - self.limit)} more than {self.flag} {text(self.limit)}"


class OfferLimits:
    """The limits on time and money, held against the costs of every offer."""

    def __init__(self, limits: JobLimits, *, costs: JobCosts, usd_per_hour: FloatArray) -> None:
        hourly_usd = usd_per_hour * costs.instance_count
        asked = (
            ("over-deadline", "--deadline", "takes", limits.deadline_s, costs.job_s, False),
            ("over-max-usd", "--max-usd", "costs", limits.max_usd, costs.job_usd, True),
            ("over-max-hourly", "--max-hourly", "costs an hour", limits.max_usd_per_hour, hourly_usd, True),
        )
        self._limits = [
            _Limit(code=code, flag=flag, verb=verb, limit=limit, amounts=amounts, is_money=is_money)
            for code, flag, verb, limit, amounts, is_money in asked
            if limit is not None
        ]
        self.kept: BoolArray = np.ones(len(usd_per_hour), dtype=np.bool_)
        for one in self._limits:
            self.kept &= one.amounts <= one.limit

    def why_broken(self, offer: int) -> tuple[str, str]:
        """Code of the first limit that the offer breaks, and by how much it breaks each."""
        broken = [one for one in self._limits if one.amounts[offer] > one.limit]
        return broken[0].code, "; ".join(one.reason(offer) for one in broken)
