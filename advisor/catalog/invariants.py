"""Finds implausible prices and device values, in the built-in files, refreshed files and the user's own files."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from datetime import date
from statistics import median

from advisor.catalog.fields import unit_in_file
from advisor.records.device import Cpu, Gpu
from advisor.records.gpu_architecture import ARCHITECTURES
from advisor.records.price import Catalog, Offer, Price, PriceKind

_LEAST_USD_PER_HOUR = 0.002
_MOST_USD_PER_HOUR = 500.0
"""From the smallest VM to a rack of 72 GPUs; a price outside is in a wrong unit, such as cents or per term."""
_LEAST_COMMITMENT_RATIO = 0.15
"""Relative to the on-demand price; the largest published three-year discounts are near 75 %."""
_LEAST_RATIO_OF_GPU_PRICE = 1 / 3
"""Relative to the median price per GPU of the same provider, region and GPU; correct rows go down to 0.44."""
_MOST_RATIO_TO_OURS = 5.0
"""Relative to the built-in price of the offer; contracts take off up to 75 %, and prices have doubled over years."""
_MOST_RATIO_TO_OTHERS = 4.0
"""Beyond the lowest and highest price that any provider lists per GPU or vCPU, which differ by up to 38x."""
_MOST_FIGURE_RATIO = 2.0
"""From this ratio to the built-in value of the same device on; two versions of a card differ by up to 1.5x."""
_LANE_FLOPS = (64, 1024)
"""fp32 FLOP per SM and cycle: GPUs since 2014 have 128 to 384, two per lane."""
_MEMORY_READS_PER_S = (1, 500)
"""How often per second a GPU can read its whole memory: 11 to 71 times since 2014."""
_SHOWN_COUNT = 5


def broken_invariants(offers: Sequence[Offer], *, today: date) -> tuple[str, ...]:
    """Return one sentence per implausible price; prices marked as stale or suspect are skipped."""
    found: list[str] = []
    last_day = today.isoformat()
    for offer in offers:
        found += [f"{offer.id}: {problem}" for problem in (*_out_of_range(offer), *_out_of_order(offer))]
        found += [
            f"{offer.id}: {price.kind} is dated {price.date}, after today"
            for price in _trusted(offer)
            if price.date > last_day
        ]
    return (*found, *_per_gpu_prices_of_machines(offers))


def broken_device_invariants(devices: Iterable[Gpu | Cpu]) -> tuple[str, ...]:
    """Return one sentence per value that contradicts another value of the same device."""
    return tuple(f"{device.id}: {problem}" for device in devices for problem in _device_problems(device))


def with_doubts(catalog: Catalog, *, ours: Sequence[Offer], our_devices: Mapping[str, Gpu | Cpu]) -> Catalog:
    """Return the catalog with doubts about offers and devices that differ from ours, and their price dates."""
    known = {offer.id: offer for offer in ours}
    others = _prices_of_others(ours)
    found = []
    changed = [offer for offer in catalog.offers if offer != known.get(offer.id)]
    for offer in changed:
        # The order of price kinds is not checked, because a user's discount may reverse it.
        found += [f"{offer.id}: {problem}" for problem in _out_of_range(offer)]
        found += [f"{offer.id}: {problem}" for problem in _dear_commitments(offer)]
        found += [f"{offer.id}: {problem}" for problem in _far_prices(offer, ours=known.get(offer.id), others=others)]
    devices: list[Gpu | Cpu] = [*catalog.gpus.values(), *catalog.cpus.values()]
    own = [device for device in devices if device != our_devices.get(device.id)]
    for device in own:
        found += [
            f"{device.id}: {problem}" for problem in _implausible_figures(device, ours=our_devices.get(device.id))
        ]
        found += [f"{device.id}: {problem}" for problem in _unused_power_limit(device)]
    dates = {price.date: offer.id for offer in changed for price in _trusted(offer)}
    return replace(catalog, doubts=(*found, *broken_device_invariants(own)), own_dates=dates)


def catalog_warnings(catalog: Catalog, *, today: date) -> tuple[str, ...]:
    """Return the warnings about implausible values and prices; if there are many, only the first."""
    more = len(catalog.doubts) - _SHOWN_COUNT
    rest = (f"{more:,} more implausible values: `advise prices validate FILE` lists them",) if more > 0 else ()
    return (
        *(f"implausible: {doubt}" for doubt in catalog.doubts[:_SHOWN_COUNT]),
        *rest,
        *date_warnings(catalog, today=today),
    )


def date_warnings(catalog: Catalog, *, today: date) -> tuple[str, ...]:
    """Return a warning if the user's own prices or exchange rates are dated in the future."""
    rates = ((rate.date, rate.currency) for rate in catalog.exchange_rates)
    future = sorted((day, what) for day, what in (*catalog.own_dates.items(), *rates) if day > today.isoformat())
    listed = ", ".join(f"{day} ({what})" for day, what in future)
    return (f"prices or exchange rates are dated after today, {today}: {listed}",) if future else ()


