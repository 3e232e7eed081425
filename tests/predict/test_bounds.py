"""No prediction is faster than the hardware: each family of kernels, on each device that ships, at each precision."""

from typing import get_args

import numpy as np
import pytest

from advisor.catalog.overlay import load_catalog
from advisor.devices.named_device import named_device
from advisor.errors import UsageError
from advisor.ops.registry import formulas
from advisor.predict.efficiency import efficiency_of
from advisor.predict.kernel_time import UNITS, kernel_times
from advisor.predict.precision import resolve_precision
from advisor.predict.rates import used_unit
from advisor.predict.roofline import rates_by_kernel
from advisor.records.device import Device, DeviceKind
from advisor.records.options import PrecisionChoice
from tests.predict.toys import KNOWN_FAMILIES, kernels

CATALOG = load_catalog()
FAMILIES = tuple(sorted({*KNOWN_FAMILIES, *(one.family for one in formulas())}))
FLOPS, DATA_BYTES = 1e12, 1e13
"""Far more bytes than any cache keeps."""
MOST_CLOCK_RATIO = 1.25
"""The highest sustained over rated clock of GeForce and TITAN cards (`clock_ratio`)."""
MOST_CAUGHT_RATIO = 1.2
"""Allowance for reads that a large L2 serves: an RTX 4090 streams 14 % above its rating (experiments.md)."""


def shipped(kind: DeviceKind) -> list[Device]:
    found = []
    for name in CATALOG.gpus if kind == "gpu" else CATALOG.cpus:
        try:
            found.append(named_device(name, CATALOG)[1])
        except UsageError:  # its profile says too little of it
            continue
    return found


@pytest.mark.parametrize("choice", get_args(PrecisionChoice))
@pytest.mark.parametrize("kind", get_args(DeviceKind))
def test_no_kernel_exceeds_the_peak_or_the_bandwidth(kind: DeviceKind, choice: PrecisionChoice) -> None:
    for device in shipped(kind):
        precision = resolve_precision(choice, device)
        if precision is None:
            continue
        units = [index for index, unit in enumerate(UNITS) if used_unit(device, unit) in device.peak_flops_per_s]
        count = len(FAMILIES) * len(units)
        toy = kernels(
            flops=[[FLOPS]] * count + [[0.0]] * count,
            data_bytes=[[0.0]] * count + [[DATA_BYTES]] * count,
            families=FAMILIES,
            family=np.tile(np.arange(len(FAMILIES)), 2 * len(units)),
            unit=np.tile(np.repeat(units, len(FAMILIES)), 2),
        )
        efficiency = efficiency_of(device, precision=precision, efficiencies=CATALOG.efficiencies)
        rates = rates_by_kernel(toy, devices=[device], efficiencies=[efficiency])
        times = kernel_times(toy, rates).total_s[0, :, 0]
        clock_ratio = MOST_CLOCK_RATIO if device.exceeds_rated_clock else 1.0
        peaks = [device.peak_flops_per_s[used_unit(device, UNITS[index])] for index in toy.unit[:count]]
        measured_ratio = max(1.0, device.sustained_compute_ratio)  # where the datasheet understates
        fastest_s = FLOPS / (np.array(peaks) * clock_ratio * measured_ratio)
        assert (times[:count] >= fastest_s * (1 - 1e-9)).all(), device.id
        bandwidth = device.memory_bytes_per_s * max(1.0, device.sustained_memory_ratio) * MOST_CAUGHT_RATIO
        assert (times[count:] >= DATA_BYTES / bandwidth * (1 - 1e-9)).all(), device.id
