"""Predictions of steps that are spread over several GPUs in, how many machines and GPUs each takes out."""

import numpy as np

from advisor.records.prediction import FloatArray, IndexArray, Predictions
from advisor.records.scale import Plan


def machine_counts(predictions: Predictions, devices: IndexArray, batches: IndexArray) -> FloatArray:
    """The machines of each (device, batch), both indices; device -1 is none."""
    scaling = predictions.scaling
    if scaling is None:
        return np.ones(len(devices))
    machines = np.array([plan.machines for plan in scaling.plans], dtype=np.float64)
    return machines[scaling.plan[devices, batches]]


def plans_at(
    predictions: Predictions, devices: IndexArray, batches: IndexArray
) -> tuple[list[Plan | None], list[float | None]]:
    """How the step of each (device, batch), both indices, is spread, and how well that scales; None: it is not."""
    scaling = predictions.scaling
    if scaling is None:
        return [None] * len(devices), [None] * len(devices)
    spread = [None if plan == Plan() else plan for plan in scaling.plans]
    plans = [spread[index] for index in scaling.plan[devices, batches].tolist()]
    ratios = scaling.efficiency_ratio[devices, batches].tolist()
    return plans, [None if plan is None else ratio for plan, ratio in zip(plans, ratios, strict=True)]


def gpu_count(plan: Plan | None) -> int:
    """The GPUs of all its machines."""
    return 1 if plan is None else plan.data * plan.tensor * plan.pipeline
