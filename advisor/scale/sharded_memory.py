"""Predicts the memory that one GPU of a parallel plan needs.

ZeRO's stages: Rajbhandari et al., 2020; tensor parallelism: Shoeybi et al., Megatron-LM, 2019; checkpoints: Chen
et al., 2016.
"""

from collections.abc import Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any

import numpy as np

from advisor.predict.blocks import innermost, is_of_experts, outermost
from advisor.predict.precision import Width
from advisor.predict.row_work import constant_bytes, is_constant
from advisor.predict.step_memory import StepMemory, added, all_gradients, attribute, gathered, scaled, step_memory
from advisor.records.device import DeviceKind
from advisor.records.device_memory import MemoryPart
from advisor.records.prediction import FloatArray
from advisor.records.scale import Plan
from advisor.records.workload import Blocks, Growth, MemoryLine, Row, StoredBytes, Workload

_STATES = ("parameters", "gradients", "optimizer_state")
_STAGES_OF = {"optimizer_state": ("zero1", "zero2", "zero3"), "gradients": ("zero2", "zero3"), "parameters": ("zero3",)}
"""The sharding levels at which a GPU holds only its shard of each state."""
_OF_PASSES: tuple[MemoryPart, ...] = ("activations", "temporaries")
_NCCL_BYTES = 0.93e9
"""The most that NCCL holds on each GPU: 1.6 GB of a process with one communicator (NVIDIA/nccl#864), less its
CUDA context of 0.67 GB."""
_FRAGMENTED_RATIO = 0.24
"""Upper bound of the share of reserved memory that torch's allocator loses to fragmentation under sharding and
recomputation. GMLake (Guo et al., 2024, abstract) reduces fragmentation by 15 % on average and by 33 % at most in the
training of eight language models; this is the midpoint of the two."""


def memory_of_one(
    workload: Workload, plan: Plan, *, batches: FloatArray, width: Width, kind: DeviceKind = "gpu"
) -> StepMemory:
    """Return the peak memory of the fullest device; `batches` are the samples of one device in one pass.

    Under autocast, FSDP gathers its fp32 shards in 16 bits (`MixedPrecision`). The activations are those of autocast,
    whose time the step takes; the lower bound is FSDP without autocast, which computes norms and losses in 16 bits too.
    A model with `fp32_shards` was traced in the precision in which it computes. If it is not known whether checkpoints
    are reentrant, the memory that reentrant ones would hold is added only to the upper bound.
    """
    tuning = workload.fine_tuning
    memory = _of_one(workload, plan, batches=batches, width=width, kind=kind)
    if width == "autocast" and _gathers(plan):
        least = _of_one(workload, plan, batches=batches, width="half", kind=kind, state_ratio=2.0)
        memory = _from_least(memory, least)
    if tuning is None or tuning.reentrant is not None or not _may_hold_inputs(workload, plan):
        return memory
    reentrant = replace(workload, fine_tuning=replace(tuning, reentrant=True))
    most = _of_one(reentrant, plan, batches=batches, width=width, kind=kind)
    usual = memory.parts["activations"]
    high = usual.high + np.maximum(0.0, most.total.high - memory.total.high)
    return replace(memory, parts={**memory.parts, "activations": replace(usual, high=high)})


def _from_least(memory: StepMemory, least: StepMemory) -> StepMemory:
    """Return the memory with the lower bound of `least`, which has smaller activations and temporaries."""
    saved_bytes = np.maximum(0.0, memory.total.low - least.total.low)
    smaller = {name: memory.parts[name] for name in _OF_PASSES}
    ratio = np.maximum(0.0, 1 - saved_bytes / np.maximum(1.0, sum(part.low for part in smaller.values())))
    lower = {name: replace(part, low=part.low * ratio) for name, part in smaller.items()}
    return replace(memory, parts={**memory.parts, **lower})


def _gathers(plan: Plan) -> bool:
    """Return whether FSDP gathers the parameters of this plan."""
    return plan.sharding == "zero3" and plan.data > 1


def _may_hold_inputs(workload: Workload, plan: Plan) -> bool:
    """Return whether reentrant checkpoints would keep the input of each block, and its gradient, through backward.

    FSDP frees the parameters of a frozen unit after its backward by a hook on the unit's inputs
    (`_register_post_backward_reshard_only_hook`). A reentrant checkpoint passes detached copies of the inputs to the
    block, and the hook's references keep these and their gradients until the whole backward pass is done.
    """
    tuning = workload.fine_tuning
    is_frozen = tuning is not None and tuning.method != "full"
    return is_frozen and plan.checkpoint_activations and _gathers(plan)


