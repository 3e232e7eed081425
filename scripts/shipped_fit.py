"""Lists the coefficients of the shipped efficiencies with their priors, and fits them: those of `make fit`."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace

import numpy as np

from advisor.fit.coefficients import BY_PRECISION, COMPUTING, Coefficient
from advisor.fit.sample import Sample
from advisor.fit.solve import Fit
from advisor.records.device import ANY, Device, DeviceKind, Efficiency, Prior
from advisor.records.prediction import FloatArray

STREAMING_COMPUTE = "streaming_compute_ratio"
"""Share of the vector unit's peak that streaming families reach on a CPU: loads and stores take most of an addition's
cycles, and exp() takes many. On a GPU the compute of these families is hidden behind memory."""
GRADIENT_OF: Mapping[str, str] = {
    "conv_backward": "conv", "conv_grouped_backward": "conv_grouped", "conv_depthwise_backward": "conv_depthwise",
    "attention_backward": "attention",
}  # fmt: skip
"""The forward family of each gradient family: its products have the same size, so their rates are proportional."""
_ELEMENTWISE = (
    "pointwise", "cast", "creation", "reduction", "random", "loss", "scan", "gather", "embedding", "sort", "fft",
    "linalg",
)  # fmt: skip
_NORMS = ("norm", "norm_backward", "softmax")
_WEIGHT_GRADIENTS = ("conv_backward", "conv_grouped_backward")
TIED: Mapping[DeviceKind, Mapping[str, Mapping[str, str]]] = {
    "gpu": {
        "memory_ratio": {
            **dict.fromkeys(set(COMPUTING) - {*_WEIGHT_GRADIENTS}, "products"),
            **dict.fromkeys(_WEIGHT_GRADIENTS, "conv_backward"),
            **dict.fromkeys(
                (*_ELEMENTWISE, "norm_running", "norm_generated", "pool", "pool_backward", "optimizer"), "elementwise"
            ),
            **dict.fromkeys(_NORMS, "norm"),
        },
        "compute_ratio": {"rnn": "matmul"},
        **{ramp: {"tf32": "matrix units", "half": "matrix units"} for ramp in ("edge_ramp", "depth_ramp")},
    },
    "cpu": {
        "memory_ratio": {
            **dict.fromkeys(set(COMPUTING) - {*_WEIGHT_GRADIENTS}, "products"),
            **dict.fromkeys(_WEIGHT_GRADIENTS, "conv_backward"),
            **dict.fromkeys((*_ELEMENTWISE, "norm_running"), "elementwise"),
            **dict.fromkeys(_NORMS, "norm"),
            **dict.fromkeys(("interpolate", "pool", "pool_backward", "optimizer"), "copy"),
        },
        "compute_ratio": {"rnn": "matmul", "conv_grouped": "conv"},
        "gradient_ratio": dict.fromkeys(GRADIENT_OF, "conv_backward"),
        "depth_ramp": {"fp32": ANY, "half": ANY},
    },
}
"""The coefficient that several families or precisions share, by kind, name and family or precision, because their
kernels access memory or compute alike. All others have their own."""

COPY = "copy_s_per_byte"
"""Time of copies from pageable memory, which some measurements contain."""
_OTHER_PRIORS: Mapping[DeviceKind, Mapping[str, Prior]] = {
    "gpu": {COPY: Prior(1 / 6e9, 1 / 16e9, 1 / 2e9)},  # over PCIe 3.0 x16
    "cpu": {STREAMING_COMPUTE: Prior(0.1, 0.02, 1.0, 0.3)},
}
"""Coefficients without a field in `Efficiency`."""
_COMPUTE = Prior(0.75, 0.05, 1.0)
_DEPTHWISE = Prior(0.2, 0.01, 1.0)
_GRADIENT = Prior(0.75, 0.03, 2.0)
"""Ratio of a gradient's rate to the forward rate, for all precisions."""
_AT_PEAK: Mapping[DeviceKind, frozenset[tuple[str, ...]]] = {
    "gpu": frozenset({("compute_ratio", "conv_depthwise")}),
    "cpu": frozenset({("memory_ratio", "elementwise")}),
}
"""Ratios that stay 1, because the other resource limits these kernels: a fit puts them at their upper bound."""
_UNIT = Prior(1.0, 0.5, 1.6, 0.2)
"""Achieved share of peak of a precision's unit relative to fp32: tensor cores are harder to feed than vector units."""
_MEMORY = Prior(0.9, 0.15, 1.3)
GENERATION = ("generation_compute", "generation_memory")
"""Coefficients of each generation."""
DEVICE = ("device_compute", "device_memory")
"""Coefficients of each device."""
MEMORY_TYPE = "memory_type"
"""Bandwidth of a type of memory, relative to what its datasheet and `Device.streaming_ratio` say."""
_MEMORY_TYPE = Prior(1.0, 0.6, 1.6, 0.12)
_GENERATION = Prior(1.0, 0.6, 1.6, 0.12)
_GPU_GENERATION_MEMORY = Prior(1.0, 0.6, 1.6, 0.06)
"""GPUs of one generation differ less in their bandwidth than types of memory do."""
_CPU_GENERATION_MEMORY = Prior(1.0, 0.6, 1.2, 0.12)
"""Elementwise kernels run at this share of the bandwidth that was measured or is usual for the CPU, hardly above it."""
_OTHER_ARCHITECTURE = Prior(1.0, 0.4, 1.6, 0.3)
"""The prior for GPUs without tensor cores or of another vendor: their libraries differ, so they say little about
today's NVIDIA GPUs."""
_DEVICE = Prior(1.0, 0.5, 2.0, 0.05)
_HOST = Prior(1.0, 0.3, 3.0, 0.3)


