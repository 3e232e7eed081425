"""How a step runs on several GPUs, and what links them."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:  # the command line's help reads this file, and is to be there at once
    from advisor.records.prediction import FloatArray

Sharding = Literal["none", "zero1", "zero2", "zero3"]
Rate: TypeAlias = "float | FloatArray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The same step, spread over `machines` x GPUs: `data` x `tensor` x `pipeline` of them in all.

    Tensor and pipeline parallelism divide the model inside a machine; `data` are the groups that do, over all machines.
    `sharding` is over the data-parallel GPUs, as ZeRO counts: 1 the optimizer's state, 2 the gradients too, 3 the
    parameters too (FSDP); "none" is DDP. `accumulate`: the passes in which a GPU's batch runs, one after the other,
    before the optimizer does; of a pipeline, those that follow each other through it. `checkpoint_activations`:
    backward computes again what forward did inside the model's repeated blocks.
    """

    machines: int = 1
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    sharding: Sharding = "none"
    accumulate: int = 1
    checkpoint_activations: bool = False


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Link:
    """What one GPU sends to the next: after `latency_s`, at `bytes_per_s` in each direction.

    Of the network between machines, the rate is that of a whole machine. Where every pair of GPUs has a link of its
    own, one sends no more than `peer_bytes_per_s` to each. All may be arrays, of several fabrics alike.
    """

    latency_s: Rate
    bytes_per_s: Rate
    peer_bytes_per_s: Rate = math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fabric:
    """What links `gpu_count` GPUs of one machine, and `machines` of these; None: there is but one."""

    gpu_count: int
    inside: Link
    machines: int = 1
    between: Link | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreading:
    """Over what a step may be spread. None: whatever serves best.

    `gpus`: exactly so many of a machine; `max_gpus`: no more than that. `max_machines`: as many as that of one type;
    `machines`: exactly so many of them.
    """

    gpus: int | None = None
    max_gpus: int | None = None
    max_machines: int = 1
    machines: int | None = None
    sharding: Sharding | None = None
    accumulate: int = 1
    checkpoint_activations: bool = False
