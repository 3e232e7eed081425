"""Predicts the peak memory of a step at every batch size: tensors from the trace, other parts from published sizes."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, fields, replace
from itertools import zip_longest

import numpy as np

from advisor.ops.registry import number_of
from advisor.predict.blocks import outermost
from advisor.predict.precision import Width, stored_dtype
from advisor.predict.row_memory import RowMemory, row_memory
from advisor.predict.row_work import operand_bytes, refusing_rows
from advisor.records.device import Device, DeviceKind
from advisor.records.device_memory import MemoryPart, Verdict
from advisor.records.prediction import FloatArray, IndexArray
from advisor.records.workload import Growth, MemoryLine, Row, StoredBytes, Workload

_TRACED: Mapping[MemoryPart, str] = {
    "parameters": "parameters",
    "buffers": "buffers",
    "gradients": "gradients",
    "optimizer state": "optimizer_state",
    "activations": "activations",
    "temporaries": "temporaries",
    "KV cache": "kv_cache",
}
"""The parts that are counted in the trace, with their fields of `MemoryLine`."""

_STORED_RATIOS: Mapping[Width, tuple[float, ...]] = {
    "full": (1.0, 1.0, 1.0, 1.0),
    "traced": (1.0, 1.0, 1.0, 1.0),
    "autocast": (0.5, 1.0, 1.0, 1.0),
    "autocast on CPUs": (0.5, 1.0, 1.0, 1.0),
    "half": (0.5, 0.5, 0.25, 1.0),
}
"""Bytes that a width stores per traced byte, for each field of `StoredBytes`."""
_NOT_ALLOCATED: tuple[MemoryPart, ...] = ("allocator", "process")
_CUDA_CONTEXT_BYTES = (287_047_680.0, 666_632_192.0)
"""With no kernels loaded and with all of PyTorch's kernels (pytorch/pytorch pull request 86509)."""
_DRIVER_BYTES = 0.97e9
"""The most that the driver reserves of a GPU's memory (NVML: `nvmlMemory_v2_t.reserved`). torch's errors report a total
capacity of 79.1 GiB on cards with 80 (pixeli99/SVD_Xtend#39), 39.5 on cards with 40 (TianheWu/CoSeR#10) and 23.7 on
cards with 24 (zai-org/CogVideo#36)."""
_CPU_PROCESS_BYTES = (0.5e9, 1.0e9)
"""Operating system, Python and torch: an idle cloud image uses 0.3 to 0.6 GB and `import torch` 0.2 to 0.4 GB."""
_CUBLAS_BYTES = (8_519_680.0, 33_554_432.0)
"""PyTorch's default CUBLAS_WORKSPACE_CONFIG, `:4096:2:16:8`, and on Hopper 32 MiB (ATen/cuda/CublasHandlePool.cpp)."""
_FIRST_STEP_BYTES = (4e6, 36e6)
"""Code pages, 4 to 28 MB (`code_bytes` in tests/data/measured/own/memory_check.csv), and up to 8 MB of primitives."""
_HEAP_SPREAD_RATIO = 0.17
"""Error of the predicted heap relative to the tensors, in 90 % of the steps in
tests/data/measured/own/memory_check.csv."""
_FOREACH_OPTIMIZERS = (
    "Adadelta", "Adagrad", "Adam", "AdamW", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD",
)  # fmt: skip
"""Optimizers whose default on CUDA is foreach, one update for all parameters (docs of torch.optim, "Algorithms")."""
_OF_DRAFTS = "assumed: --draft-cost times the weights and the KV cache"
_SOURCES: Mapping[DeviceKind, Mapping[MemoryPart, str]] = {
    "gpu": {
        "half copies": "autocast's cache of 16-bit weights",
        "draft model": _OF_DRAFTS,
        "workspaces": "cuBLAS 8.5 to 33.6 MB; cuDNN up to a copy of the operands of the largest convolution",
        "allocator": "memory that torch's caching allocator reserves beyond the tensors; freed when memory runs short, "
        "unless it is fragmented",
        "process": "CUDA context, 287 MB without kernels to 667 MB with all of PyTorch's; at most 0.97 GB reserved by "
        "the driver, and 0.93 GB of NCCL's buffers with several GPUs",
    },
    "cpu": {
        "half copies": "autocast's cache of 16-bit weights",
        "draft model": _OF_DRAFTS,
        "workspaces": "code and oneDNN primitives that the first step loads",
        "allocator": "memory that glibc's heap holds beyond the tensors, with oneDNN's temporary copies",
        "process": "operating system, Python and torch",
    },
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SpreadBytes:
    """A most likely size with a lower and an upper bound; arrays (batches,)."""

    low: FloatArray
    mid: FloatArray
    high: FloatArray

    @classmethod
    def exactly(cls, size: FloatArray) -> "SpreadBytes":
        """Return a size that is known exactly."""
        return cls(low=size, mid=size, high=size)

    @classmethod
    def between(cls, low: FloatArray, high: FloatArray) -> "SpreadBytes":
        """Return a size that may be anywhere between the two."""
        return cls(low=low, mid=(low + high) / 2, high=high)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StepMemory:
    """The peak memory of a step at every batch size."""

    parts: Mapping[MemoryPart, SpreadBytes]
    moments: IndexArray
    """The workload's memory line with the peak, as an index, (batches,)."""
    kind: DeviceKind

    @property
    def total(self) -> SpreadBytes:
        """Return the sum of all parts."""
        low, mid, high = (
            np.sum([getattr(part, end) for part in self.parts.values()], axis=0) for end in ("low", "mid", "high")
        )
        return SpreadBytes(low=low, mid=mid, high=high)

    @property
    def allocated(self) -> FloatArray:
        """Return the bytes of tensors and workspaces, as `torch.cuda.max_memory_allocated` counts them, (batches,)."""
        counted: FloatArray = np.sum(
            [part.mid for name, part in self.parts.items() if name not in _NOT_ALLOCATED], axis=0
        )
        return counted

    def source_of(self, part: MemoryPart) -> str:
        """Return where the bytes of a part come from, in words."""
        return _SOURCES[self.kind].get(part, "counted in the trace")


def step_memory(
    workload: Workload, *, batches: FloatArray, width: Width, kind: DeviceKind, weights_are_gathered: bool = False
) -> StepMemory:
    """Predict the peak memory of a step: tensors at the worst moment, allocator, libraries and process.

    Autocast needs no 16-bit copies of weights that FSDP has gathered in 16 bits.
    """
    rows = row_memory(workload, width=width)
    copies_bytes = 0.0 if weights_are_gathered else rows.half_copies_bytes
    beside: dict[MemoryPart, FloatArray] = {"half copies": np.full(len(batches), copies_bytes)}
    if kind == "cpu":
        beside["activations"] = rows.dropout_scores_bytes(batches)
    lists = _foreach_lists(workload) if kind == "gpu" else None
    moments = [_moment(line, beside=beside, lists=lists, batches=batches, width=width) for line in workload.memory]
    totals = np.array([np.sum(list(moment.values()), axis=0) for moment in moments])
    worst: IndexArray = totals.argmax(axis=0)
    places = np.arange(len(batches))
    parts: dict[MemoryPart, SpreadBytes] = {}
    for part in moments[0]:
        live = np.array([moment[part] for moment in moments])[worst, places]
        parts[part] = SpreadBytes.exactly(live)
    tensors = totals[worst, places]
    if workload.generation and workload.generation.draft_tokens:
        ratio = workload.generation.draft_cost_ratio  # passes wait for weights, where drafts help
        parts["draft model"] = SpreadBytes.exactly(ratio * (parts["parameters"].mid + parts["KV cache"].mid))
    nothing = np.zeros(len(batches))
    parts["workspaces"] = _workspaces(rows, batches=batches, kind=kind)
    squares = np.zeros(len(batches))
    if workload.squared_taken is not None:
        of_moments = [_squared_bytes(line, batches=batches, width=width) for line in workload.memory]
        squares = np.array(of_moments)[worst, places]
    parts["allocator"] = _allocator(workload, tensors - squares, squares, kind=kind)
    low, high = _CUDA_CONTEXT_BYTES if kind == "gpu" else _CPU_PROCESS_BYTES
    process = SpreadBytes.between(nothing + low, nothing + high)
    parts["process"] = process if kind == "cpu" else replace(process, high=process.high + _DRIVER_BYTES)
    return StepMemory(parts=parts, moments=worst, kind=kind)


def usable_bytes(device: Device, workload: Workload) -> float:
    """Return the memory of a device that the step may use: all of it, or the part that a serving engine takes."""
    engine = workload.generation.engine if workload.generation else None
    return engine.usable_bytes(device) if engine else device.memory_bytes


def verdict_of(peak: SpreadBytes, *, memory_bytes: float) -> Verdict:
    """Return "fits", "tight" or "does not fit" for the peak of a step at one batch size."""
    if peak.high[0] <= memory_bytes:
        return "fits"
    return "tight" if peak.low[0] <= memory_bytes else "does not fit"


def _moment(
    line: MemoryLine,
    *,
    beside: Mapping[MemoryPart, FloatArray],
    lists: "_ForeachLists | None",
    batches: FloatArray,
    width: Width,
) -> dict[MemoryPart, FloatArray]:
    """Return the live bytes at one moment, by part: the traced tensors, and what a pass or the optimizer adds."""
    traced = _all_stored_bytes([getattr(line, name) for name in _TRACED.values()], batches=batches, width=width)
    live: dict[MemoryPart, FloatArray] = dict(zip(_TRACED, traced, strict=True))
    if line.phase == "optimizer":
        if lists is not None:
            live["temporaries"] = lists.temporaries_bytes(live["temporaries"])
        return live | {"half copies": np.zeros(len(batches))}
    return live | {part: live.get(part, 0.0) + size_bytes for part, size_bytes in beside.items()}


def _squared_bytes(line: MemoryLine, *, batches: FloatArray, width: Width) -> FloatArray:
    """Return the bytes of the batch x batch tensors that are live at one moment."""
    total = added([getattr(line, name) for name in _TRACED.values()])
    alone = {field.name: (0.0, 0.0, *getattr(total, field.name)[2:]) for field in fields(StoredBytes)}
    return stored_bytes(StoredBytes(**alone), batches=batches, width=width)


def stored_bytes(part: StoredBytes, *, batches: FloatArray, width: Width) -> FloatArray:
    """Return the bytes of one kind of memory at the precision's width."""
    bytes_of_one: FloatArray = _all_stored_bytes([part], batches=batches, width=width)[0]
    return bytes_of_one


def _all_stored_bytes(parts: Sequence[StoredBytes], *, batches: FloatArray, width: Width) -> FloatArray:
    """Return `stored_bytes` of each part, (parts, batches)."""
    growths = [(part.low, part.full, part.double, part.other) for part in parts]
    affine = np.array([[growth[:2] for growth in of_part] for of_part in growths], dtype=np.float64)
    sizes = affine[..., :1] + affine[..., 1:] * batches
    squared = np.array([[sum(growth[2:]) for growth in of_part] for of_part in growths], dtype=np.float64)
    if squared.any():
        sizes += squared[..., np.newaxis] * batches**2
    stored: FloatArray = np.sum([ratio * sizes[:, at] for at, ratio in enumerate(_STORED_RATIOS[width])], axis=0)
    return stored


def optimizer_rows(workload: Workload) -> tuple[Row, ...]:
    """Return the rows of the workload's optimizers."""
    return tuple(row for row in workload.rows if row.op == "optimizer")


@refusing_rows
def attribute(row: Row, name: str) -> float:
    """Return a numeric attribute; raise `DocumentError` if it is missing or not a number."""
    return number_of(row.attributes, name)


def gradient_bytes(workload: Workload) -> float:
    """Return the bytes of all dense gradients, as traced: as many as the optimizers write to the parameters."""
    return sum(_updated_bytes(row) for row in optimizer_rows(workload) if not row.inputs)


def sparse_gradients(workload: Workload) -> tuple[Row, ...]:
    """Return the optimizers' rows of tables with sparse gradients, whose inputs are a gradient's indices and values."""
    return tuple(row for row in optimizer_rows(workload) if row.inputs)


def sparse_gradient_bytes(workload: Workload, *, batches: FloatArray, width: Width = "full") -> FloatArray:
    """Return the bytes of all sparse gradients of a pass: the looked-up rows and their indices."""
    sizes = (
        row.count * operand_bytes(one, batches=batches, dtype=stored_dtype(one, width=width))
        for row in sparse_gradients(workload)
        for one in row.inputs
    )
    return sum(sizes, 0.0 * batches)


def _updated_bytes(row: Row) -> float:
    """Return the bytes of the parameters that an optimizer's row updates."""
    of_element = attribute(row, "write_bytes_per_element") - attribute(row, "state_bytes_per_element")
    return attribute(row, "element_count") * of_element


def scaled(stored: StoredBytes, ratio: float) -> StoredBytes:
    """Return each kind of memory multiplied by `ratio`."""

    def times(growth: Growth) -> Growth:
        return tuple(size * ratio for size in growth)

    return StoredBytes(**{field.name: times(getattr(stored, field.name)) for field in fields(StoredBytes)})


def added(parts: Sequence[StoredBytes]) -> StoredBytes:
    """Return the sum of the parts."""

    def total(name: str) -> Growth:
        return tuple(map(sum, zip_longest((0.0, 0.0), *(getattr(part, name) for part in parts), fillvalue=0.0)))

    return StoredBytes(**{field.name: total(field.name) for field in fields(StoredBytes)})


def all_gradients(workload: Workload, *, passes: int = 0) -> StoredBytes:
    """Return the bytes of all gradients, which stay in memory between passes under gradient accumulation.

    Sparse gradients, which DDP keeps in no bucket, have the rows of `passes`.
    """
    size_bytes = gradient_bytes(workload)
    double_bytes = size_bytes * double_ratio(line.gradients for line in workload.memory)
    start_bytes, sample_bytes = sparse_gradient_bytes(workload, batches=np.array([0.0, 1.0])).tolist()
    sparse = (passes * start_bytes, passes * (sample_bytes - start_bytes))
    return StoredBytes(full=(size_bytes - double_bytes + sparse[0], sparse[1]), double=(double_bytes, 0.0))


def double_ratio(moments: Iterable[StoredBytes]) -> float:
    """Return the share of float64 in one kind of memory, at the moment with the most of it."""
    sizes = ((sum(growth[0] for growth in astuple(stored)), stored.double[0]) for stored in moments)
    all_bytes, double_bytes = max(sizes, default=(0.0, 0.0))
    return double_bytes / all_bytes if all_bytes else 0.0


def gathered(workload: Workload, *, width: Width, block_ratio: float = 1.0) -> StoredBytes:
    """Return the parameters that every GPU holds unsharded under FSDP: all outside of blocks, and two blocks.

    Under autocast they are gathered in 16 bits (`MixedPrecision.param_dtype`). The two blocks are the running one and
    the next one, which FSDP prefetches by default (Zhao et al., PyTorch FSDP, 2023, section 3). If each GPU has only a
    part of every block before sharding, `block_ratio` is that part.
    """
    blocks = outermost(workload.blocks)
    outside_bytes = workload.parameter_bytes - sum(one.parameter_bytes for one in blocks)
    two_blocks_bytes = 2 * block_ratio * max((one.largest_parameter_bytes for one in blocks), default=0)
    half_ratio = 1 - 0.5 * double_ratio(line.parameters for line in workload.memory)  # `low` takes half of this
    ratio = 1.0 if width in ("full", "traced") else half_ratio
    return StoredBytes(low=(ratio * (outside_bytes + two_blocks_bytes), 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class _ForeachLists:
    """The intermediates of optimizers that update all their parameters at once on CUDA.

    - `list_bytes`: of the largest list, which is as large as the parameters
    - `tensor_bytes`: of a parameter, on average; a for-loop with intermediates holds more at its largest parameter
    - `replace_loop`: no optimizer of the step runs a for-loop
    """

    list_bytes: float
    tensor_bytes: float
    replace_loop: bool

    def temporaries_bytes(self, loop_bytes: FloatArray) -> FloatArray:
        """Return the temporaries of a step whose for-loops hold `loop_bytes`, (batches,)."""
        listed_bytes = self.list_bytes if self.replace_loop else np.maximum(loop_bytes, self.list_bytes)
        return np.where(loop_bytes < self.tensor_bytes, loop_bytes, listed_bytes)


def _foreach_lists(workload: Workload) -> _ForeachLists | None:
    """Return the lists of the step's foreach optimizers; None if it has no such optimizer.

    torch.optim, "foreach": "uses ~ sizeof(params) more peak memory than the for-loop version". An optimizer whose
    for-loop works in place, such as SGD with momentum, and a fused one have none. Parameters with sparse gradients are
    always updated one by one.
    """
    rows = optimizer_rows(workload)
    looped = [row for row in rows if attribute(row, "calls_per_tensor") > 1 and not row.inputs]
    if not looped:
        return None
    return _ForeachLists(
        list_bytes=max(map(_updated_bytes, looped)),
        tensor_bytes=min(_updated_bytes(row) / max(1.0, attribute(row, "tensor_count")) for row in looped),
        replace_loop=all(row in looped and row.attributes.get("name") in _FOREACH_OPTIMIZERS for row in rows),
    )


def _workspaces(rows: RowMemory, *, batches: FloatArray, kind: DeviceKind) -> SpreadBytes:
    nothing = np.zeros(len(batches))
    if kind == "cpu":
        low, high = _FIRST_STEP_BYTES
        return SpreadBytes.between(nothing + low, nothing + high)
    low, high = _CUBLAS_BYTES if rows.has_product else (0.0, 0.0)
    return SpreadBytes.between(nothing + low, rows.largest_convolution_bytes(batches) + high)


def _allocator(workload: Workload, tensors: FloatArray, squares: FloatArray, *, kind: DeviceKind) -> SpreadBytes:
    """Return the allocator's overhead, whose lower bound is 0 on CUDA: it frees its reserve before it fails.

    `squares` are the bytes of batch x batch tensors, `tensors` those of all others.
    """
    taken, squared_taken = workload.taken, workload.squared_taken or workload.taken
    if kind == "gpu":
        reserved = (taken.cache - 1) * tensors + (squared_taken.cache - 1) * squares
        return SpreadBytes.between(0.0 * tensors, reserved)
    held = (taken.heap - 1) * tensors + (squared_taken.heap - 1) * squares
    spread = _HEAP_SPREAD_RATIO * (tensors + squares)
    return SpreadBytes(low=np.maximum(held - spread, 0.0), mid=held, high=held + spread)


def compares_samples(workload: Workload) -> bool:
    """Return whether the step compares the samples of a batch with each other, as a contrastive loss does."""
    one = np.ones(1)
    return any(_squared_bytes(line, batches=one, width="full").any() for line in workload.memory)
