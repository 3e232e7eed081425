"""Defines the predicted step time and memory of every device at every batch size, as arrays."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from advisor.records.device import CompileMode, Device, Precision
from advisor.records.scale import Plan

FloatArray: TypeAlias = NDArray[np.float64]
BoolArray: TypeAlias = NDArray[np.bool_]
IndexArray: TypeAlias = NDArray[np.intp]
NameArray: TypeAlias = NDArray[np.object_]

PARTS = (
    "forward", "block_forward", "inner_forward", "cached_forward", "backward", "block_backward", "inner_backward",
    "optimizer",
)  # fmt: skip
"""The parts of a step's time. "block": in the model's repeated blocks; "inner": between a block's norms and its
residual additions, which tensor parallelism divides; "cached": attention over a KV cache, which it divides by heads."""
RESOURCES = ("kernels", "dispatch", "transfer")
"""The resources that a GPU's step uses concurrently: the GPU for its kernels, the host for dispatch, and the link for
copies of inputs. A CPU dispatches and computes on the same cores, so all of its time counts as kernels."""
RECOMPUTED_PARTS = ("block_forward", "inner_forward")
"""The entries of `PARTS` that activation checkpointing recomputes in backward."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Predictions:
    """One step of one workload; two-dimensional arrays are (devices, batches).

    - `precisions`: the `Precision` of each step; None at all batches of a device without a unit for the requested one
      or without kernels for the step, where times and spreads are infinite and no batch fits
    - `time_sources`: the `TimeSource` of each step
    - `step_low_s`, `step_high_s`: ends of the 90 % interval
    - `log_spread`: standard deviation of log(measured / predicted)
    - `own_log_spread`: its part that is independent between devices; the rest comes from the model and is the same on
      all devices
    - `host_log_spread`: the part of the own error that comes from the host's dispatch; None if not counted
    - `bound`: index into `answer.BOUNDS`
    - `is_tight`: the peak memory may or may not fit, within its uncertainty; None if not computed
    - `loader_vcpus`: as in `answer.Quote`; None if the loader is not known
    - `measured`: this step was timed on this device; None if no step was
    - `part_ratio`: the time of each of `RESOURCES` for each of `PARTS`, relative to the step's time,
      (resources, parts, devices, batches); the busiest resource sets the step's time. None if not counted
    - `compute_ratio`, `memory_ratio`, `overhead_ratio`: shares of the step's time in which a device computes, moves
      data, and launches or runs overheads; they may overlap. None if not counted
    - `scaling`: how steps are spread over several GPUs; None if every step runs on one device
    - `tokens`: token times in LLM serving; None if the step generates no tokens
    """

    devices: tuple[Device, ...]
    precisions: NameArray
    time_sources: NameArray
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
    host_log_spread: FloatArray | None = None
    is_tight: BoolArray | None = None
    loader_vcpus: FloatArray | None = None
    measured: BoolArray | None = None
    part_ratio: FloatArray | None = None
    compute_ratio: FloatArray | None = None
    memory_ratio: FloatArray | None = None
    overhead_ratio: FloatArray | None = None
    scaling: "Scaling | None" = None
    tokens: "TokenTimes | None" = None

    def shared_log_spread(self, devices: IndexArray, batches: IndexArray) -> FloatArray:
        """Return the part of `log_spread` that is the same on all devices: the error of the model and its counts.

        Each pair of a device and a batch must have a predicted time; the spread of others is not defined.
        """
        whole, own = self.log_spread[devices, batches], self.own_log_spread[devices, batches]
        return np.sqrt(np.maximum(whole**2 - own**2, 0.0))


