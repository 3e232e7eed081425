"""Defines one step of a model as a list of operator calls, independent of the device."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.records.fine_tuning import FineTuning
from advisor.records.generation import Generation
from advisor.records.scale import Plan
from advisor.records.script import Script

SCHEMA_VERSION = 1

Mode = Literal["inference", "training"]
Attention = Literal["auto", "eager", "fused"]
"""How attention is computed: as the model sets it, with scores written to memory, or in one fused kernel."""
Phase = Literal["forward", "loss", "backward", "optimizer", "prefill", "decode"]
"""In LLM serving, prefill reads the prompts and decode adds a token to each answer."""
Dim = int | tuple[float, float]
"""A dimension: a constant, or (a, b) for a + b x batch."""
Growth = tuple[float, ...]
"""Bytes: (a, b) for a + b x batch, or (a, b, c) where batch x batch tensors add c x batch^2."""
Attribute = bool | int | float | str | tuple[bool | int | float | str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One tensor that an operator reads or writes.

    - `low`: stored in half precision under autocast on GPUs
    - `other_on_cpus`: autocast on CPUs does the opposite: it stores the tensor in fp32 if `low`, else in half precision
    - `fused`: under torch.compile, produced and read in one kernel, so it is not written to memory
    - `joined`: under torch.compile, an output that its kernel continues with, so the operator needs no launch
    - `narrowed`: under torch.compile and autocast, stored only in half precision because every reader would cast it
    - `widened`: under torch.compile, a 16-bit result that is stored as the fp32 value it is recomputed from
    - `kept`: stays in memory between passes like parameters but grows with the batch: a KV cache
    - `varies`: not a parameter, buffer or gradient of one; needed in a trace of one batch, whose shapes do not tell
    """

    shape: tuple[Dim, ...]
    dtype: str
    low: bool = False
    other_on_cpus: bool = False
    fused: bool = False
    joined: bool = False
    narrowed: bool = False
    widened: bool = False
    kept: bool = False
    varies: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`count` calls of one operator with the same operands and attributes.

    - `op`: the operator's name without overload ("aten.convolution"), or a composite caught above the dispatcher
      ("attention", "attention_backward", "rnn", "rnn_backward", "encoder_layer", "optimizer")
    - `module`: path of the innermost module, with list indices as `*` ("layers.*.attn.q_proj")
    """

    op: str
    family: str
    phase: Phase
    module: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    attributes: Mapping[str, Attribute]
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredBytes:
    """Bytes of one kind of memory.

    - `low`: float32 tensors that autocast stores in half precision
    - `full`: other float32 tensors
    - `double`: float64 tensors
    - `other`: tensors of all other dtypes
    """

    low: Growth = (0.0, 0.0)
    full: Growth = (0.0, 0.0)
    double: Growth = (0.0, 0.0)
    other: Growth = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """The memory in use at a moment of the step that is the peak for some batch size or precision.

    - `kv_cache`: keys and values of all tokens of the requests in flight
    """

    phase: Phase
    parameters: StoredBytes
    buffers: StoredBytes
    gradients: StoredBytes
    optimizer_state: StoredBytes
    activations: StoredBytes
    temporaries: StoredBytes
    kv_cache: StoredBytes = StoredBytes()


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """The repeated blocks of a model, `layers.*`, along which checkpointing and sharding divide it.

    - `count`: number of blocks; in the decode phase of LLM serving, blocks times passes
    - `parameter_bytes`: of all blocks; in LLM serving, counted in the prefill phase only
    - `largest_parameter_bytes`: of the largest block
    - `kept`: activations of all blocks at the start of backward
    - `largest_kept`: the most that one block keeps
    - `results`: outputs that blocks pass to each other; in decode, summed over all passes
    """

    path: str
    count: int
    parameter_bytes: int
    largest_parameter_bytes: int
    kept: StoredBytes
    largest_kept: StoredBytes
    results: StoredBytes
    phase: Phase = "forward"


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenRatios:
    """Memory reserved by allocators over memory used by tensors, at the peak of the source's own batch.

    - `heap`: glibc's malloc on CPUs
    - `cache`: torch's caching allocator on CUDA
    """

    heap: float
    cache: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One traced step, from which every device is predicted.

    - `batch`: the batch size of the source
    - `batch_is_affine`: False if dimensions do not grow as a + b x batch; the rows then hold only for `batch`
    - `method`: "fake" (fake tensors), "symbolic" (fake tensors with assumed data-dependent sizes, see `assumptions`) or
      "cpu_step" (a real step was run)
    - `inputs`: tensors copied to the device in each step
    - `squared_taken`: `taken` of the batch x batch tensors alone; None if there are none
    - `generation`: set for LLM serving, where a sample is a request and a step serves every request in flight once,
      from prompt to last token: the mean step of continuous batching
    - `script`: what a captured script sets for itself
    - `fine_tuning`: set for a model that is prepared for fine-tuning
    - `is_half`: the parameters were traced in 16 bits, so tensors in fp32 are those that the model's code makes
    - `under_fsdp`: the same step as FSDP runs it under autocast, if that differs
    - `is_pretrained`: the source loads pretrained weights, which the trace left out
    """

    schema_version: int
    name: str
    mode: Mode
    batch: int
    batch_is_affine: bool
    traced_batches: tuple[int, ...]
    method: Literal["fake", "symbolic", "cpu_step"]
    torch_version: str
    parameter_count: int
    parameter_bytes: int
    optimizer: str | None
    inputs: tuple[Operand, ...]
    rows: tuple[Row, ...]
    memory: tuple[MemoryLine, ...]
    unknown_ops: Mapping[str, int]
    assumptions: tuple[str, ...]
    blocks: tuple[Blocks, ...] = ()
    taken: TakenRatios = TakenRatios(heap=1.0, cache=1.0)
    squared_taken: TakenRatios | None = None
    generation: Generation | None = None
    script: Script | None = None
    fine_tuning: FineTuning | None = None
    is_half: bool = False
    is_pretrained: bool = False
    under_fsdp: "Workload | None" = None

    def under(self, plan: Plan) -> "Workload":
        """Return the step as this plan runs it."""
        return self.under_fsdp if plan.sharding == "zero3" and self.under_fsdp is not None else self


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondCount:
    """The forward FLOP that fvcore counts on the real model at `batch`, with a multiply-add counted as two.

    - `unsupported_ops`: number of calls of operators that fvcore does not know and counts as 0
    """

    batch: int
    flops: float
    flops_by_op: Mapping[str, float]
    unsupported_ops: Mapping[str, int]
