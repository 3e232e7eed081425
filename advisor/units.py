"""Parses what users type into base units, and formats base units for people to read."""

import math
import re
from decimal import Decimal
from typing import TYPE_CHECKING, TypeAlias

from advisor.errors import UsageError

if TYPE_CHECKING:
    from advisor.records.price import ExchangeRate

SECONDS_PER = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION_PART = re.compile(r"(\d+\.?\d*|\.\d+)\s*(us|ms|min|s|m|h|d)\s*", re.IGNORECASE)
_COUNT = re.compile(r"(\d+\.?\d*|\.\d+)(e\+?\d{1,3}|[kmbt])?", re.IGNORECASE)
_DIGIT_GROUPS = re.compile(r"\d{1,3}(,\d{3})+|\d+(_\d+)+")
_EXPONENT_OF = {"k": "e3", "m": "e6", "b": "e9", "t": "e12"}
_LARGEST_COUNT = 10**15
"""Whole numbers up to here are exact as floats, and no job has more samples."""
LONGEST_S = 1e9
"""30 years, the longest time that a user may write."""
_SHORTEST_S = 1e-12
"""One picosecond: no step, sample or token takes less."""
LEAST_UTILIZATION, MOST_UTILIZATION = 0.01, 0.95
"""Limits of a service's utilization: below, a hundred machines do the work of one; above, waits depend on minutes of
the load that no average knows."""
_KG_PER_TONNE = 1e3
_SI_PREFIXES = ("", "k", "M", "G", "T", "P", "E")
_COUNT_PREFIXES = ("", "k", "M", "B", "T")
_BINARY_PREFIXES = ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DURATION_UNITS = (
    ("ns", 1e-9),
    ("us", 1e-6),
    ("ms", 1e-3),
    ("s", 1.0),
    ("min", 60.0),
    ("h", 3600.0),
    ("days", 86400.0),
)


def parse_duration_s(text: str) -> float:
    """Parse "50ms", "90s", "24h", "1h30m" or a plain number of seconds; raise `UsageError` for anything else and 0."""
    seconds = _duration_s(text)
    if seconds > LONGEST_S:
        raise UsageError(f"{text!r:.40} is longer than 30 years", hint="write a shorter time")
    if seconds < _SHORTEST_S:
        raise UsageError(f"{text!r:.40} must be more than 0", hint="write for example 50ms or 24h")
    return seconds


def _duration_s(text: str) -> float:
    stripped = text.strip()
    if re.fullmatch(r"\d+\.?\d*|\.\d+", stripped):
        return float(stripped)
    parts = list(_DURATION_PART.finditer(stripped))
    if not parts or "".join(part.group() for part in parts) != stripped:
        raise UsageError(
            f"{text!r:.40} is not a duration", hint="write seconds, or a number with us, ms, s, m, h or d: 1h30m"
        )
    return sum(float(part[1]) * SECONDS_PER[part[2].lower()] for part in parts)


def parse_count(text: str, *, least: int = 1) -> int:
    """Parse "1000000", "1,000,000", "1_000_000", "1e6" or "1M"; raise `UsageError` if it is less than `least`.

    k, M, B and T stand for 1e3, 1e6, 1e9 and 1e12, in either case. What is not a whole number is refused, too.
    """
    stripped = text.strip()
    if _DIGIT_GROUPS.fullmatch(stripped):
        stripped = re.sub("[,_]", "", stripped)
    found = _COUNT.fullmatch(stripped)
    power = (found[2] or "").lower() if found else ""
    number = Decimal(found[1] + _EXPONENT_OF.get(power, power)) if found else Decimal(-1)
    if number != number.to_integral_value() or number < least:
        raise UsageError(
            f"{text!r:.40} is not a whole number of at least {least}", hint="write for example 500, 200k, 1.5M or 1e6"
        )
    if number > _LARGEST_COUNT:
        raise UsageError(f"{text!r:.40} is more than 1e15", hint="write a smaller number")
    return int(number)


