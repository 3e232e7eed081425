"""Finds an engine's kernels for weights and KV caches in narrow formats on a device."""

from typing import Any, Literal, TypeAlias

from advisor.records.device import Device
from advisor.records.engine import Engine, NarrowKernel, narrow_kernel
from advisor.records.generation import Generation, WeightFormat

KernelKind: TypeAlias = Literal["weight_kernels", "cache_kernels"]
"""The fields of `Engine` with kernels."""


def narrow_kernels(device: Device, engine: Engine, generation: Generation) -> list[NarrowKernel]:
    """Return the kernels that the device has for the formats that were asked for."""
    asked = ((engine.weight_kernels, generation.weights), (engine.cache_kernels, generation.kv_cache))
    found = (narrow_kernel(device, kernels, stored_in) for kernels, stored_in in asked)
    return [one for one in found if one is not None]


def formats_of(engine: Engine, kind: KernelKind) -> list[Any]:
    """Return the formats for which an engine has kernels of this kind, in the order of its file."""
    return list(dict.fromkeys(name for one in getattr(engine, kind).values() for name in one.formats))


def runnable(engine: Engine, device: Device) -> list[WeightFormat]:
    """Return the formats of weights for which the engine has kernels on the device."""
    formats: list[WeightFormat] = formats_of(engine, "weight_kernels")
    return [one for one in formats if narrow_kernel(device, engine.weight_kernels, one) is not None]