USES = ("compute_ratio", "memory_ratio", "overhead_ratio")
"""The fields of `Predictions` with the shares of the step's time that determine the power."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Scaling:
    """How each step is spread over the GPUs of its machines, (devices, batches); batches are global.

    - `plan`: index into `plans`
    - `efficiency_ratio`: speed-up over one GPU with the same batch, its memory taken to suffice, divided by the number
      of GPUs; in LLM serving of each copy of the model, with the copy's requests
    - `family`: number of the family of plans at each batch, (batches,), ascending; batches are the same in each family,
      which is chosen with the batch. None if there is one
    """

    plans: tuple[Plan, ...]
    plan: IndexArray
    efficiency_ratio: FloatArray
    family: IndexArray | None = None


EXACT_PARTS = 8
"""Up to so many parts of prompts, each number has its own time in `EnginePasses`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EnginePasses:
    """The passes of a replica of a served language model; arrays are (services,) unless they say otherwise.

    - `pass_s`: time of a pass, (services, `EXACT_PARTS` + 2, numbers): with 0 to `EXACT_PARTS` parts of prompts and
      with `most_parts`, at each number of `decoding` requests that get a token in it
    - `decoding`: ascending numbers of requests from 0 on, (numbers,)
    - `part_count`, `part_tokens`: parts in which a prompt is read, and the tokens of one, over those that a request
      that decodes puts into a pass
    - `most_parts`: parts in a pass without requests that decode
    - `budget_tokens`: the most tokens in a pass, over the same
    - `most_in_flight`: requests in flight, those whose prompts are being read included
    - `replica_count`: replicas on a machine
    - `serving_s`: HTTP, tokenizer and queues, in addition to the passes of the first token
    """

    pass_s: FloatArray
    decoding: FloatArray
    part_count: IndexArray
    part_tokens: FloatArray
    most_parts: IndexArray
    budget_tokens: FloatArray
    most_in_flight: IndexArray
    replica_count: IndexArray
    serving_s: FloatArray

    def of(self, services: IndexArray) -> "EnginePasses":
        """Return the passes of the services at these indices."""
        rows = {one.name: getattr(self, one.name) for one in fields(self)}
        return EnginePasses(**{name: rows[name] if name == "decoding" else rows[name][services] for name in rows})


PassesAt: TypeAlias = Callable[[IndexArray, IndexArray], EnginePasses]
"""Returns the passes on these devices at these batches, both by index: services, as simulated by a queue."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenTimes:
    """Token times of LLM serving, (devices, batches).

    - `first_s`: time to first token of a request that arrives while the others are in flight
    - `between_s`: mean time between two output tokens, including prefill of other requests
    - `pass_s`: one decode pass alone
    - `compute_bound_from`: the fewest requests in flight, of the powers of two, at which decode is compute-bound;
      infinity if never
    - `kv_cache_bytes`: of all requests in flight
    - `weight_bytes`: of one replica
    - `first_log_spread`: standard deviation of log(measured / predicted) of `first_s`; that of the step if None
    - `undrafted_between_s`: `between_s` without speculative decoding; None if nothing is drafted
    - `passes_at`: None if no engine serves the model
    - `kernels`: what each device's kernels for narrow weights and KV caches do, empty where all is in 16 bits
    """

    first_s: FloatArray
    between_s: FloatArray
    pass_s: FloatArray
    compute_bound_from: FloatArray
    kv_cache_bytes: FloatArray
    weight_bytes: FloatArray
    first_log_spread: FloatArray | None = None
    passes_at: PassesAt | None = None
    kernels: tuple[str, ...] = ()
    undrafted_between_s: FloatArray | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchor:
    """A step of the workload that was timed on one device, with its prediction.

    `step_s`, `step_low_s` and `step_high_s` come from the timings; `predicted_s`, `bound` and the spreads come from the
    prediction, as in `Predictions`.
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
    """The distinct devices of a list of offers.

    - `device_index`: offer i runs on `devices[device_index[i]]`; -1 means that it has no device
    - `problems`: `problems[i]` says why offer i has no device
    """

    devices: tuple[Device, ...]
    device_index: IndexArray
    problems: tuple[str, ...]
