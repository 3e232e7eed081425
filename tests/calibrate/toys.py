"""A machine, a catalog and timed operators with round numbers."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.calibrate.in_force import key_of, targets
from advisor.catalog.overlay import load_catalog
from advisor.predict.efficiency import efficiency_of
from advisor.predict.lowering import lower
from advisor.predict.precision import width_of
from advisor.predict.roofline import step_times
from advisor.predict.row_work import count_rows
from advisor.records.calibration import Calibration, TimedOperator, Timings
from advisor.records.device import Device, Efficiency, Precision
from advisor.records.machine import LocalGpu, Machine
from advisor.records.price import Catalog
from advisor.records.workload import Workload
from advisor.workload.file import workload_to_json
from tests.predict.toys import efficiency, family, operand, row, workload

EPYC = Machine(
    cpu_name="AMD EPYC 7763 64-Core Processor",
    cpu_signature="AuthenticAMD 25 1",
    isa=("avx2",),
    core_count=4.0,
    thread_count=4,
    base_hz=None,
    boost_hz=None,
    l2_bytes=None,
    l3_bytes=None,
    memory_bytes=16e9,
    is_virtual=False,
    gpus=(),
    notes=(),
)
T4 = LocalGpu(id="cuda:0", name="Tesla T4", memory_bytes=15e9, driver="550.54", power_limit_w=70.0)
WITH_T4 = replace(EPYC, gpus=(T4,))


def local(machine: Machine, name: str = "cpu") -> Device:
    """The device of that name on the machine, by the shipped profiles."""
    found = next(one.device for one in targets(machine, load_catalog()) if one.id == name)
    assert found is not None
    return found


def calibration(machine: Machine = EPYC, *, efficiencies: Iterable[Efficiency] = (), **changes: Any) -> Calibration:
    """One of the machine's CPU, made now."""
    first = targets(machine, load_catalog())[0]
    assert first.device is not None
    own = efficiency(
        kind="cpu",
        device=first.device.id,
        core_count=first.device.core_count,
        vendor=first.device.vendor,
        generation=first.device.generation,
        precision="fp32",
        dispatch_s=2e-6,
        backward_dispatch_s=3e-6,
        launch_s=1e-6,
        device_log_spread=0.1,
        fitted_on=(first.device.id,),
    )
    values: dict[str, Any] = {
        "key": key_of(first, first.device, machine, thread_count=4),
        "at": "2026-11-21T12:00:00+00:00",
        "n": 80,
        "planned_count": 82,
        "median_ape": 0.1,
        "efficiencies": tuple(efficiencies) or (own,),
    }
    return Calibration(**(values | changes))


def programs() -> dict[str, Workload]:
    """Copies, norms and products of several sizes, by name."""
    found = {}
    for size in (10_000, 1_000_000, 30_000_000):
        images = operand(size)
        found[f"relu {size}"] = workload(row("aten.relu", (images,), (images,), family="pointwise", count=4))
        found[f"norm {size}"] = workload(row("aten.native_layer_norm", (images,), (images,), family="norm", count=4))
    for side in (64, 256, 1024, 2048):
        a = operand(side, side)
        found[f"mm {side}"] = workload(row("aten.mm", (a, a), (a,), family="matmul", count=4))
    return found


def timed_by(
    truth: Efficiency, device: Device, *, precision: Precision = "fp32", iqr_ratio: float = 0.02
) -> tuple[TimedOperator, ...]:
    """The programs, each timed exactly as `truth` says."""
    found = []
    for name, program in programs().items():
        counts = count_rows(program, batches=np.array([1.0]), width=width_of(precision))
        kernels = lower(counts, kind=device.kind, precision=precision)
        times = step_times(kernels, kind=device.kind, devices=[device], efficiencies=[truth])
        found.append(
            TimedOperator(
                name=name,
                precision=precision,
                batch=1,
                workload=workload_to_json(program),
                step_s=float(times.step_s[0, 0]),
                iqr_ratio=iqr_ratio,
            )
        )
    return tuple(found)


def timings(operators: Iterable[TimedOperator], *, others_cpu_count: float = 0.0) -> Timings:
    """The timings of these operators, on a quiet machine unless other processes kept CPUs busy."""
    found = tuple(operators)
    return Timings(operators=found, planned_count=len(found), others_cpu_count=others_cpu_count)


def shipped(device: Device, precision: Precision = "fp32") -> Efficiency:
    """Return the device as the shipped profiles describe it."""
    return efficiency_of(device, precision=precision, efficiencies=load_catalog().efficiencies)


def catalog() -> Catalog:
    """The shipped catalog, with a start of calibrations that knows the programs: they take as long in a net."""
    found = load_catalog()
    known = dict.fromkeys((f"{name}, batch 1" for name in programs()), 1.0)
    efficiencies = (
        replace(one, operator_ratios={**one.operator_ratios, **known}) if one.operator_ratios else one
        for one in found.efficiencies
    )
    return replace(found, efficiencies=tuple(efficiencies))


def slower(base: Efficiency, ratio: float) -> Efficiency:
    """A device whose products and copies reach only that share of what `base` says."""
    names = ("matmul", "pointwise", "norm")
    changed = {
        name: family(
            compute_ratio=base.families[name].compute_ratio * (ratio if name == "matmul" else 1.0),
            memory_ratio=base.families[name].memory_ratio * ratio,
        )
        for name in names
    }
    return replace(base, families={**base.families, **changed})
