"""An exchange rate and dollars in, amounts of its currency and the sentence that names it out."""

from advisor import units
from advisor.records.answer import Interval
from advisor.records.price import ExchangeRate


def rate_note(rate: ExchangeRate | None) -> tuple[str, ...]:
    """Which rate the text was converted with, where it was."""
    return () if rate is None else (f"converted at {rate.usd:g} dollars for 1 {rate.currency}, of {rate.date}",)


def in_currency(usd: Interval, *, rate: ExchangeRate | None) -> Interval:
    """The amount in the currency of `rate`."""
    one_usd = 1.0 if rate is None else rate.usd
    return Interval(mid=usd.mid / one_usd, low=usd.low / one_usd, high=usd.high / one_usd)


def money_interval(usd: Interval, *, rate: ExchangeRate | None) -> str:
    """ "$0.42 [0.38-0.46]"."""
    inside = in_currency(usd, rate=rate)
    ends = "-".join(units.format_amount(end) for end in (inside.low, inside.high))
    return f"{units.format_money(usd.mid, rate=rate)} [{ends}]"