def coefficients_of(sample: Sample, *, kind: DeviceKind) -> tuple[Coefficient, ...]:
    """Return all coefficients that the sample can determine."""
    families = sample.kernels.families
    precisions = sorted({step.precision for step in sample.steps})
    priors: dict[tuple[str, ...], Prior] = {}
    fitted = {field.name: field.metadata["priors"] for field in fields(Efficiency) if "priors" in field.metadata}
    of_kind = {name: of_kinds[kind] for name, of_kinds in fitted.items() if kind in of_kinds}
    ramps = {name: of_kind.pop(name) for name in BY_PRECISION if name in of_kind}
    priors |= {(name,): prior for name, prior in {**of_kind, **_OTHER_PRIORS[kind]}.items()}
    for precision in precisions:
        priors |= {shared_name((name, precision), kind): prior for name, prior in ramps.items()}
    priors |= {("unit_ratio", precision): _UNIT for precision in precisions if precision != "fp32"}
    priors |= {
        shared_name(("compute_ratio", family), kind): _DEPTHWISE if "depthwise" in family else _COMPUTE
        for family in families
        if family in COMPUTING and family not in GRADIENT_OF
    }
    priors |= {shared_name(("gradient_ratio", family), kind): _GRADIENT for family in families if family in GRADIENT_OF}
    priors |= {shared_name(("memory_ratio", family), kind): _MEMORY for family in families}
    usual = relatives_of(ANY, sample.devices)
    for generation in sorted({device.generation for device in sample.devices}):
        prior = _GENERATION if generation in usual else _OTHER_ARCHITECTURE
        priors |= {(name, generation): prior for name in GENERATION}
        if kind == "cpu":
            priors["generation_memory", generation] = _CPU_GENERATION_MEMORY
        elif generation in usual:
            priors["generation_memory", generation] = _GPU_GENERATION_MEMORY
    priors |= {(MEMORY_TYPE, name): _MEMORY_TYPE for name in memory_types_of(sample.devices)}
    for device in sample.devices:
        priors |= {(name, device.id): _DEVICE for name in DEVICE}
        priors["host", device.id] = _HOST
    return tuple(Coefficient(name=name, prior=prior) for name, prior in priors.items() if name not in _AT_PEAK[kind])


