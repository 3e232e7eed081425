"""Computes the power of GPUs from the shares of a step's time that compute, memory traffic and overheads take."""

import numpy as np

from advisor.records.energy import GpuPower
from advisor.records.prediction import FloatArray


def load_ratio(
    power: GpuPower, *, compute_ratio: FloatArray, memory_ratio: FloatArray, overhead_ratio: FloatArray
) -> FloatArray:
    """Return the power over the limit; the arguments are shares of the step's time, which may overlap."""
    load: FloatArray = (
        power.compute_ratio * compute_ratio + power.memory_ratio * memory_ratio + power.overhead_ratio * overhead_ratio
    )
    return np.minimum(power.idle_ratio + load, power.most_ratio)
