"""An exchange rate in, the sentence that names it out."""

from advisor.records.price import ExchangeRate


def rate_note(rate: ExchangeRate | None) -> tuple[str, ...]:
    """Which rate the text was converted with, where it was."""
    return () if rate is None else (f"converted at {rate.usd:g} dollars for 1 {rate.currency}, of {rate.date}",)