def _out_of_range(offer: Offer) -> Iterator[str]:
    for price in _trusted(offer):
        least = 0.0 if price.kind == "owned" else _LEAST_USD_PER_HOUR  # electricity may be free
        if not least <= price.usd_per_hour <= _MOST_USD_PER_HOUR:  # also rejects NaN
            yield f"{price.kind} of {price.usd_per_hour} dollars per hour"


def _dear_commitments(offer: Offer) -> Iterator[str]:
    usd = {price.kind: price.usd_per_hour for price in _trusted(offer) if price.basis == "own_rate"}
    for kind, usd_per_hour in usd.items():
        if kind.startswith("commit") and usd_per_hour > usd.get("on_demand", math.inf):
            yield f"{kind} of {usd_per_hour:g} dollars per hour is above on-demand of {usd['on_demand']:g}"


def _out_of_order(offer: Offer) -> Iterator[str]:
    usd = {price.kind: price.usd_per_hour for price in _trusted(offer)}
    on_demand = usd.get("on_demand")
    if on_demand is None:
        return
    for kind, usd_per_hour in usd.items():
        if kind != "on_demand" and usd_per_hour > on_demand:
            yield f"{kind} of {usd_per_hour} is above on-demand of {on_demand}"
        if kind.startswith("commit") and usd_per_hour < _LEAST_COMMITMENT_RATIO * on_demand:
            yield f"{kind} of {usd_per_hour} is less than {_LEAST_COMMITMENT_RATIO:.0%} of on-demand of {on_demand}"


def _per_gpu_prices_of_machines(offers: Iterable[Offer]) -> Iterator[str]:
    """Yield machines with several GPUs that cost a fraction of the usual price per GPU."""
    per_gpu: dict[tuple[str, str, str | None, str], list[tuple[float, Offer]]] = defaultdict(list)
    for offer in offers:
        for price in _trusted(offer) if offer.gpu_count else ():
            key = (offer.provider, offer.region, offer.gpu, price.kind)
            per_gpu[key].append((price.usd_per_hour / offer.gpu_count, offer))
    for (_, _, _, kind), prices in per_gpu.items():
        middle = median(usd for usd, _ in prices)
        for usd, offer in prices:
            if offer.gpu_count > 1 and usd < _LEAST_RATIO_OF_GPU_PRICE * middle:
                yield f"{offer.id}: {kind} of {usd:.3f} for each of {offer.gpu_count} GPUs, but {middle:.3f} is usual"


_Others = Mapping[tuple[str | None, PriceKind], tuple[float, float]]
"""The lowest and highest price per GPU or vCPU, by GPU (None for machines without) and kind of price."""


def _prices_of_others(offers: Iterable[Offer]) -> _Others:
    found: dict[tuple[str | None, PriceKind], list[float]] = defaultdict(list)
    for offer in offers:
        for price in _trusted(offer):
            if (units := _units_of(offer)) is not None:
                found[offer.gpu, price.kind].append(price.usd_per_hour / units)
    return {key: (min(usd), max(usd)) for key, usd in found.items()}


def _units_of(offer: Offer) -> int | None:
    """Return the number of GPUs, or of vCPUs for a machine without GPU, to compare prices per unit."""
    return offer.gpu_count if offer.gpu else offer.vcpus


