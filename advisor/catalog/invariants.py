"""Devices and offers in, what is not credible of them out: held over every shipped row, over a refreshed file before
its use, and over what a user's own files change."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import date
from statistics import median

from advisor.records.device import Cpu, Gpu
from advisor.records.price import Catalog, Offer, Price, PriceKind

_LEAST_USD_PER_HOUR = 0.002
_MOST_USD_PER_HOUR = 500.0
"""The smallest VM and a rack of 72 GPUs lie between; what does not is in another unit, such as cents or a term."""
_LEAST_COMMITMENT_RATIO = 0.15
"""Of the on-demand price; the deepest three-year discounts published are near 75 %."""
_LEAST_RATIO_OF_GPU_PRICE = 1 / 3
"""Of the median price per GPU of the same provider, region and GPU. Honest rows differ by their CPUs, down to 0.44."""
_MOST_RATIO_TO_OURS = 5.0
"""Of a price to that of the same offer in the shipped files: contracts take up to 75 % off, prices doubled in years."""
_MOST_RATIO_TO_OTHERS = 4.0
"""Beyond the cheapest and the dearest of the same GPU, or vCPU, that any provider lists: these lie up to 38 apart."""
_MOST_FIGURE_RATIO = 2.0
"""Of a device's figure to the shipped one of the same device: two versions of a card differ by up to 1.5."""
_LANE_FLOPS = (64, 1024)
"""fp32 FLOP of an SM in a cycle: GPUs since 2014 have 128 to 384, two for each lane."""
_MEMORY_READS_PER_S = (1, 500)
"""How often a GPU can read its memory in a second: those since 2014 11 to 71 times."""
_SHOWN_COUNT = 5


def broken_invariants(offers: Sequence[Offer], *, today: date) -> tuple[str, ...]:
    """One sentence for each price that cannot be right; prices marked as stale or suspect may be wrong."""
    found: list[str] = []
    for offer in offers:
        found += [f"{offer.id}: {problem}" for problem in _problems_of(offer)]
        found += [f"{offer.id}: {price.kind} is of {price.date}, after today" for price in _future(offer, today)]
    return (*found, *_per_gpu_prices_of_machines(offers))


def broken_device_invariants(devices: Iterable[Gpu | Cpu]) -> tuple[str, ...]:
    """One sentence for each figure that contradicts another of the same device."""
    return tuple(f"{device.id}: {problem}" for device in devices for problem in _device_problems(device))


def doubts_about(catalog: Catalog, *, ours: Sequence[Offer], our_devices: Mapping[str, Gpu | Cpu]) -> tuple[str, ...]:
    """What is not credible of the offers and devices in `catalog` that are not `ours`, beside them and by itself."""
    known = {offer.id: offer for offer in ours}
    others = _prices_of_others(ours)
    found = []
    changed = [offer for offer in catalog.offers if offer != known.get(offer.id)]
    for offer in changed:
        found += [f"{offer.id}: {problem}" for problem in _problems_of(offer)]
        found += [f"{offer.id}: {problem}" for problem in _far_prices(offer, ours=known.get(offer.id), others=others)]
    devices: list[Gpu | Cpu] = [*catalog.gpus.values(), *catalog.cpus.values()]
    own = [device for device in devices if device != our_devices.get(device.id)]
    for device in own:
        found += [f"{device.id}: {problem}" for problem in _far_figures(device, ours=our_devices.get(device.id))]
    return (*found, *broken_device_invariants(own))


def catalog_warnings(catalog: Catalog, *, today: date) -> tuple[str, ...]:
    """What an answer from `catalog` is to say of figures and prices that are not credible; the first of many."""
    more = len(catalog.doubts) - _SHOWN_COUNT
    rest = (f"{more:,} more figures are not credible: `advise prices validate FILE` lists them",) if more > 0 else ()
    return (
        *(f"not credible: {doubt}" for doubt in catalog.doubts[:_SHOWN_COUNT]),
        *rest,
        *date_warnings(catalog, today=today),
    )


def date_warnings(catalog: Catalog, *, today: date) -> tuple[str, ...]:
    """One sentence where prices are of days to come, or none."""
    future = [f"{offer.id} of {price.date}" for offer in catalog.offers for price in _future(offer, today)]
    if not future:
        return ()
    first = f"the first is {future[0]}"
    return (f"{len(future):,} {'price is' if len(future) == 1 else 'prices are'} dated after today ({today}): {first}",)


