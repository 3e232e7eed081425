"""Offers in, what cannot be true of them out: held over every shipped row, and over a refreshed file before its use."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from statistics import median

from advisor.records.price import Offer, Price

_LEAST_USD_PER_HOUR = 0.002
_MOST_USD_PER_HOUR = 500.0
"""The smallest VM and a rack of 72 GPUs lie between; what does not is in another unit, such as cents or a term."""
_LEAST_COMMITMENT_RATIO = 0.15
"""Of the on-demand price; the deepest three-year discounts published are near 75 %."""
_LEAST_RATIO_OF_GPU_PRICE = 1 / 3
"""Of the median price per GPU of the same provider, region and GPU. Honest rows differ by their CPUs, down to 0.44."""


def broken_invariants(offers: Sequence[Offer], *, today: date) -> tuple[str, ...]:
    """One sentence for each price that cannot be right; prices marked as stale or suspect may be wrong."""
    found: list[str] = []
    for offer in offers:
        found += [f"{offer.id}: {problem}" for problem in _problems_of(offer, today=today)]
    return (*found, *_per_gpu_prices_of_machines(offers))


def _problems_of(offer: Offer, *, today: date) -> Iterator[str]:
    usd = {price.kind: price.usd_per_hour for price in _trusted(offer)}
    on_demand = usd.get("on_demand")
    for price in _trusted(offer):
        if not _LEAST_USD_PER_HOUR <= price.usd_per_hour <= _MOST_USD_PER_HOUR:  # NaN is not either
            yield f"{price.kind} of {price.usd_per_hour} dollars an hour"
        if date.fromisoformat(price.date) > today:
            yield f"{price.kind} is of {price.date}, after today"
    if on_demand is None:
        return
    for kind, usd_per_hour in usd.items():
        if kind != "on_demand" and usd_per_hour > on_demand:
            yield f"{kind} of {usd_per_hour} is above on-demand of {on_demand}"
        if kind.startswith("commit") and usd_per_hour < _LEAST_COMMITMENT_RATIO * on_demand:
            yield f"{kind} of {usd_per_hour} is less than {_LEAST_COMMITMENT_RATIO:.0%} of on-demand of {on_demand}"


def _per_gpu_prices_of_machines(offers: Iterable[Offer]) -> Iterator[str]:
    """Machines with several GPUs at a fraction of what one costs beside them."""
    per_gpu: dict[tuple[str, str, str | None, str], list[tuple[float, Offer]]] = defaultdict(list)
    for offer in offers:
        for price in _trusted(offer) if offer.gpu_count else ():
            key = (offer.provider, offer.region, offer.gpu, price.kind)
            per_gpu[key].append((price.usd_per_hour / offer.gpu_count, offer))
    for (_, _, _, kind), prices in per_gpu.items():
        middle = median(usd for usd, _ in prices)
        for usd, offer in prices:
            if offer.gpu_count > 1 and usd < _LEAST_RATIO_OF_GPU_PRICE * middle:
                yield f"{offer.id}: {kind} of {usd:.3f} for each of {offer.gpu_count} GPUs, where {middle:.3f} is usual"


def _trusted(offer: Offer) -> list[Price]:
    return [price for price in offer.prices if not price.stale and not price.suspect]