def _far_prices(offer: Offer, *, ours: Offer | None, others: _Others) -> Iterator[str]:
    """Yield prices far from the built-in price of the offer, or else from all prices of the same GPU or of vCPUs."""
    our_usd = {} if ours is None else {price.kind: price.usd_per_hour for price in _trusted(ours)}
    units = _units_of(offer)
    for price in _trusted(offer):
        usd, kind = price.usd_per_hour, price.kind
        if kind in our_usd:
            if not 1 / _MOST_RATIO_TO_OURS <= usd / our_usd[kind] <= _MOST_RATIO_TO_OURS:
                yield f"{kind} of {usd:g} dollars per hour, but the built-in price is {our_usd[kind]:g}"
        elif units and (offer.gpu, kind) in others:
            least, most = others[offer.gpu, kind]
            if not least / _MOST_RATIO_TO_OTHERS <= usd / units <= most * _MOST_RATIO_TO_OTHERS:
                unit = offer.gpu or "vCPU"
                yield f"{kind} of {usd / units:g} dollars per hour and {unit}, but others list {least:g} to {most:g}"


def _implausible_figures(device: Gpu | Cpu, *, ours: Gpu | Cpu | None) -> Iterator[str]:
    if ours is None or type(ours) is not type(device):
        return
    for field in fields(device):
        figure, our_figure = getattr(device, field.name), getattr(ours, field.name)
        are_numbers = isinstance(figure, (int, float)) and isinstance(our_figure, (int, float))
        if are_numbers and not 1 / _MOST_FIGURE_RATIO < figure / our_figure < _MOST_FIGURE_RATIO:
            key, factor = unit_in_file(field.name, figure)
            yield f"{key} of {figure / factor:g}, but the built-in profile has {our_figure / factor:g}"


def _unused_power_limit(device: Gpu | Cpu) -> Iterator[str]:
    """Yield why no prediction uses the GPU's `tdp_w`: it needs the energy of a FLOP, by compute capability."""
    if isinstance(device, Cpu) or device.vendor != "NVIDIA" or device.tdp_w is None:
        return
    architecture = ARCHITECTURES.get(device.compute_capability or "")
    if architecture is None or architecture.joule_per_flop is None:
        known = ", ".join(name for name, one in ARCHITECTURES.items() if one.joule_per_flop)
        yield f"compute_capability is {device.compute_capability}, but the effect of tdp_w is known only for {known}"


def _device_problems(device: Gpu | Cpu) -> Iterator[str]:
    if isinstance(device, Cpu):
        clocks = [hz for hz in (device.base_hz, device.sustained_hz, device.boost_hz) if hz is not None]
        if device.boost_hz and clocks != sorted(clocks):
            yield "the base, sustained and boost clocks are not in increasing order"
        if device.l3_bytes and not device.cores_per_socket:
            yield "cores_per_socket is missing, so each core is assumed to have the usual L3 of its generation"
        return
    if device.stack is not None:  # no GPU: the ratios of GPUs' figures do not hold
        return
    if (device.tf32_tensor_flops_per_s or 0) >= (device.fp16_tensor_flops_per_s or math.inf):
        yield "tf32_tensor_tflops is not below fp16_tensor_tflops"
    lane_flops = device.fp32_flops_per_s / device.sm_count / device.boost_hz
    if not _LANE_FLOPS[0] <= lane_flops <= _LANE_FLOPS[1]:
        least, most = _LANE_FLOPS
        yield f"fp32_tflops is {lane_flops:.3g} FLOP per SM and cycle of the boost clock, known are {least} to {most}"
    reads_per_s = device.memory_bytes_per_s / device.memory_bytes
    if not _MEMORY_READS_PER_S[0] <= reads_per_s <= _MEMORY_READS_PER_S[1]:
        least, most = _MEMORY_READS_PER_S
        yield f"memory_gb_per_s reads all memory {reads_per_s:.3g} times per second, but known are {least} to {most}"


def _trusted(offer: Offer) -> list[Price]:
    return [price for price in offer.prices if not price.stale and not price.suspect]
