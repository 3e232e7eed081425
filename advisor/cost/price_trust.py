"""Computes how far a listed price may be off, and whether it is known well enough to head an answer."""

import math
from collections.abc import Callable, Sequence
from datetime import date
from functools import cache

from advisor.records.price import SPOT_DRIFT, Offer, Price, PriceBasis, PriceErrors, Tier

_DAYS_PER_YEAR = 365


def price_trust(
    offers: Sequence[Offer], *, errors: PriceErrors, today: date
) -> Callable[[Price, Tier], tuple[float, bool]]:
    """Return a function that gives the error of a price in a tier, and whether the price is trusted.

    The error is the standard deviation of the logarithm of the price to pay `today` over the listed one. To be trusted,
    a price needs a small error at the date of the newest price of the offers: if all data are old, the newest are the
    best there are.
    """
    known = {price.date for offer in offers for price in offer.prices if not price.stale and not price.suspect}
    newest = date.fromisoformat(max((day for day in known if day <= today.isoformat()), default=today.isoformat()))

    @cache  # thousands of prices have a few dates
    def trust(day: str, drift: str, basis: PriceBasis) -> tuple[float, bool]:
        listed = date.fromisoformat(day)
        today_log_spread, newest_log_spread = (
            _log_spread(errors, drift_of=drift, basis=basis, age_days=(until - listed).days)
            for until in (today, newest)
        )
        limit = errors.trusted
        return today_log_spread, limit is None or newest_log_spread <= limit.log_spread

    return lambda price, tier: trust(price.date, SPOT_DRIFT if price.kind == "spot" else tier, price.basis)


def _log_spread(errors: PriceErrors, *, drift_of: str, basis: PriceBasis, age_days: int) -> float:
    """Return the error of a price: that of its list, and a drift whose variance grows with the age (a random walk).

    The user's own rates and hardware have none.
    """
    if basis in ("own_rate", "own_hardware"):
        return 0.0
    drift, listing = errors.drift.get(drift_of), errors.listing.get(basis)
    years = max(0, age_days) / _DAYS_PER_YEAR
    return math.hypot(
        drift.log_spread * math.sqrt(years) if drift else 0.0,
        listing.log_spread if listing else 0.0,
    )
