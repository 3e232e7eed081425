"""Lists the coefficients of a fit, each with its start, its bounds and the width of its prior."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np

from advisor.fit.sample import Sample
from advisor.records.device import Device, DeviceKind, Efficiency, Prior
from advisor.records.prediction import BoolArray, FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One number to fit, in logarithm."""

    name: tuple[str, ...]
    start: float
    low: float
    high: float
    log_sigma: float
    """Standard deviation of the prior around `start`, in log."""
    families: frozenset[str]
    """The kernel families whose time it changes; none if it changes only the host's time."""


COMPUTING = (
    "matmul", "conv", "conv_backward", "conv_grouped", "conv_grouped_backward", "conv_depthwise",
    "conv_depthwise_backward", "attention", "attention_backward", "rnn",
)  # fmt: skip
"""Families that compute throughput can limit; the others only stream data."""
STREAMING_COMPUTE = "streaming_compute_ratio"
"""Share of the vector unit's peak that streaming families reach on a CPU: loads and stores take most of an addition's
cycles, and exp() takes many. On a GPU the compute of these families is hidden behind memory."""
GRADIENT_OF: Mapping[str, str] = {
    "conv_backward": "conv", "conv_grouped_backward": "conv_grouped", "conv_depthwise_backward": "conv_depthwise",
    "attention_backward": "attention",
}  # fmt: skip
"""The forward family of each gradient family: its products have the same size, so their rates are proportional."""

_FITTED_FIELDS = [field for field in fields(Efficiency) if "priors" in field.metadata]
BY_PRECISION = tuple(field.name for field in _FITTED_FIELDS if field.metadata["by_precision"])
"""Fields of `Efficiency` with a coefficient for each precision; the others have one for all."""
COPY = "copy_s_per_byte"
"""Time of copies from pageable memory, which some measurements contain."""
HOST = ("dispatch_s", "backward_dispatch_s", "compiled_dispatch_s", COPY)
_OTHER_PRIORS: Mapping[DeviceKind, Mapping[str, Prior]] = {
    "gpu": {COPY: Prior(1 / 6e9, 1 / 16e9, 1 / 2e9)},  # over PCIe 3.0 x16
    "cpu": {STREAMING_COMPUTE: Prior(0.1, 0.02, 1.0, 0.3)},
}
"""Coefficients without a field in `Efficiency`."""
_COMPUTE = Prior(0.75, 0.05, 1.0)
_DEPTHWISE = Prior(0.2, 0.01, 1.0)
_RECURRENT = Prior(0.75, 0.05, 1.0, 0.15)
"""Recurrent layers compute products like those of linear layers. Few measured nets have them, and these ran compiled on
a single CPU."""
_GRADIENT = Prior(0.75, 0.03, 2.0)
"""Ratio of a gradient's rate to the forward rate, for all precisions."""
_GRADIENT_AT_PRECISION = Prior(1.0, 0.2, 5.0, 0.15)
"""Correction of that ratio at one precision."""
_MEMORY = Prior(0.9, 0.15, 1.1)
GENERATION = ("generation_compute", "generation_memory")
"""Coefficients of each generation."""
_GENERATION = Prior(1.0, 0.6, 1.6, 0.06)
_OTHER_ARCHITECTURE = Prior(1.0, 0.4, 1.6, 0.3)
"""The prior for GPUs without tensor cores or of another vendor: their libraries differ, so they say little about
today's NVIDIA GPUs."""
_DEVICE = Prior(1.0, 0.5, 2.0, 0.06)
_HOST = Prior(1.0, 0.3, 3.0, 0.3)


