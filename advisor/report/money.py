"""Converts dollars to another currency, and names the exchange rate used."""

from advisor import units
from advisor.records.answer import Interval
from advisor.records.price import ExchangeRate


def rate_note(rate: ExchangeRate | None) -> tuple[str, ...]:
    """Return the note on the exchange rate, if one was used."""
    return () if rate is None else (f"converted at {rate.usd:g} dollars per {rate.currency} (rate of {rate.date})",)


def in_currency(usd: Interval, *, rate: ExchangeRate | None) -> Interval:
    """Return the amount in the currency of `rate`."""
    one_usd = 1.0 if rate is None else rate.usd
    return Interval(mid=usd.mid / one_usd, low=usd.low / one_usd, high=usd.high / one_usd)


def money_interval(usd: Interval, *, rate: ExchangeRate | None) -> str:
    """Return an amount with its interval, such as "$0.42 [0.38-0.46]"."""
    inside = in_currency(usd, rate=rate)
    ends = "-".join(units.format_amount(end) for end in (inside.low, inside.high))
    return f"{units.format_money(usd.mid, rate=rate)} [{ends}]"