def _of_one(
    workload: Workload, plan: Plan, *, batches: FloatArray, width: Width, kind: DeviceKind, state_ratio: float = 1.0
) -> StepMemory:
    """Return the peak memory of the fullest device, with reentrant checkpoints only if they are known to be.

    The states take `state_ratio` times the bytes that they have at `width`.
    """
    traced_ratio = 2.0 if workload.fine_tuning is not None and workload.fine_tuning.fp32_shards else 1.0
    lines = tuple(
        _line(line, workload, plan, width=width, state_ratio=state_ratio * traced_ratio) for line in workload.memory
    )
    rows = tuple(_stepped_part(row, plan, size_ratio=traced_ratio) for row in workload.rows)
    held = replace(workload, memory=lines, rows=rows)
    memory = step_memory(held, batches=batches, width=width, kind=kind, weights_are_gathered=_gathers(plan))
    if plan.gpu_count == 1:
        return memory
    process, allocator = memory.parts["process"], memory.parts["allocator"]
    parts = {**memory.parts, "process": replace(process, high=process.high + _NCCL_BYTES)}
    if plan.sharding == "zero3" and plan.checkpoint_activations:
        lost = memory.allocated * _FRAGMENTED_RATIO / (1 - _FRAGMENTED_RATIO)
        parts["allocator"] = replace(allocator, high=np.maximum(allocator.high, lost))
    return replace(memory, parts=parts)


def _stepped_part(row: Row, plan: Plan, *, size_ratio: float) -> Row:
    """Return an optimizer's row with the elements that this GPU updates; other rows unchanged.

    With fp32 elements in a model traced in 16 bits `size_ratio` is 2: each counts twice, as it has twice the bytes.
    """
    if row.op != "optimizer":
        return row
    parts = plan.tensor * plan.pipeline * (plan.data if plan.sharding != "none" else 1) / size_ratio
    return replace(row, attributes={**row.attributes, "element_count": attribute(row, "element_count") / parts})


def _line(line: MemoryLine, workload: Workload, plan: Plan, *, width: Width, state_ratio: float) -> MemoryLine:
    """Return what one GPU holds at this moment of the step."""
    line = _accumulated(line, workload, plan)
    line = _inside_blocks(line, workload, plan)
    line = _expert_part(line, workload, plan.expert)
    line = _states(line, dict.fromkeys(_STATES, _tensor_ratio(workload, plan.tensor) * state_ratio))
    line = _cache_part(line, workload, plan.tensor)
    line = _stage(line, plan)
    return _data_part(line, workload, plan, width=width)


def _accumulated(line: MemoryLine, workload: Workload, plan: Plan) -> MemoryLine:
    """Keep all gradients live if they are accumulated over several passes."""
    if plan.accumulate == 1 or workload.mode == "inference":
        return line
    return replace(line, gradients=all_gradients(workload, passes=plan.accumulate))


def _inside_blocks(line: MemoryLine, workload: Workload, plan: Plan) -> MemoryLine:
    """Reduce the activations of blocks by checkpointing and tensor parallelism.

    With tensor parallelism, each GPU has its part of the activations between a norm and a residual addition. These are
    all that blocks keep except their results and the outputs of their norms, which are taken to be as large.
    """
    blocks = outermost(workload.blocks)
    if workload.mode == "inference" or not blocks or line.phase == "optimizer":
        return line
    if plan.checkpoint_activations:
        return _checkpointed(line, workload, plan)
    size = partial(_size, batch=workload.batch)
    kept, results = (added([getattr(one, name) for one in blocks]) for name in ("kept", "results"))
    if plan.tensor == 1 or size(line.activations) < size(kept):  # in the second case backward is partly done
        return line
    inside = added([kept, scaled(results, -2.0)])
    return replace(line, activations=added([line.activations, scaled(inside, 1 / plan.tensor - 1)]))


def _checkpointed(line: MemoryLine, workload: Workload, plan: Plan) -> MemoryLine:
    """Keep only the results of checkpointed blocks, and all activations of one block at a time, divided among GPUs.

    At a moment of backward, the blocks that are done hold nothing any more, unless their inputs are held. Tensors
    outside of blocks, such as logits, are freed before the first block is recomputed.
    """
    size = partial(_size, batch=workload.batch)
    blocks = checkpointed_blocks(workload)
    kept, results = (added([getattr(one, name) for one in blocks]) for name in ("kept", "results"))
    # Forward may hold more outside of blocks, such as logits, than is left of them in backward.
    alike = [one for one in workload.memory if (one.phase == "backward") == (line.phase == "backward")]
    outside = max(0.0, max(size(one.activations) for one in alike) - size(kept))
    left_ratio = min(1.0, max(0.0, (size(line.activations) - outside) / max(1.0, size(kept))))
    largest = max(blocks, key=lambda one: size(one.largest_kept))
    inside = added([largest.largest_kept, scaled(largest.results, -2.0 / largest.count)])
    of_block = added([largest.largest_kept, scaled(inside, 1 / plan.tensor - 1)])
    tuning = workload.fine_tuning
    if line.phase == "backward" and tuning is not None and tuning.reentrant and _may_hold_inputs(workload, plan):
        # When backward reaches the last block, all inputs are still held, as at the start of backward, and the
        # gradients of all but two: its own does not exist yet, and that of the block just done is in use, which the
        # line counts already.
        count = sum(one.count for one in blocks)
        of_block = added([of_block, scaled(results, max(0, count - 2) / count)])
    beyond = scaled(of_block, max(0.0, 1 - outside / max(1.0, size(of_block))))
    activations = added([line.activations, scaled(kept, -left_ratio), scaled(results, left_ratio), beyond])
    return replace(line, activations=activations) if size(activations) < size(line.activations) else line


