"""Defines how a step is spread over several GPUs, and the links between them."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:  # the command line's help imports this file and must not wait for numpy
    from advisor.records.prediction import FloatArray

Sharding = Literal["none", "zero1", "zero2", "zero3"]
Rate: TypeAlias = "float | FloatArray"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How one step is spread over `data` x `tensor` x `pipeline` GPUs on `machines` machines.

    - `data`: data-parallel groups over all machines. In training, tensor and pipeline parallelism stay inside a machine
    - `expert`: data-parallel groups of a served model that divide the experts of each layer among them
    - `sharding`: what data-parallel GPUs shard: "none" (DDP), "zero1" optimizer state, "zero2" also gradients, "zero3"
      (FSDP) also parameters
    - `accumulate`: micro-batches per optimizer step; in a pipeline, the micro-batches that pass through it
    - `checkpoint_activations`: backward recomputes the activations inside the model's repeated blocks
    """

    machines: int = 1
    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    expert: int = 1
    sharding: Sharding = "none"
    accumulate: int = 1
    checkpoint_activations: bool = False

    @property
    def gpu_count(self) -> int:
        """Return the number of GPUs on all machines."""
        return self.data * self.tensor * self.pipeline

    @property
    def is_one_pass(self) -> bool:
        """Return whether one GPU runs the whole step in one pass."""
        return self.gpu_count * self.accumulate == 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Link:
    """A link between GPUs or machines; the fields may be arrays, one entry per fabric.

    - `step_s`: latency of a step in each of the `PROTOCOLS` of collectives; infinite for one that the link cannot use
    - `bytes_per_s`: rate in each direction, of one GPU inside a machine or of a whole machine on the network
    - `peer_bytes_per_s`: limit to one other GPU, if every pair of GPUs has its own link
    - `shared_bytes_per_s`: limit of all GPUs of a machine together; infinite if the GPUs have links to each other
    - `switch_bytes_per_s`: rate of one GPU at which a switch adds up what all GPUs send; 0 if it does not
    - `own_part_ratio`: work on a GPU's own part of the bytes that no transfer hides, in steps
    """

    step_s: tuple[Rate, Rate, Rate]
    bytes_per_s: Rate
    peer_bytes_per_s: Rate = math.inf
    shared_bytes_per_s: Rate = math.inf
    switch_bytes_per_s: Rate = 0.0
    own_part_ratio: Rate = 0.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Fabric:
    """The links inside a machine of `gpu_count` GPUs and between `machines`; `between` is None for one machine.

    `pair` links two GPUs with a bridge between them, where there are more.
    """

    gpu_count: int
    inside: Link
    pair: Link | None = None
    machines: int = 1
    between: Link | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Spreading:
    """How the user allows a step to be spread; None means that the best choice is made.

    - `gpus`, `machines`: exactly this number, of GPUs per machine and of machines
    - `max_gpus`, `max_machines`: at most this number
    - `tensor`, `pipeline`, `expert`: exactly this number of GPUs in a tensor-parallel group, of pipeline stages, and of
      groups that divide the experts
    """

    gpus: int | None = None
    max_gpus: int | None = None
    max_machines: int = 1
    machines: int | None = None
    sharding: Sharding | None = None
    accumulate: int = 1
    checkpoint_activations: bool = False
    tensor: int | None = None
    pipeline: int | None = None
    expert: int | None = None
