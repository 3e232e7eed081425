"""Which fitted efficiency holds for a device at a precision."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from advisor.records.device import ANY, Device, Efficiency, FamilyEfficiency, Precision
from advisor.records.prediction import IndexArray

VECTOR_ATTENTION = "attention_of_one"
"""Attention of one token, whose keys and values pass by once: as other kernels that stream."""
QUANTIZED_PRODUCT = "matmul_quantized"
"""A product whose weights are stored narrower than it computes."""
BY_TOKEN = frozenset({"rms_norm", "rotary", "gate"})
"""Kernels of engines that give each token a block of threads."""
_HALF_UNITS = frozenset({"amp-fp16", "amp-bf16", "bf16", "fp16"})
_STANDS_FOR: Mapping[str, Sequence[str]] = {
    "conv_grouped_backward": ("conv_grouped", "conv_backward", "conv"),
    "conv_depthwise_backward": ("conv_depthwise",),
    "conv_grouped": ("conv",),
    "conv_backward": ("conv",),
    "conv_depthwise": (),
    "norm_running": ("norm",),
    "norm_backward": ("norm",),
    "pool_backward": ("pool",),
    "attention_backward": ("attention", "matmul"),
    "attention": ("matmul",),
    VECTOR_ATTENTION: (),
    "rms_norm": ("norm",),
    "rotary": ("pointwise",),
    "gate": ("pointwise",),
    "rnn": ("matmul",),
    "linalg": ("matmul",),
    "reduction": ("norm",),
    "loss": ("softmax", "norm"),
    "softmax": ("norm",),
    "interpolate": ("copy",),
    "creation": ("copy",),
    "embedding": ("gather",),
}
"""The measured families that stand in for one that was not measured, nearest first; at last the entry "*"."""


def known_families() -> frozenset[str]:
    """The families of kernels that have a name of their own here, beside those of operators."""
    stand_ins = (name for names in _STANDS_FOR.values() for name in names)
    return frozenset({*_STANDS_FOR, *stand_ins, *BY_TOKEN, VECTOR_ATTENTION, QUANTIZED_PRODUCT})


def precision_class(precision: Precision) -> str:
    """What an efficiency file calls it: all that runs on 16-bit units is "half"."""
    return "half" if precision in _HALF_UNITS else precision


def efficiency_of(device: Device, *, precision: Precision, efficiencies: Sequence[Efficiency]) -> Efficiency:
    """The most specific fit for the device: its own calibration at this precision, else same precision before any, then
    same generation, then same vendor.

    Raises ValueError when there is no fallback for the kind of device: the shipped profiles hold one.
    """

    def specificity(efficiency: Efficiency) -> tuple[bool, ...] | None:
        wanted = (device.vendor, device.generation, precision_class(precision), device.id)
        found = (efficiency.vendor, efficiency.generation, efficiency.precision, efficiency.device)
        if efficiency.kind != device.kind or not all(b in (a, ANY) for a, b in zip(wanted, found, strict=True)):
            return None
        if efficiency.core_count not in (None, device.core_count):
            return None
        names = (efficiency.device, efficiency.precision, efficiency.generation, efficiency.vendor)
        return tuple(name != ANY for name in names)

    fitting = [(rank, efficiency) for efficiency in efficiencies if (rank := specificity(efficiency)) is not None]
    if not fitting:
        raise ValueError(f"no efficiency for a {device.kind} of {device.vendor} {device.generation} at {precision}")
    return max(fitting, key=lambda pair: pair[0])[1]


def family_efficiencies(efficiency: Efficiency, *, families: Iterable[str]) -> list[FamilyEfficiency]:
    """The entry of each family; a family without one takes that of the nearest which stands in for it."""
    return [_entry(efficiency, family) for family in families]


def distinct_efficiencies(efficiencies: Sequence[Efficiency]) -> tuple[list[Efficiency], IndexArray]:
    """Each of them once, and which of these every one is: hundreds of devices share some twenty."""
    found = {id(efficiency): efficiency for efficiency in efficiencies}
    places = {key: place for place, key in enumerate(found)}
    return list(found.values()), np.array([places[id(efficiency)] for efficiency in efficiencies], dtype=np.intp)


def _entry(efficiency: Efficiency, family: str) -> FamilyEfficiency:
    entries = efficiency.families
    if family == QUANTIZED_PRODUCT:  # none was measured: as fast as others, and as uncertain as a family unknown
        return replace(_entry(efficiency, "matmul"), log_spread=entries[ANY].log_spread)
    return next(entries[name] for name in (family, *_STANDS_FOR.get(family, ()), ANY) if name in entries)
