"""Finds an engine's kernels for weights and KV caches in narrow formats on a device."""

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

from advisor.predict.weights import stored_bits
from advisor.records.device import Device
from advisor.records.engine import Engine, NarrowKernel
from advisor.records.generation import Generation, WeightFormat

KernelKind: TypeAlias = Literal["weight_kernels", "cache_kernels"]
"""The fields of `Engine` with kernels."""


def narrow_kernel(device: Device, kernels: Mapping[str, NarrowKernel], stored_in: str) -> NarrowKernel | None:
    """Return the first of the kernels for numbers in this format that the device runs; None if it runs none."""
    kind = device.generation if device.kind == "gpu" else device.isa
    return next(
        (
            one
            for one in kernels.values()
            if stored_in in one.formats
            and kind in one.on
            and (one.unit == "half" or one.unit in device.peak_flops_per_s)
        ),
        None,
    )


def narrow_kernels(device: Device, engine: Engine, generation: Generation) -> list[NarrowKernel | None]:
    """Return the kernels of the formats that were asked for, None for those that the device lacks."""
    asked = ((engine.weight_kernels, generation.weights), (engine.cache_kernels, generation.kv_cache))
    return [narrow_kernel(device, kernels, one) for kernels, one in asked if one not in ("auto", "bf16")]


def formats_of(engine: Engine, kind: KernelKind) -> list[Any]:
    """Return the formats for which an engine has kernels of this kind, in the order of its file."""
    return list(dict.fromkeys(name for one in getattr(engine, kind).values() for name in one.formats))


def narrowest(engine: Engine, device: Device) -> WeightFormat:
    """Return the format with the fewest whole bits for which the engine has kernels on the device, or "auto"."""
    formats: list[WeightFormat] = formats_of(engine, "weight_kernels")
    runs = [one for one in formats if narrow_kernel(device, engine.weight_kernels, one) is not None]
    return min(runs, key=lambda one: int(stored_bits(one)), default="auto")
