"""Formats counts, and intervals of time and money, in the currency of the answer."""

from collections.abc import Callable

from advisor import units
from advisor.records.answer import Interval
from advisor.records.price import ExchangeRate

_EXACT_BELOW = 10_000


def count_text(count: int) -> str:
    """Return an exact count: "12,345"."""
    return f"{count:,}"


def number_text(count: int) -> str:
    """Return a count with three significant digits if it is large: "9,876", "17,600"."""
    return f"{count if count < _EXACT_BELOW else round(float(f'{count:.3g}')):,}"


def interval_text(time_s: Interval) -> str:
    """Return an interval of time, such as "10 ms [8-12.5]"."""
    return units.format_interval_s(time_s.mid, time_s.low, time_s.high)


def in_currency(usd: Interval, *, rate: ExchangeRate | None) -> Interval:
    """Return the amount in the currency of `rate`."""
    one_usd = 1.0 if rate is None else rate.usd
    return Interval(mid=usd.mid / one_usd, low=usd.low / one_usd, high=usd.high / one_usd)


def money_interval(usd: Interval, *, rate: ExchangeRate | None) -> str:
    """Return an amount with its interval, such as "$0.42 [0.38-0.46]"."""
    inside = in_currency(usd, rate=rate)
    ends = "-".join(units.format_amount(end) for end in (inside.low, inside.high))
    return f"{units.format_money(usd.mid, rate=rate)} [{ends}]"


def money_text(rate: ExchangeRate | None, *, digits: int = 2) -> Callable[[float], str]:
    """Return the function that formats dollars in the currency of `rate`."""
    return lambda usd: units.format_money(usd, rate=rate, digits=digits)


def rate_note(rate: ExchangeRate | None) -> tuple[str, ...]:
    """Return the note on the exchange rate, if one was used."""
    return () if rate is None else (f"converted at {rate.usd:g} dollars per {rate.currency} (rate of {rate.date})",)
