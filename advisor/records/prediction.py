"""Step times and memory of every device at every batch size, as arrays."""

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.records.device import CompileMode, Device, Precision, TimeSource
from advisor.records.scale import Plan

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
IndexArray: TypeAlias = NDArray[np.intp]

PARTS = (
    "forward", "block_forward", "inner_forward", "cached_forward", "backward", "block_backward", "inner_backward",
    "optimizer",
)  # fmt: skip
"""Of a step's time. "block": in the repeated blocks of the model; "inner": between a block's norms and its residual
additions, which is what tensor parallelism divides; "cached": attention to a KV cache, whose heads it hands out."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """One step of one workload; two-dimensional arrays are (devices, batches).

    `step_low_s` and `step_high_s` are the ends of the 90 % interval. `log_spread` is one standard deviation of
    log(measured / predicted), `own_log_spread` that of the part which is independent from device to device: the rest
    comes from the model and is the same on all. `bound` indexes `answer.BOUNDS`. A device with precision None has no
    unit for the one asked for, or no kernels for the step: its times and spreads are infinite and nothing fits.
    `measured`: this very step was timed on this very device; None: none was.
    `is_tight`: whether the peak fits lies within the spread of what is not known exactly; None: not known where.
    `loader_vcpus` are as in `answer.Quote`; None: nothing is known of the loader.
    `part_ratio`, (parts, devices, batches): the share that each of `PARTS` has of the device's time; None: not counted.
    `scaling`: how steps are spread over several GPUs; None: every one runs on one device.
    `tokens`: of a language model in service; None: the step generates none.
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
    is_tight: BoolArray | None = None
    loader_vcpus: FloatArray | None = None
    measured: BoolArray | None = None
    part_ratio: FloatArray | None = None
    scaling: "Scaling | None" = None
    tokens: "TokenTimes | None" = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaling:
    """How each step is spread over the GPUs of its machines, (devices, batches); batches are those of all.

    `plan` indexes `plans`. `efficiency_ratio`: how long steps would take if GPUs never waited for each other and
    divided all work, over how long they take.
    """

    plans: tuple[Plan, ...]
    plan: IndexArray
    efficiency_ratio: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenTimes:
    """Of each step of a generation, (devices, batches).

    `first_s`: until the first token of a request that finds the others in flight; `between_s`: the mean time between
    two tokens of an answer, in which prompts of others are read too; `pass_s`: one pass of decode by itself.
    `compute_bound_from`: the fewest requests in flight, of the powers of two, with which a pass is bound by computing;
    infinity: never. `kv_cache_bytes` are of all requests, `weight_bytes` of one copy of the model.
    """

    first_s: FloatArray
    between_s: FloatArray
    pass_s: FloatArray
    compute_bound_from: FloatArray
    kv_cache_bytes: FloatArray
    weight_bytes: FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A step of the workload that was timed on one device, and what was predicted for it there.

    Bound, ends and spreads are as in `Predictions`: the ends of the timings, the others of the prediction.
    """

    device: Device
    precision: Precision
    batch: int
    step_s: float
    step_low_s: float
    step_high_s: float
    predicted_s: float
    bound: int
    log_spread: float
    own_log_spread: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fleet:
    """The distinct devices behind a list of offers: offer i runs on `devices[device_index[i]]`, on none where -1.

    `problems[i]` says why offer i has no device.
    """

    devices: tuple[Device, ...]
    device_index: IndexArray
    problems: tuple[str, ...]