def coefficients_of(sample: Sample, *, kind: DeviceKind) -> tuple[Coefficient, ...]:
    """Return all coefficients that the sample can determine."""
    families = sample.kernels.families
    everything = frozenset(families)
    products = frozenset(families) & frozenset(COMPUTING)
    precisions = sorted({step.precision for step in sample.steps})
    priors: dict[str, Prior] = {
        **{field.name: field.metadata["priors"][kind] for field in _FITTED_FIELDS if kind in field.metadata["priors"]},
        **_OTHER_PRIORS[kind],
    }
    ramps = {name: priors.pop(name) for name in BY_PRECISION}
    found = [
        _coefficient((name,), prior, families=frozenset() if name in HOST else everything)
        for name, prior in priors.items()
    ]
    for precision in precisions:
        found += [_coefficient((name, precision), prior, families=products) for name, prior in ramps.items()]
        present = _families_at(sample, precision)
        found += [
            _coefficient(("compute_ratio", precision, family), _compute_prior(family), families=_moved_by(family))
            for family in families
            if family in COMPUTING and family in present
        ]
    found += [
        _coefficient(("gradient_ratio", family), _GRADIENT, families=frozenset({family}))
        for family in families
        if family in GRADIENT_OF
    ]
    found += [_coefficient(("memory_ratio", family), _MEMORY, families=frozenset({family})) for family in families]
    usual = usual_generations(sample.devices)
    for generation in sorted({device.generation for device in sample.devices}):
        prior = _GENERATION if generation in usual else _OTHER_ARCHITECTURE
        members = [index for index, device in enumerate(sample.devices) if device.generation == generation]
        found += _pair("generation", generation, prior, families=_families_on(sample, members))
    for index, device in enumerate(sample.devices):
        found += _pair("device", device.id, _DEVICE, families=_families_on(sample, [index]))
        launched = _families_on(sample, [index]) if kind == "cpu" else frozenset[str]()
        found.append(_coefficient(("host", device.id), _HOST, families=launched))
    return tuple(found)


def _compute_prior(family: str) -> Prior:
    if family in GRADIENT_OF:
        return _GRADIENT_AT_PRECISION
    if family == "rnn":
        return _RECURRENT
    return _DEPTHWISE if "depthwise" in family else _COMPUTE


def _moved_by(family: str) -> frozenset[str]:
    """Return the families that the rate of one changes: itself and its gradients."""
    return frozenset({family, *(gradient for gradient, forward in GRADIENT_OF.items() if forward == family)})


def usual_generations(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return all CPU generations, and NVIDIA's with tensor cores, whose libraries a new GPU will most likely run."""
    return tuple(sorted({one.generation for one in devices if one.kind == "cpu" or _has_tensor_cores(one)}))


def unlike_vendors(devices: Sequence[Device]) -> Mapping[str, tuple[str, ...]]:
    """Return the vendors without any usual generation, with their generations.

    An unmeasured generation of such a vendor is predicted like the vendor's other generations.
    """
    usual = usual_generations(devices)
    by_vendor: dict[str, set[str]] = {}
    for device in devices:
        by_vendor.setdefault(device.vendor, set()).add(device.generation)
    return {vendor: tuple(sorted(names)) for vendor, names in by_vendor.items() if not names & set(usual)}


def _has_tensor_cores(device: Device) -> bool:
    """Return whether the device is NVIDIA's and its fp16 rate exceeds two values per 32-bit lane."""
    peaks = device.peak_flops_per_s
    return device.vendor == "NVIDIA" and peaks.get("fp16", 0.0) > 2.01 * peaks["vector"]


def _pair(level: str, name: str, prior: Prior, *, families: frozenset[str]) -> list[Coefficient]:
    return [_coefficient((f"{level}_{what}", name), prior, families=families) for what in ("compute", "memory")]


def _coefficient(name: tuple[str, ...], prior: Prior, *, families: frozenset[str]) -> Coefficient:
    return Coefficient(
        name=name, start=prior.start, low=prior.low, high=prior.high, log_sigma=prior.log_sigma, families=families
    )


def _families_at(sample: Sample, precision: str) -> frozenset[str]:
    steps = np.array([step.precision == precision for step in sample.steps])
    return _families_of(sample, steps[sample.step])


def _families_on(sample: Sample, devices: Sequence[int]) -> frozenset[str]:
    return _families_of(sample, np.isin(sample.device, devices))


def _families_of(sample: Sample, kernels: BoolArray) -> frozenset[str]:
    return frozenset(sample.kernels.families[index] for index in np.unique(sample.kernels.family[kernels]))


def starts(coefficients: Sequence[Coefficient]) -> FloatArray:
    """Return the logarithms of the priors' centers."""
    return np.log([coefficient.start for coefficient in coefficients])
