"""Step times and memory of every device at every batch size, as arrays."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.records.device import CompileMode, Device, Precision, TimeSource

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
IndexArray: TypeAlias = NDArray[np.intp]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """One step of one workload; two-dimensional arrays are (devices, batches).

    `step_low_s` and `step_high_s` are the ends of the 90 % interval. `log_spread` is one standard deviation of
    log(measured / predicted), `own_log_spread` that of the part which is independent from device to device: the rest
    comes from the model and is the same on all. `bound` indexes `answer.BOUNDS`. A device with precision None has no
    unit for the one asked for, or no kernels for the step: its times and spreads are infinite and nothing fits.
    """

    devices: tuple[Device, ...]
    precisions: tuple[Precision | None, ...]
    time_sources: tuple[TimeSource, ...]
    compile: CompileMode
    batches: IndexArray
    step_s: FloatArray
    step_low_s: FloatArray
    step_high_s: FloatArray
    log_spread: FloatArray
    own_log_spread: FloatArray
    bound: IndexArray
    peak_memory_bytes: FloatArray
    fits: BoolArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """The distinct devices behind a list of offers: offer i runs on `devices[device_index[i]]`, on none where -1.

    `problems[i]` says why offer i has no device.
    """

    devices: tuple[Device, ...]
    device_index: IndexArray
    problems: tuple[str, ...]
