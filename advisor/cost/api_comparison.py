"""Compares a service of one's own with an API that charges by the token."""

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

from advisor import units
from advisor.cost.by_kind import ByKind
from advisor.cost.crossing_curve import GRID, contender_of, service_of
from advisor.cost.crossing_margin import Margin, margin_over_known
from advisor.cost.crossing_search import find_crossings
from advisor.cost.service import requests_per_month
from advisor.errors import UsageError
from advisor.records.answer import ApiComparison, Job
from advisor.records.break_even_curves import KindCost
from advisor.records.flag_values import naming
from advisor.records.generation import Generation
from advisor.records.price import ApiPrice

_FLAG = "--api-usd-per-mtok"


def api_price_of(text: str, known: Mapping[str, ApiPrice]) -> ApiPrice:
    """Return the price that `--api-usd-per-mtok` names or gives; raise `UsageError` if it does neither."""
    if text in known:
        return known[text]
    parts = text.split(",")
    if len(parts) not in (2, 3):
        names = f"; api_prices.yaml has {', '.join(known)}" if known else ""
        raise UsageError(
            f"{_FLAG} {text!r:.60} is neither the name of an API nor two or three prices",
            hint=f"write the dollars per million tokens of prompts and answers, for example 0.20,0.60{names}",
        )
    prompt, answer, *cached = map(naming(_FLAG, units.parse_positive), parts)
    return ApiPrice(
        input_usd_per_mtok=prompt,
        output_usd_per_mtok=answer,
        cached_usd_per_mtok=cached[0] if cached else None,
        date="",
        source=_FLAG,
    )


def request_usd(price: ApiPrice, generation: Generation) -> float:
    """Return what the API charges for a request; cached tokens of the prompt have their own price, if there is one."""
    cached_usd = price.input_usd_per_mtok if price.cached_usd_per_mtok is None else price.cached_usd_per_mtok
    return 1e-6 * (
        (generation.prompt_tokens - generation.prefix_cached_tokens) * price.input_usd_per_mtok
        + generation.prefix_cached_tokens * cached_usd
        + generation.output_tokens * price.output_usd_per_mtok
    )


def compare_with_api(
    asked: str,
    cheapest: Callable[[Job], ByKind],
    *,
    known: Mapping[str, ApiPrice],
    job: Job,
    tax_percent: float | None = None,
) -> ApiComparison | None:
    """Return from how many requests per day on the cheapest service costs less than the API that was `asked` for.

    Once the service is cheaper it stays so but for the steps at which it needs another instance. The tax is that of the
    user's overlay, which the costs of services include. Returns None if no API was asked for, or no service can be
    compared.
    """
    if not asked or job.generation is None:
        return None
    price = api_price_of(asked, known)
    usd = request_usd(price, job.generation) * (1 + (tax_percent or 0.0) / 100)

    @cache
    def own(requests_per_day: int) -> KindCost | None:
        found = cheapest(service_of(job, requests_per_day=requests_per_day)).values()
        return min(found, key=lambda one: one.own_usd.mid, default=None)

    def margin(requests_per_day: int) -> Margin | None:
        if not requests_per_day:
            return Margin(mid=-math.inf, low=-math.inf, high=-math.inf)
        found = own(requests_per_day)
        return None if found is None else margin_over_known(usd * requests_per_month(requests_per_day), found)

    crossing = next((one for one in find_crossings([0, *GRID], margin) if one.cheaper == "gpu"), None)
    at = crossing.at if crossing else next((place for place in reversed(GRID) if own(place) is not None), 0)
    if not at or (found := own(at)) is None:
        return None
    return ApiComparison(
        price=price,
        usd_per_request=usd,
        usd_per_month=None if job.requests_per_day is None else usd * requests_per_month(job.requests_per_day),
        crossing=crossing and replace(crossing, cheaper=found.quote().device.kind),
        own=contender_of(found),
        requests_per_day=at,
        own_usd_per_request=found.own_usd.mid / requests_per_month(at),
    )
