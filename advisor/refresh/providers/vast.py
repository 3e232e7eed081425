"""Fetches Vast.ai's live offers; the price is their median per GPU, because the cheapest host is often the worst."""

import json
from collections import defaultdict
from statistics import median

from pydantic import BaseModel, FiniteFloat

from advisor.records.price import ListedPrice, Listing, ListSource, Wanted
from advisor.refresh.client import Client, Request
from advisor.refresh.match import covered_prices, rows_of_gpu, rows_with_gpu

PROVIDER = "vast-ai"
LISTS = "live offers: the median of at least three"
KINDS = "on-demand"
OFFERS_URL = "https://console.vast.ai/api/v0/bundles/"
_QUERY = {"rentable": {"eq": True}, "verified": {"eq": True}, "type": "on-demand", "limit": 5000}
_FEWEST_OFFERS = 3
"""With fewer offers, the median is the price of a single host."""


class _HostOffer(BaseModel):
    gpu_name: str
    gpu_ram: FiniteFloat  # MiB of one GPU
    num_gpus: int
    dph_total: FiniteFloat  # dollars per hour of the whole machine


class _Offers(BaseModel):
    offers: list[_HostOffer]


def fetch(client: Client, wanted: Wanted) -> Listing:
    """Fetch the median price per GPU, and multiply it by the GPUs of each row."""
    answer = client.json(Request(url=OFFERS_URL, params={"q": json.dumps(_QUERY)}), _Offers)
    usd_per_gpu_hour: dict[tuple[str, int], list[float]] = defaultdict(list)
    for offer in answer.offers:
        if offer.num_gpus > 0 and offer.dph_total > 0:
            usd_per_gpu_hour[offer.gpu_name, round(offer.gpu_ram / 1024)].append(offer.dph_total / offer.num_gpus)
    prices = []
    problems = []
    for (name, memory_gib), offered in sorted(usd_per_gpu_hour.items()):
        rows = rows_of_gpu(name, wanted, memory_gib=memory_gib)
        if rows and len(offered) < _FEWEST_OFFERS:
            problems.append(f"{name}: only {len(offered)} live offers, but the median needs {_FEWEST_OFFERS}")
            continue
        for instance, region in rows:
            usd = round(median(offered) * wanted.types[instance].gpu_count, 4)
            prices.append(
                ListedPrice(instance=instance, region=region, kind="on_demand", usd_per_hour=usd, source="offers")
            )
    source = ListSource(url=OFFERS_URL, how="median of the verified live offers", basis="median_live_offer")
    return Listing(
        sources={"offers": source},
        prices=tuple(prices),
        covered=covered_prices(rows_with_gpu(wanted), "on_demand"),
        problems=tuple(problems),
    )
