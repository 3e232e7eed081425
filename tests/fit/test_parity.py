"""A fit and a prediction with the same coefficients give every step the same time, whatever kernels it has."""

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from fit_kind import template_of
from shipped_fit import ShippedFit, coefficients_of

from advisor.fit.coefficients import starts
from advisor.fit.sample import MeasuredStep, sample_of
from advisor.ops.registry import formulas
from advisor.predict.efficiency import BY_TOKEN, precision_class
from advisor.predict.kernel_time import TERMS, UNITS, Kernels
from advisor.predict.roofline import step_times
from advisor.records.device import Device, DeviceKind, Precision
from tests.predict.toys import KNOWN_FAMILIES, device, kernels

FAMILIES = sorted({*KNOWN_FAMILIES, *(one.family for one in formulas())})
DISPATCHED = ("dispatches", "backward_dispatches", "compiled_dispatches", "library_launches")
"""The counts of host operations in a step."""
PEAKS = {unit: 1e12 * (1 + index) for index, unit in enumerate(UNITS)}


def a_device(kind: DeviceKind, name: str, **changes: Any) -> Device:
    """Unlike any other in all that rates depend on."""
    return device(
        kind=kind,
        id=name,
        name=name,
        vendor="NVIDIA",
        generation=name,
        peak_flops_per_s=PEAKS,
        cache_bytes=4e7,
        power_ratio={"fp32": 0.8, "fp16": 0.7, "bf16": 0.6, "tf32": 0.5},
        streaming_ratio=0.9,
        memory_type=None if kind == "cpu" else "GDDR6X" if name == "small" else "HBM3",
        exceeds_rated_clock=True,
        has_narrow_tensor_cores=True,
        has_matrix_unit=kind == "cpu",
        issue_contention=0.5,
        convolves_by_fft=name == "small" and kind == "gpu",
        host_to_device_bytes_per_s=None,
        **changes,
    )


def one_kernel(family: str, unit: int, dispatched: str, random: np.random.Generator) -> Kernels:
    """All figures drawn at random, so that each of them shows in the time."""
    drawn: dict[str, Any] = {}
    for name, term in TERMS.items():
        if name in DISPATCHED:
            drawn[name] = np.array([3.0 if name == dispatched else 0.0])
        elif name in ("calls", "fft_speedup"):
            drawn[name] = random.uniform(1, 3, 1)
        elif term.of.startswith("step"):
            drawn[name] = random.uniform(1, 1e9, 1)
        elif term.of == "call" and name not in ("flops", "data_bytes", "above_cores", "most_cores"):
            largest = 1e9 if name.endswith(("bytes", "direct_flops")) else 300
            drawn[name] = random.uniform(1, largest, (1, 1))
    figures = {"flops": random.uniform(1e9, 1e11, (1, 1)), "data_bytes": random.uniform(1e7, 1e9, (1, 1))}
    return kernels(
        **figures,
        **drawn,
        families=(family,),
        unit=np.array([unit]),
        can_winograd=random.uniform(size=1) < 0.5,
    )


def steps_of(family: str, kind: DeviceKind) -> list[MeasuredStep]:
    """On two devices, in every phase and at every precision, on every unit."""
    random = np.random.default_rng(len(family))
    devices = [a_device(kind, "small"), a_device(kind, "large", core_count=60, memory_bytes_per_s=9e11)]
    return [
        MeasuredStep(
            kernels=one_kernel(family, unit, dispatched, random),
            device=one,
            precision=precision,
            group=("toy", one.id),
            measured_s=1.0,
            copied_bytes=1e6,
        )
        for one in devices
        for precision in sorted({precision_class(precision) for precision in get_args(Precision)})
        for unit in range(len(UNITS))
        for dispatched in DISPATCHED
    ]


@pytest.mark.parametrize("kind", get_args(DeviceKind))
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_is_timed_in_a_fit_as_in_a_prediction(family: str, kind: DeviceKind) -> None:
    steps = [replace(step, copied_bytes=0.0) for step in steps_of(family, kind)]
    sample = sample_of(steps)
    fit = ShippedFit(sample, coefficients_of(sample, kind=kind), template=template_of(kind))
    random = np.random.default_rng(len(family))
    logs = np.array([random.uniform(np.log(one.prior.low), np.log(one.prior.high)) for one in fit.coefficients])
    if kind == "gpu":  # whose hosts no file knows
        logs = np.where([one.name[0] == "host" for one in fit.coefficients], 0.0, logs)
    predicted_s = [
        step_times(
            step.kernels,
            kind=kind,
            devices=[fit.device(logs, sample.devices.index(step.device))],
            efficiencies=[fit.efficiency(logs, step.precision)],
        ).step_s[0, 0]
        for step in steps
    ]
    assert fit.seconds(logs) == pytest.approx(predicted_s, rel=1e-9)


@pytest.mark.parametrize("kind", get_args(DeviceKind))
def test_every_coefficient_of_a_fit_changes_steps(kind: DeviceKind) -> None:
    """From its start to one of its bounds."""
    changing: set[tuple[str, ...]] = set()
    endless = {name: np.array([[1e9]]) for name in ("groups", "m", "n", "k")}
    steps = [step for family in ("conv", "conv_backward") for step in steps_of(family, kind)]
    steps += [replace(step, kernels=replace(step.kernels, **endless)) for step in steps_of("norm", kind)]
    sample = sample_of(steps)
    fit = ShippedFit(sample, coefficients_of(sample, kind=kind), template=template_of(kind))
    before = starts(fit.coefficients)
    step_s = fit.seconds(before)
    for one in fit.coefficients:
        for bound in {one.prior.low, one.prior.high} - {one.prior.start}:
            if (fit.seconds(fit.with_value(before, bound, *one.name)) != step_s).any():
                changing.add(one.name)
    assert changing == {one.name for one in fit.coefficients}


def test_every_kernel_of_an_engine_is_among_the_families() -> None:
    assert set(FAMILIES) >= BY_TOKEN | {"conv_depthwise_backward", "attention_of_one", "matmul_quantized", "view"}
