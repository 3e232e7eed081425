"""Steps of a few toy operators on two devices, and a fit of their bandwidth shares."""

import numpy as np
from shipped_fit import ShippedFit, coefficients_of

from advisor.fit.sample import MeasuredStep, Sample
from advisor.predict.lowering import lower
from advisor.predict.roofline import step_times
from advisor.predict.row_work import count_rows
from advisor.records.device import Device, Efficiency
from tests.predict.toys import device, efficiency, family, operand, row, workload

DEVICES = (
    device(id="slow", name="Slow", generation="First", memory_bytes_per_s=1e11),
    device(id="fast", name="Fast", generation="First", memory_bytes_per_s=4e11),
)
TRUE = efficiency(
    families={"*": family(), "pointwise": family(memory_ratio=0.5), "norm": family(memory_ratio=0.8)}, launch_s=4e-6
)
FREE_OF_PRIOR = {"launch_s", "memory_ratio"}


def steps_of(truth: Efficiency = TRUE) -> list[MeasuredStep]:
    """Steps of one streaming operator, from 0.4 to 400 MB, timed as `truth` says."""
    steps = []
    for name in ("pointwise", "norm"):
        op = {"pointwise": "aten.relu", "norm": "aten.native_layer_norm"}[name]
        images = operand((0.0, 1.0), 1000)
        toy = workload(row(op, (images,), (images,), family=name))
        for batch in (50.0, 500.0, 5_000.0, 50_000.0):
            counts = count_rows(toy, batches=np.array([batch]), width="full")
            kernels = lower(counts, kind="gpu", precision="fp32")
            for one in DEVICES:
                times = step_times(kernels, kind="gpu", devices=[one], efficiencies=[truth])
                steps.append(measured(kernels, one, float(times.step_s[0, 0])))
    return steps


def measured(kernels: object, one: Device, measured_s: float) -> MeasuredStep:
    return MeasuredStep(
        kernels=kernels,  # type: ignore[arg-type]
        device=one,
        precision="fp32",
        group=("toy", one.id),
        measured_s=measured_s,
    )


def fit_of(sample: Sample) -> ShippedFit:
    coefficients = [one for one in coefficients_of(sample, kind="gpu") if one.name[0] in FREE_OF_PRIOR]
    return ShippedFit(sample, coefficients, template=efficiency(families={}))