def parse_days(text: str) -> int:
    """Parse "180" or "180d"; raise `UsageError` unless it is a whole number of days, at least 1."""
    try:
        return parse_count(text.strip().lower().removesuffix("d"))
    except UsageError:
        raise UsageError(f"{text!r:.40} is not a whole number of days, at least 1", hint="write 180 or 180d") from None


def parse_positive(text: str) -> float:
    """Parse "50", "0.5" or "$50"; raise `UsageError` unless it is a finite number above 0."""
    number = _number(text.strip().removeprefix("$"))
    if not math.isfinite(number) or number <= 0:
        raise UsageError(f"{text!r:.40} is not a number above 0", hint="write 50 or 0.5")
    if not 1 / _LARGEST_COUNT <= number <= _LARGEST_COUNT:
        raise UsageError(f"{text!r:.40} is not between 1e-15 and 1e15", hint="write 50 or 0.5")
    return number


def parse_ratio(text: str, *, least: float = 0.0, most: float = math.inf) -> float:
    """Parse "10%", "10 %" or "0.1"; raise `UsageError` unless it is a finite number from `least` to `most`.

    A number of 1 or more needs its %, because "10" may stand for 10 % as well as for 10 times.
    """
    number, percent, rest = text.strip().partition("%")
    ratio = _number(number) / (100 if percent else 1)
    if rest or not 0 <= ratio < math.inf:
        raise UsageError(f"{text!r:.40} is not a percentage or a ratio", hint="write for example 10% or 0.1")
    if not least <= ratio <= most:
        between = f"{format_ratio(least)} and {format_ratio(most)}"
        raise UsageError(f"{text!r:.40} is not between {between}", hint="write for example 70% or 0.7")
    if ratio >= 1 and not percent:
        both = f"{number:.40}% or {format_significant(ratio * 100)}%"
        raise UsageError(f"{text!r:.40} may be percent or a ratio", hint=f"write {both}")
    return ratio


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def format_duration(seconds: float) -> str:
    """Format a time with three significant digits, in the largest unit that gives at least 1: "12.3 ms", "1.5 h"."""
    unit, unit_s = _duration_unit(seconds)
    amount = format_significant(seconds / unit_s)
    return f"{amount} {'day' if (amount, unit) == ('1', 'days') else unit}"


def format_interval_s(mid: float, low: float, high: float) -> str:
    """Format an interval of times in the unit of its middle: "12.3 ms [11.1-13.8]"."""
    return _in_unit_of_middle(mid, low, high, unit=_duration_unit(mid))


def format_bytes(size_bytes: float) -> str:
    """Format a size in binary units: "16 GiB"."""
    return _in_unit(size_bytes, _bytes_unit(size_bytes))


def format_interval_bytes(mid: float, low: float, high: float) -> str:
    """Format an interval of sizes in the unit of its middle: "3.86 GiB [3.26-4.45]"."""
    return _in_unit_of_middle(mid, low, high, unit=_bytes_unit(mid))


def format_flops(flops: float) -> str:
    """Format a count of FLOP, not a rate: "4.1 GFLOP"."""
    return _in_unit(flops, _prefixed_unit("FLOP", flops, prefixes=_SI_PREFIXES, base=1000.0))


def format_co2(kg: float) -> str:
    """Format a mass of CO2: "45.3 kg", "120 g"."""
    return _in_unit(kg, _co2_unit(kg))


def format_interval_co2(mid_kg: float, low_kg: float, high_kg: float) -> str:
    """Format an interval of masses in the unit of its middle: "1.2 kg [0.8-1.7]"."""
    return _in_unit_of_middle(mid_kg, low_kg, high_kg, unit=_co2_unit(mid_kg))


def format_kwh(kwh: float) -> str:
    """Format an energy: "1.2 kWh", "350 Wh"."""
    return _in_unit(kwh, ("Wh", 1e-3) if _rounded(kwh) < 1 else ("kWh", 1.0))


def format_count(count: float) -> str:
    """Format a count as `parse_count` reads it, with a letter from a thousand on: "25.6M", "671B"."""
    return _in_unit(count, _prefixed_unit("", count, prefixes=_COUNT_PREFIXES, base=1000.0)).replace(" ", "")


