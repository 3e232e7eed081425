"""Defines the plausible range of each quantity, to find mistakes of unit or of digits.

Field names end in their units, so one line covers every field with that unit. Most ranges exceed today's hardware by a
factor of ten or more, so that future machines are not refused.
"""

from dataclasses import dataclass
from functools import cache


@dataclass(frozen=True, slots=True)
class Range:
    """The range from `least` to `most`, with its reason. 0 is also allowed if it means "none"."""

    least: float
    most: float
    reason: str


_RANGE_BY_NAME = {
    "sm_count": Range(1, 4096, "the largest GPU of 2026 has 304"),
    "threads_per_core": Range(1, 8, "IBM's POWER has 8"),
    "tile_rows": Range(1, 4096, "kernels have tiles of 16 to 256"),
    "tile_columns": Range(1, 4096, "kernels have tiles of 16 to 256"),
    "n": Range(1, 1e9, "it counts measurements"),
    "median_ape": Range(1e-9, 1e6, "an error by a factor of a million is not a fit"),
    "lifetime_years": Range(0.1, 50, "hardware is replaced within this time"),
    "electricity_usd_per_kwh": Range(1e-3, 10, "grids sell it at 0.02 to 0.50"),
    "usd": Range(1e-7, 1e3, "it is the value of one unit of the currency in dollars"),
    "gco2_per_kwh": Range(1, 2000, "wind and water have 10, lignite 1,200"),
    "pue": Range(1, 5, "data centres have 1.05 to 2"),
    "year": Range(1990, 2200, "it is the year of the figure"),
    "wait_minutes": Range(1e-2, 525_600, "525,600 minutes are a year"),
}
_RANGE_BY_UNIT = {
    "flops_per_s": Range(1e9, 1e17, "a core has 1e10, the largest GPU of 2026 3e15"),
    "bytes_per_s": Range(1e7, 1e14, "Ethernet has 1e8, the fastest memory of 2026 8e12"),
    "bytes": Range(2**10, 2**50, "a core's cache has 2^18, the largest machine 2^45"),
    "hz": Range(1e8, 1e10, "GPUs run at 0.8 to 3 GHz, CPUs at 1.5 to 6"),
    "w": Range(1, 1e6, "a GPU takes 60 to 1,400, a rack 150,000"),
    "w_per_core": Range(1e-2, 1e3, "a core takes 0.3 to 12 with its share of the server"),
    "dispatch_s": Range(1e-9, 1e-1, "an operator call takes 1e-6 to 1e-4"),
    "launch_s": Range(1e-9, 1e-1, "a kernel's launch takes 1e-6 to 1e-4"),
    "join_s": Range(1e-9, 1e-1, "cores wait for each other for 1e-6"),
    "page_s": Range(1e-9, 1e-3, "a page fault takes 1e-6"),
    "library_s": Range(1e-9, 1e-1, "a library looks up its kernel in 1e-5"),
    "s": Range(1e-9, 3.2e7, "3.2e7 seconds are a year"),
    "ratio": Range(1e-5, 100, "shares are fitted between 0.002 and 5"),
    "ratios": Range(1e-5, 1e5, "operators take 0.02 to 2 times the prediction"),
    "speedup": Range(0.1, 10, "they are fitted between 1 and 2.25"),
    "exponent": Range(1e-6, 10, "they are fitted between 0.01 and 1.2"),
    "ramp": Range(1e-3, 1e4, "they are fitted between 0.5 and 64"),
    "spread": Range(1e-9, 5, "e^5 is an error by a factor of 150"),
    "tokens": Range(1, 1e6, "engines read up to 32,768 tokens in a pass"),
    "kernels": Range(0.1, 10, "one or two kernels quantize the input of a product"),
    "flops": Range(1, 1e5, "quantizing a number takes as long as 10 to 500 FLOP"),
    "seqs": Range(1, 1e6, "engines run up to 1,024 requests at once"),
    "nodes": Range(1, 64, "the largest machine has 32 NUMA nodes"),
    "count": Range(1, 1e6, "no machine has a million of anything"),
    "per_socket": Range(1, 4096, "the largest CPU of 2026 has 192"),
    "vcpus": Range(1, 1e6, "the largest machine has 1,920"),
    "cores": Range(0.1, 1e5, "a shared core has a part of one, the largest machine 960"),
    "instances": Range(1, 1e6, "it is the number that may run at once"),
    "gpus": Range(1, 1e6, "the largest machine has 72"),
    "usd_per_tb": Range(1e-2, 1e4, "clouds take 10 to 120"),
    "percent": Range(1e-3, 1e3, "it is a percentage"),
    "usd": Range(1e-2, 1e8, "a rack of 72 GPUs costs some 4e6"),
    "usd_per_hour": Range(1e-4, 1e5, "the cheapest machine costs 0.004, a rack of 72 GPUs some 500"),
    "usd_per_month": Range(1e-2, 1e8, "a rack of 72 GPUs costs some 4e6"),
}


@cache  # every name is a field or a known key
def range_of(name: str) -> Range:
    """Return the range of a quantity by its name, or else by its unit; raise KeyError if neither is known."""
    if name in _RANGE_BY_NAME:
        return _RANGE_BY_NAME[name]
    padded = f"_{name}_"
    units = [unit for unit in _RANGE_BY_UNIT if f"_{unit}_" in padded]
    if not units:
        raise KeyError(f"no range for {name}: add its unit to {__name__}")
    return _RANGE_BY_UNIT[max(units, key=len)]