def memory_types_of(devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the types of memory of the devices."""
    return tuple(sorted({device.memory_type for device in devices if device.memory_type is not None}))


def shared_name(name: tuple[str, ...], kind: DeviceKind) -> tuple[str, ...]:
    """Return the coefficient that several families or precisions share, by the name of one of them."""
    first, *keys = name
    return (first, *(TIED[kind].get(first, {}).get(key, key) for key in keys))


def relatives_of(vendor: str, devices: Sequence[Device]) -> tuple[str, ...]:
    """Return the generations whose mean offset an unmeasured generation of this vendor most likely has.

    For CPUs these are all generations, for NVIDIA those with tensor cores, whose libraries a new GPU most likely runs,
    and for AMD its own.
    """
    usual = {one.generation for one in devices if one.kind == "cpu" or _has_tensor_cores(one)}
    own = {one.generation for one in devices if one.vendor == vendor}
    return tuple(sorted(usual if not own or own & usual else own))


def _has_tensor_cores(device: Device) -> bool:
    """Return whether the device is NVIDIA's and its fp16 rate exceeds two values per 32-bit lane."""
    peaks = device.peak_flops_per_s
    return device.vendor == "NVIDIA" and peaks.get("fp16", 0.0) > 2.01 * peaks["vector"]


class ShippedFit(Fit):
    """A fit of many devices: their generations, hosts and own ratios have coefficients, and related families share."""

    keyed: Mapping[str, tuple[str, ...]] = {
        **Fit.keyed,
        "compute_ratio": ("family",),
        "unit_ratio": ("precision",),
        "gradient_ratio": ("family",),
        "host": ("device",),
        **dict.fromkeys(GENERATION, ("generation",)),
        **dict.fromkeys(DEVICE, ("device",)),
        MEMORY_TYPE: ("memory type",),
        **dict.fromkeys((COPY, STREAMING_COMPUTE), ()),
    }

    def __init__(self, sample: Sample, coefficients: Sequence[Coefficient], *, template: Efficiency) -> None:
        super().__init__(sample, coefficients, template=template)
        self._keys["family"] |= set(GRADIENT_OF.values())
        self._keys["device"] |= {device.id for device in sample.devices}
        self._keys["generation"] |= {device.generation for device in sample.devices}
        self._keys["memory type"] |= set(memory_types_of(sample.devices))

    def value(self, logs: FloatArray, *name: str) -> float:
        """Return the value of a coefficient, also of one that the family or precision shares with others."""
        shared = shared_name(name, self.sample.devices[0].kind)
        return super().value(logs, *(shared if shared in self._index and name not in self._index else name))

    def efficiency(self, logs: FloatArray, precision: str) -> Efficiency:
        """Return all fitted coefficients for this precision, with those of each type of memory."""
        names = memory_types_of(self.sample.devices)
        ratios = {name: self.value(logs, MEMORY_TYPE, name) for name in names}
        return replace(super().efficiency(logs, precision), memory_type_ratios=ratios)

    def mean(self, logs: FloatArray, name: str, keys: Sequence[str]) -> float:
        """Return the geometric mean of one coefficient over several keys, such as generations; 1 for no keys."""
        return float(np.exp(np.mean([np.log(self.value(logs, name, key)) for key in keys] or [0.0])))

    def with_value(self, logs: FloatArray, value: float, *name: str) -> FloatArray:
        """Return the coefficients with one value replaced; unchanged if it is not fitted."""
        return np.where([one.name == name for one in self.coefficients], np.log(value), logs)

    def host_shares(self, logs: FloatArray) -> FloatArray:
        """Return the dispatch overhead of every step relative to its predicted time."""
        shares: FloatArray = self._dispatch_s(logs) / self.seconds(logs)
        return shares

    def at_bounds(self, logs: FloatArray) -> tuple[tuple[str, ...], ...]:
        """Return the names of the coefficients that lie at one of their bounds."""
        ends = np.log([(one.prior.low, one.prior.high) for one in self.coefficients])
        is_there = np.abs(ends - logs[:, np.newaxis]).min(axis=1) < 1e-6
        return tuple(one.name for one, there in zip(self.coefficients, is_there, strict=True) if there)

    def compute_ratio(self, logs: FloatArray, precision: str, family: str) -> float:
        """Return a family's share of the compute peak, relative to its forward family's for a gradient.

        It is the same for all streaming families. Depthwise convolutions run on vector units at any precision.
        """
        if family not in COMPUTING:
            return self.value(logs, STREAMING_COMPUTE)
        forward = GRADIENT_OF.get(family, family)
        ratio = self.value(logs, "compute_ratio", forward) * self.value(logs, "gradient_ratio", family)
        return ratio if "depthwise" in family else ratio * self.value(logs, "unit_ratio", precision)

    def device(self, logs: FloatArray, index: int) -> Device:
        """Return the device with the coefficients of its generation and its own; a CPU is also its own host."""
        device = self.sample.devices[index]
        own_host_ratio = self.value(logs, "host", device.id) if device.kind == "cpu" else 1.0
        return replace(
            device,
            host_time_ratio=device.host_time_ratio * own_host_ratio,
            sustained_compute_ratio=self.value(logs, "generation_compute", device.generation)
            * self.value(logs, "device_compute", device.id),
            sustained_memory_ratio=self.value(logs, "generation_memory", device.generation)
            * self.value(logs, "device_memory", device.id),
        )

    def _total(self, logs: FloatArray, family_s: Mapping[str, FloatArray]) -> FloatArray:
        """Return the time of every step, with the copy of its inputs to a GPU where the measured time has it."""
        total = super()._total(logs, family_s)
        if self.sample.devices[0].kind == "gpu":
            total = total + self.sample.copied_bytes * self._host_ratios(logs) * self.value(logs, COPY)
        return total

    def _host_ratio(self, logs: FloatArray, device: Device) -> float:
        return self.value(logs, "host", device.id) * device.host_time_ratio


def file_name(efficiency: Efficiency) -> str:
    """Return a name like `gpu-ampere-half.yaml`; "any" stands for all, the vendor's name for all its generations."""
    generation = efficiency.vendor if efficiency.generation == "*" else efficiency.generation
    parts = (efficiency.kind, generation, efficiency.precision)
    return (
        "-".join("any" if part == "*" else part.lower().replace(" ", "").replace(".", "") for part in parts) + ".yaml"
    )
