"""Looks up how many machines and GPUs each predicted step uses."""

import numpy as np

from advisor.records.prediction import FloatArray, IndexArray, Predictions
from advisor.records.scale import Plan


def machine_counts(predictions: Predictions, devices: IndexArray, batches: IndexArray) -> FloatArray:
    """Return the number of machines for each pair of device and batch indices; device -1 means no device."""
    scaling = predictions.scaling
    if scaling is None:
        return np.ones(len(devices))
    machines = np.array([plan.machines for plan in scaling.plans], dtype=np.float64)
    return machines[scaling.plan[devices, batches]]


def plans_at(
    predictions: Predictions, devices: IndexArray, batches: IndexArray
) -> tuple[list[Plan | None], list[float | None]]:
    """Return the plan and the scaling efficiency for each pair of indices; None if the step runs on one GPU."""
    scaling = predictions.scaling
    if scaling is None:
        return [None] * len(devices), [None] * len(devices)
    spread = [None if plan == Plan() else plan for plan in scaling.plans]
    plans = [spread[index] for index in scaling.plan[devices, batches].tolist()]
    ratios = scaling.efficiency_ratio[devices, batches].tolist()
    return plans, [None if plan is None else ratio for plan, ratio in zip(plans, ratios, strict=True)]


def gpu_count(plan: Plan | None) -> int:
    """Return the number of GPUs on all machines of the plan."""
    return 1 if plan is None else plan.data * plan.tensor * plan.pipeline
