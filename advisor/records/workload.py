"""One step of a model as a device-neutral list of operator calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from advisor.records.generation import Generation

SCHEMA_VERSION = 1

Mode = Literal["inference", "training"]
Attention = Literal["auto", "eager", "fused"]
"""How scores of attention travel: as the model has it, through memory, or within one kernel."""
Phase = Literal["forward", "loss", "backward", "optimizer", "prefill", "decode"]
"""Of a generation: prefill reads the prompts, decode adds a token to each answer."""
Dim = int | tuple[float, float]
"""A dimension: a constant, or (a, b) for a + b x batch."""
Attribute = bool | int | float | str | tuple[bool | int | float | str, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """One tensor that an operator reads or writes.

    `low`: stored in half precision when the model runs under autocast.

    Under torch.compile: `fused` operands do not pass through memory here, since the kernel that makes them reads them.
    `joined`: an output that its kernel goes on with, so that the operator launches nothing of its own.
    `narrowed`: in memory in half only, under autocast, since every reader would cast it.

    `kept`: it lies in memory from one pass to the next, as parameters do, though it grows with the batch: a KV cache.
    `varies`: no parameter, buffer or gradient of one, in a trace of one batch, whose shapes do not tell.
    """

    shape: tuple[Dim, ...]
    dtype: str
    low: bool = False
    fused: bool = False
    joined: bool = False
    narrowed: bool = False
    kept: bool = False
    varies: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`count` calls of one operator with the same operands and attributes.

    `op` is the operator's name without overload ("aten.convolution") or a composite caught above the dispatcher
    ("attention", "attention_backward", "rnn", "rnn_backward", "encoder_layer", "optimizer"). `module` is the path of
    the innermost module, with list indices as `*` ("layers.*.attn.q_proj").
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
    """Bytes of one kind of memory, each (a, b) for a + b x batch.

    `low`: float32 that autocast stores in half; `full`: other float32; `other`: every other dtype.
    """

    low: tuple[float, float] = (0.0, 0.0)
    full: tuple[float, float] = (0.0, 0.0)
    other: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLine:
    """What is live at one moment of the step that is the peak for some batch size or precision.

    `kv_cache`: the keys and values of all tokens of the requests in flight.
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
    """The modules of a list that repeats, `layers.*`: what activation checkpointing and sharding take apart.

    `kept` is what all of them hold when backward begins, `largest_kept` the one that holds most, and `results` the part
    that they hand to each other. `largest_parameter_bytes` is of one of them.

    Of a generation each phase goes through them, decode as often as it has passes, which `count` and `results` add up;
    prefill's have the parameters.
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
    """What allocators take from the system over what tensors need, at the peak and the source's own batch.

    `heap` is of glibc's malloc on CPUs, `cache` of torch's caching allocator on CUDA.
    """

    heap: float
    cache: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One step, traced once and predicted anywhere.

    `batch` is the batch size the source itself names. `batch_is_affine` is False when the dimensions do not grow as
    a + b x batch; the rows then hold for `batch` alone. `method`: "fake" (fake tensors), "symbolic" (fake tensors with
    data-dependent sizes assumed, see `assumptions`) or "cpu_step" (a real step was run).
    `inputs` are the tensors that travel to the device each step.

    Of a `generation` a sample is a request, and a step serves as many as are in flight once, from the prompt to the
    last token: the mean step of continuous batching.
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
    generation: Generation | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondCount:
    """The forward FLOP that fvcore counts on the real model at `batch`, a multiply-add taken as two, as ours are.

    `unsupported_ops` are the operators it does not know, with their calls: it counts them as nothing.
    """

    batch: int
    flops: float
    flops_by_op: Mapping[str, float]
    unsupported_ops: Mapping[str, int]