def checkpointed_blocks(workload: Workload) -> list[Blocks]:
    """Return the blocks to checkpoint: the outermost or the innermost, whichever need less memory."""
    size = partial(_size, batch=workload.batch)

    def needed(blocks: list[Blocks]) -> float:
        of_one = max((size(one.largest_kept) for one in blocks), default=0.0)
        return of_one + sum(size(one.results) - size(one.kept) for one in blocks)

    return min(outermost(workload.blocks), innermost(workload.blocks), key=needed)


def _tensor_ratio(workload: Workload, ways: int) -> float:
    """Return the share of the parameters on one GPU: its part of the blocks, and everything outside them.

    Serving engines divide embedding and output too (vLLM: `VocabParallelEmbedding`).
    """
    if workload.generation is not None:
        return 1 / ways
    share = sum(one.parameter_bytes for one in outermost(workload.blocks)) / max(1, workload.parameter_bytes)
    return 1 - share * (1 - 1 / ways)


def _expert_part(line: MemoryLine, workload: Workload, ways: int) -> MemoryLine:
    """Keep this copy's experts of a served model, in the format in which they are stored."""
    if ways == 1:
        return line
    full = other = 0.0
    for row in workload.rows:
        if row.phase != "prefill" or not is_of_experts(row):
            continue
        for operand in row.inputs:
            if is_constant(operand) and len(operand.shape) > 1:
                size_bytes = row.count * constant_bytes(operand, dtype=operand.dtype)
                full, other = (full + size_bytes, other) if operand.dtype == "float32" else (full, other + size_bytes)
    gone = StoredBytes(full=((1 / ways - 1) * full, 0.0), other=((1 / ways - 1) * other, 0.0))
    return replace(line, parameters=added([line.parameters, gone]))


def _cache_part(line: MemoryLine, workload: Workload, ways: int) -> MemoryLine:
    """Keep this GPU's heads of the KV cache; a head is never split between GPUs."""
    share = 1.0 if workload.generation is None else workload.generation.cache_share(ways)
    return replace(line, kv_cache=scaled(line.kv_cache, share))


def _stage(line: MemoryLine, plan: Plan) -> MemoryLine:
    """Keep one pipeline stage: its part of the states and of the activations of all micro-batches in flight (GPipe)."""
    if plan.pipeline == 1:
        return line
    part = 1 / plan.pipeline
    held = _states(line, dict.fromkeys(_STATES, part))
    activations = scaled(line.activations, plan.accumulate * part)
    return replace(held, activations=activations, kv_cache=scaled(line.kv_cache, part))


def _data_part(line: MemoryLine, workload: Workload, plan: Plan, *, width: Width) -> MemoryLine:
    """Keep the shards of this GPU, and add FSDP's gathered parameters or DDP's buckets, which hold all gradients."""
    if plan.data == 1 or workload.mode == "inference":
        return line
    part, ways = 1 / plan.data, plan.tensor
    held = _states(line, {name: part for name in _STATES if plan.sharding in _STAGES_OF[name]})
    if plan.sharding == "none":
        buckets = scaled(all_gradients(workload), _tensor_ratio(workload, ways) / plan.pipeline)
        return replace(held, gradients=added([line.gradients, buckets]))
    if plan.sharding == "zero3" and line.phase != "optimizer":
        whole = scaled(gathered(workload, width=width, block_ratio=1 / ways), 1 / plan.pipeline)
        return replace(held, parameters=added([held.parameters, whole]))
    return held


def _states(line: MemoryLine, ratios: Mapping[str, float]) -> MemoryLine:
    """Return the line with these of its `_STATES` scaled."""
    held: dict[str, Any] = {name: scaled(getattr(line, name), ratio) for name, ratio in ratios.items()}
    return replace(line, **held)


def _size(stored: StoredBytes, *, batch: int) -> float:
    """Return the bytes at one sample in fp32, for comparisons only.

    A batch x batch tensor counts with one of its rows, as long as in a step of `batch` samples.
    """
    growths: list[Growth] = [getattr(stored, field.name) for field in fields(StoredBytes)]
    return sum(sum(growth[:2]) + sum(growth[2:]) * batch for growth in growths)
