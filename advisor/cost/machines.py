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


def plan_of(predictions: Predictions, device: int, batch: int) -> tuple[Plan | None, float | None]:
    """How the step of one device at one batch is spread, and how well that scales; None: it is not."""
    scaling = predictions.scaling
    plan = Plan() if scaling is None else scaling.plans[scaling.plan[device, batch]]
    if scaling is None or plan == Plan():
        return None, None
    return plan, float(scaling.efficiency_ratio[device, batch])


def gpu_count(plan: Plan | None) -> int:
    """The GPUs of all its machines."""
    return 1 if plan is None else plan.data * plan.tensor * plan.pipeline