def format_usd(usd: float, *, digits: int = 2) -> str:
    """Format dollars: "$0.0042", "$3.06", "$1,235".

    `digits` is the number of significant digits; there are at least cents below 1,000 dollars and no cents from there.
    """
    return f"${format_amount(usd, digits=digits)}"


def format_money(usd: float, *, rate: "ExchangeRate | None", digits: int = 2) -> str:
    """Format dollars in the currency of `rate`, as "EUR 2.64", or in dollars if it is None."""
    if rate is None:
        return format_usd(usd, digits=digits)
    return f"{rate.currency} {format_amount(usd / rate.usd, digits=digits)}"


def format_amount(amount: float, *, digits: int = 2) -> str:
    """Format an amount of money like `format_usd`, without the currency."""
    if amount == 0:
        return "0"
    if round(amount, 2) >= 1000:
        return f"{amount:,.0f}"
    decimals = max(2, digits - 1 - math.floor(math.log10(amount)))
    whole, cents = f"{amount:.{decimals}f}".split(".")
    return f"{whole}.{cents[:2]}{cents[2:].rstrip('0')}"


def format_ratio(ratio: float) -> str:
    """Format a ratio as a percentage: "9 %", "0.4 %", "< 0.01 %"."""
    percent = ratio * 100
    if 0 < percent < 0.01:
        return "< 0.01 %"
    return f"{percent:.0f} %" if percent >= 1 or percent == 0 else f"{format_significant(percent, digits=1)} %"


def format_times(ratio: float) -> str:
    """Format a factor: "6.8x", "120x"."""
    return f"{format_significant(ratio, digits=2 if ratio < 100 else 3)}x"


def format_rate(per_s: float) -> str:
    """Format samples per second: "0.52", "12.3", "1,240"."""
    return f"{float(f'{per_s:.3g}'):,.0f}" if per_s >= 100 else format_significant(per_s)


def format_significant(value: float, *, digits: int = 3) -> str:
    """Format with `digits` significant digits and no exponent: "0.0123", "1234".

    All digits before the decimal point are shown, and trailing zeros after it are not.
    """
    if value == 0:
        return "0"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


_Unit: TypeAlias = tuple[str, float]
"""The name of a unit, and its size in base units."""


def _in_unit(value: float, unit: _Unit) -> str:
    name, size = unit
    return f"{format_significant(value / size)} {name}"


def _in_unit_of_middle(mid: float, low: float, high: float, *, unit: _Unit) -> str:
    low_text, high_text = (format_significant(end / unit[1]) for end in (low, high))
    return f"{_in_unit(mid, unit)} [{low_text}-{high_text}]"


def _duration_unit(seconds: float) -> _Unit:
    rounded = _rounded(seconds)
    fitting = [unit for unit in _DURATION_UNITS if rounded >= unit[1]]
    if seconds == 0:
        return "us", 1e-6
    return fitting[-1] if fitting else _DURATION_UNITS[0]


def _co2_unit(kg: float) -> _Unit:
    rounded = _rounded(kg)
    return ("g", 1e-3) if rounded < 1 else ("kg", 1.0) if rounded < _KG_PER_TONNE else ("t", _KG_PER_TONNE)


def _rounded(value: float) -> float:
    """Return the value with three significant digits, by which its unit is chosen: 999.9 g reads 1 kg."""
    return float(f"{value:.3g}")


def _bytes_unit(size_bytes: float) -> _Unit:
    return _prefixed_unit("B", size_bytes, prefixes=_BINARY_PREFIXES, base=1024.0)


def _prefixed_unit(name: str, value: float, *, prefixes: tuple[str, ...], base: float) -> _Unit:
    """Return the unit with its prefix, chosen after rounding so that 999.9 M reads 1 G."""
    power = 0
    while max(value, _rounded(value)) >= base and power < len(prefixes) - 1:
        value /= base
        power += 1
    return prefixes[power] + name, base**power
