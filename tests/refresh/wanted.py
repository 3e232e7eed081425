"""Builds `Wanted` records in one short call."""

from typing import Any

from advisor.records.price import ListedType, Wanted


def listed(instance: str, **changes: Any) -> ListedType:
    values: dict[str, Any] = {"vcpus": 4, "memory_bytes": 16 * 2**30, "gpu": None, "gpu_count": 0, "tier": "neocloud"}
    return ListedType(instance=instance, **(values | changes))


def wanted(*types: ListedType, regions: tuple[str, ...] = ("global",), **changes: Any) -> Wanted:
    """Every type in every region; a GPU is known by its id in any case."""
    values: dict[str, Any] = {
        "types": {one.instance: one for one in types},
        "regions": regions,
        "rows": frozenset((one.instance, region) for one in types for region in regions),
        "etags": {},
        "gpu_id": lambda name, memory_gib: name.lower().replace(" ", "-"),
    }
    return Wanted(**(values | changes))
