"""Marks prices that are known to be out of date, not credible, or old."""

from collections.abc import Sequence
from datetime import date
from functools import lru_cache

from advisor.records.answer import Quote
from advisor.records.price import Price, PriceMark


def price_marks(price: Price, *, today: date, max_age_days: int) -> tuple[PriceMark, ...]:
    """Return STALE and SUSPECT as the price file says, and OLD if the price is older than `max_age_days`."""
    return _marks(price.stale, price.suspect, price.date, today, max_age_days)


@lru_cache(maxsize=4096)  # a hundred thousand prices have a few hundred dates
def _marks(is_stale: bool, is_suspect: bool, priced_on: str, today: date, max_age_days: int) -> tuple[PriceMark, ...]:
    is_old = (today - date.fromisoformat(priced_on)).days > max_age_days
    marks: tuple[tuple[PriceMark, bool], ...] = (("STALE", is_stale), ("SUSPECT", is_suspect), ("OLD", is_old))
    return tuple(mark for mark, holds in marks if holds)


def mark_warnings(quotes: Sequence[Quote], *, max_age_days: int) -> tuple[str, ...]:
    """Return one sentence if prices in the ranking are doubtful, else nothing."""
    marked = [quote for quote in quotes if quote.price_marks]
    if not marked:
        return ()
    kinds = sorted({mark for quote in marked for mark in quote.price_marks})
    best = f", including the best one ({quotes[0].price_date})" if quotes[0].price_marks else ""
    return (
        f"{len(marked):,} of the {len(quotes):,} ranked prices are marked {', '.join(kinds)}{best} (OLD: more than "
        f"{max_age_days} days, --max-price-age): run `advise prices refresh`, or use --drop-prices old",
    )
