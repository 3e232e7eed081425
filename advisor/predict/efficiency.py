"""Selects the fitted efficiency that applies to a device at a precision."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter

import numpy as np

from advisor.predict.precision import HALF_UNITS
from advisor.records.device import ANY, Device, Efficiency, FamilyEfficiency, Precision
from advisor.records.prediction import IndexArray

VECTOR_ATTENTION = "attention_of_one"
"""Attention of one query token: a bandwidth-bound kernel that reads keys and values once."""
QUANTIZED_PRODUCT = "matmul_quantized"
"""A matmul whose weights are stored in fewer bits than it computes with."""
BY_TOKEN = frozenset({"rms_norm", "rotary", "gate"})
"""Kernels of inference engines that assign one thread block to each token."""
_SCOPE = attrgetter("device", "precision", "generation", "vendor")
"""Returns the fields that limit where an efficiency is valid, the most specific first; "*" is no limit."""
_STAND_INS: Mapping[str, Sequence[str]] = {
    "conv_grouped_backward": ("conv_grouped", "conv_backward", "conv"),
    "conv_depthwise_backward": ("conv_depthwise",),
    "conv_grouped": ("conv",),
    "conv_backward": ("conv",),
    "conv_depthwise": (),
    "norm_running": ("norm",),
    "norm_generated": ("norm",),
    "norm_backward": ("norm",),
    "pool_backward": ("pool",),
    "attention_backward": ("attention", "matmul"),
    "attention": ("matmul",),
    VECTOR_ATTENTION: (),
    "rms_norm": ("norm",),
    "cast": ("pointwise",),
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
    "fft": (),
    "sort": (),
    "quantized": (),
}
"""The measured families that replace a family without measurements, nearest first; the entry "*" comes last."""


def precision_class(precision: Precision) -> str:
    """Return the precision's name in efficiency files: "half" on 16-bit units, "tf32" wherever TF32 is allowed."""
    return "half" if precision in HALF_UNITS else "tf32" if precision == "cudnn-tf32" else precision


def efficiency_of(device: Device, *, precision: Precision, efficiencies: Sequence[Efficiency]) -> Efficiency:
    """Return the most specific fit for the device: its own calibration, else the same precision, generation, vendor.

    The criteria count in this order. Raises ValueError if even the general fallback for the kind of device is missing;
    the shipped profiles have one.
    """
    own = (device.id, precision_class(precision), device.generation, device.vendor)

    def fits(efficiency: Efficiency) -> bool:
        is_valid = efficiency.kind == device.kind and efficiency.core_count in (None, device.core_count)
        return is_valid and all(name in (mine, ANY) for name, mine in zip(_SCOPE(efficiency), own, strict=True))

    fitting = [efficiency for efficiency in efficiencies if fits(efficiency)]
    if not fitting:
        raise ValueError(f"no efficiency for a {device.kind} of {device.vendor} {device.generation} at {precision}")
    return max(fitting, key=lambda efficiency: [name != ANY for name in _SCOPE(efficiency)])


def family_efficiency(efficiency: Efficiency, family: str) -> FamilyEfficiency:
    """Return the entry of a family, or of its nearest replacement if the family has none."""
    entries = efficiency.families
    if family == QUANTIZED_PRODUCT:  # not measured: assumed as fast as other matmuls, with an unknown family's spread
        return replace(family_efficiency(efficiency, "matmul"), log_spread=entries[ANY].log_spread)
    return next(entries[name] for name in (family, *_STAND_INS.get(family, ()), ANY) if name in entries)


def distinct_efficiencies(efficiencies: Sequence[Efficiency]) -> tuple[list[Efficiency], IndexArray]:
    """Return the distinct efficiencies and, for each input, its index among them.

    Hundreds of devices share about twenty efficiencies.
    """
    found = {id(efficiency): efficiency for efficiency in efficiencies}
    places = {key: place for place, key in enumerate(found)}
    return list(found.values()), np.array([places[id(efficiency)] for efficiency in efficiencies], dtype=np.intp)