def _problems_of(offer: Offer) -> Iterator[str]:
    usd = {price.kind: price.usd_per_hour for price in _trusted(offer)}
    on_demand = usd.get("on_demand")
    for kind, usd_per_hour in usd.items():
        if not _LEAST_USD_PER_HOUR <= usd_per_hour <= _MOST_USD_PER_HOUR:  # NaN is not either
            yield f"{kind} of {usd_per_hour} dollars an hour"
    if on_demand is None:
        return
    for kind, usd_per_hour in usd.items():
        if kind != "on_demand" and usd_per_hour > on_demand:
            yield f"{kind} of {usd_per_hour} is above on-demand of {on_demand}"
        if kind.startswith("commit") and usd_per_hour < _LEAST_COMMITMENT_RATIO * on_demand:
            yield f"{kind} of {usd_per_hour} is less than {_LEAST_COMMITMENT_RATIO:.0%} of on-demand of {on_demand}"


def _future(offer: Offer, today: date) -> Iterator[Price]:
    last_day = today.isoformat()
    return (price for price in _trusted(offer) if price.date > last_day)


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


_Others = Mapping[tuple[str | None, PriceKind], tuple[float, float]]
"""By GPU, or None for machines without, and kind of price: the cheapest and the dearest of one GPU or vCPU."""


def _prices_of_others(offers: Iterable[Offer]) -> _Others:
    found: dict[tuple[str | None, PriceKind], list[float]] = defaultdict(list)
    for offer in offers:
        for price in _trusted(offer):
            if (units := _units_of(offer)) is not None:
                found[offer.gpu, price.kind].append(price.usd_per_hour / units)
    return {key: (min(usd), max(usd)) for key, usd in found.items()}


def _units_of(offer: Offer) -> int | None:
    """GPUs, of a machine without vCPUs: what its price is compared by."""
    return offer.gpu_count if offer.gpu else offer.vcpus


def _far_prices(offer: Offer, *, ours: Offer | None, others: _Others) -> Iterator[str]:
    """Prices far from ours of the same offer, else from all of the same GPU or of vCPUs."""
    our_usd = {} if ours is None else {price.kind: price.usd_per_hour for price in _trusted(ours)}
    units = _units_of(offer)
    for price in _trusted(offer):
        usd, kind = price.usd_per_hour, price.kind
        if kind in our_usd:
            if not 1 / _MOST_RATIO_TO_OURS <= usd / our_usd[kind] <= _MOST_RATIO_TO_OURS:
                yield f"{kind} of {usd:g} dollars an hour, where our list has {our_usd[kind]:g}"
        elif units and (offer.gpu, kind) in others:
            least, most = others[offer.gpu, kind]
            if not least / _MOST_RATIO_TO_OTHERS <= usd / units <= most * _MOST_RATIO_TO_OTHERS:
                unit = offer.gpu or "vCPU"
                yield f"{kind} of {usd / units:g} dollars an hour for each {unit}, listed at {least:g} to {most:g}"


def _far_figures(device: Gpu | Cpu, *, ours: Gpu | Cpu | None) -> Iterator[str]:
    if ours is None or type(ours) is not type(device):
        return
    for field in fields(device):
        figure, our_figure = getattr(device, field.name), getattr(ours, field.name)
        are_numbers = isinstance(figure, (int, float)) and isinstance(our_figure, (int, float))
        if are_numbers and not 1 / _MOST_FIGURE_RATIO <= figure / our_figure <= _MOST_FIGURE_RATIO:
            yield f"{field.name} of {figure:g}, where our profile has {our_figure:g}"


def _device_problems(device: Gpu | Cpu) -> Iterator[str]:
    if isinstance(device, Cpu):
        clocks = [hz for hz in (device.base_hz, device.sustained_hz, device.boost_hz) if hz is not None]
        if device.boost_hz and clocks != sorted(clocks):
            yield "base_hz, sustained_hz and boost_hz do not rise"
        return
    if (device.tf32_tensor_flops_per_s or 0) >= (device.fp16_tensor_flops_per_s or math.inf):
        yield "tf32_tensor_flops_per_s is not below fp16_tensor_flops_per_s"
    lane_flops = device.fp32_flops_per_s / device.sm_count / device.boost_hz
    if not _LANE_FLOPS[0] <= lane_flops <= _LANE_FLOPS[1]:
        least, most = _LANE_FLOPS
        yield f"fp32_flops_per_s is {lane_flops:.3g} for an SM and cycle of boost_hz, where {least} to {most} are known"
    reads_per_s = device.memory_bytes_per_s / device.memory_bytes
    if not _MEMORY_READS_PER_S[0] <= reads_per_s <= _MEMORY_READS_PER_S[1]:
        least, most = _MEMORY_READS_PER_S
        yield f"memory_bytes_per_s reads all memory {reads_per_s:.3g} times a second, where {least} to {most} are known"


def _trusted(offer: Offer) -> list[Price]:
    return [price for price in offer.prices if not price.stale and not price.suspect]
