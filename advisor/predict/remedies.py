"""Finds the largest batch that fits in memory, and the changes that reduce a step's memory."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from advisor.ops.evaluate import row_cost
from advisor.predict.blocks import innermost, outermost
from advisor.predict.precision import Width
from advisor.predict.step_memory import (
    SpreadBytes,
    added,
    all_gradients,
    gathered,
    scaled,
    step_memory,
    stored_bytes,
)
from advisor.predict.weights import with_weights
from advisor.records.device import Device, DeviceKind
from advisor.records.device_memory import RemedyName
from advisor.records.workload import Blocks, MemoryLine, StoredBytes, Workload

_PART_COUNTS = (2, 4, 8, 16, 32, 64)
"""Numbers of passes for gradient accumulation, and of GPUs for sharding."""
_EIGHT_BIT_RATIO = (1 + 4 / 256) / 4
"""Size of 8-bit state relative to fp32: a byte per value and a scale per 256 values (Dettmers et al., 8-bit Optimizers,
2022)."""
_NOTHING = StoredBytes()
_MOST_BATCH = 2**30
_PROBE_COUNT = 16
"""Batches tried at a time between the largest known to fit and the smallest known not to."""


@dataclass(frozen=True, kw_only=True)  # no slots: `cached_property` needs a `__dict__`
class Step:
    """A workload at a batch size and a width on a kind of device, which a remedy changes."""

    workload: Workload
    batch: int
    width: Width
    kind: DeviceKind

    @cached_property
    def peak(self) -> SpreadBytes:
        """Return its peak memory; arrays of one element."""
        return self.at([self.batch])

    def at(self, batches: Sequence[int]) -> SpreadBytes:
        """Return its peak memory at other batches."""
        sizes = np.array(batches, dtype=np.float64)
        return step_memory(self.workload, batches=sizes, width=self.width, kind=self.kind).total


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedied:
    """A step with a remedy applied."""

    name: RemedyName
    change: str
    """The change in words."""
    step: Step
    again: tuple[str, ...] = ()
    """Paths of the modules whose forward is computed a second time."""

    @property
    def extra_flops_ratio(self) -> float:
        """Return the recomputed share of the step's FLOP."""
        step, paths = self.step, tuple(f"{path}." for path in self.again)
        if not paths:
            return 0.0
        flops = [(row, float(row_cost(row, batch=step.batch).flops) * row.count) for row in step.workload.rows]
        again = sum(count for row, count in flops if row.phase == "forward" and f"{row.module}.".startswith(paths))
        return again / max(1.0, sum(count for _, count in flops))


def largest_batches(step: Step, *, memory_bytes: float) -> tuple[int, int]:
    """Return the largest batch that surely fits and the largest that may fit; 0 if none does.

    A larger batch never needs less memory. If the step is known only at its own batch, that is the only candidate.
    """
    return _largest(step, "high", memory_bytes=memory_bytes), _largest(step, "low", memory_bytes=memory_bytes)


def _largest(step: Step, end: str, *, memory_bytes: float) -> int:
    def fitting(batches: Sequence[int]) -> list[int]:
        needed = getattr(step.at(batches), end)
        return [batch for batch, size_bytes in zip(batches, needed.tolist(), strict=True) if size_bytes <= memory_bytes]

    if not step.workload.batch_is_affine:
        return max(fitting([step.batch]), default=0)
    fits = max(fitting([1 << exponent for exponent in range(_MOST_BATCH.bit_length())]), default=0)
    too_large = max(1, 2 * fits)
    while fits and too_large - fits > 1 and fits < _MOST_BATCH:
        probes = np.unique(np.linspace(fits + 1, too_large - 1, min(_PROBE_COUNT, too_large - fits - 1)).astype(int))
        best = max(fitting(probes.tolist()), default=fits)
        too_large = min((int(probe) for probe in probes if probe > best), default=too_large)
        fits = best
    return fits


def remedies(step: Step, *, device: Device) -> Iterator[Remedied]:
    """Yield the changes that save memory on this step, cheapest first."""
    needed_bytes = step.peak.mid[0]
    for remedy in (_half_precision, _narrow_weights, _eight_bit_optimizer, _accumulation, _checkpointing, _sharding):
        changed = remedy(step, device)
        if changed is not None and changed.step.peak.mid[0] < needed_bytes:
            yield changed


def _half_precision(step: Step, device: Device) -> Remedied | None:
    """Use autocast in training, where weights stay in fp32, and a 16-bit model for inference."""
    has_half = device.kind == "gpu" or "bf16" in device.peak_flops_per_s
    is_training = step.workload.mode == "training"
    if not has_half or step.width == "half" or (is_training and step.width == "autocast"):
        return None
    width: Width = "autocast" if is_training else "half"
    change = "autocast (--precision amp-bf16)" if is_training else "the whole model in 16 bits (--precision bf16)"
    return Remedied(name="half precision", change=change, step=replace(step, width=width))


def _narrow_weights(step: Step, device: Device) -> Remedied | None:
    """Store the weights of a served language model in 4 bits; kernels compute in 16 bits."""
    generation = step.workload.generation
    if generation is None or generation.weights != "auto":
        return None
    narrow = with_weights(step.workload, "int4")
    return Remedied(name="narrow weights", change="--weights int4", step=replace(step, workload=narrow))


def _eight_bit_optimizer(step: Step, device: Device) -> Remedied | None:
    """Store the optimizer's fp32 state in 8 bits."""

    def shrunk(line: MemoryLine) -> MemoryLine:
        state = line.optimizer_state
        return replace(line, optimizer_state=replace(state, full=scaled(state, _EIGHT_BIT_RATIO).full))

    if device.kind != "gpu" or not any(line.optimizer_state.full[0] for line in step.workload.memory):
        return None
    change = f"{step.workload.optimizer} with its state in 8 bits (bitsandbytes)"
    return Remedied(name="8-bit optimizer", change=change, step=_with_lines(step, shrunk))


def _accumulation(step: Step, device: Device) -> Remedied | None:
    """Accumulate gradients over several micro-batches; the gradients stay in memory from the first to the last."""
    if step.workload.mode != "training" or step.batch == 1 or not step.workload.batch_is_affine:
        return None
    gradients = all_gradients(step.workload)
    kept = _with_lines(step, lambda line: replace(line, gradients=gradients))
    counts = [count for count in _PART_COUNTS if step.batch > count // 2]  # one sample cannot be divided further
    batches = [math.ceil(step.batch / count) for count in counts]
    fits = kept.at(batches).high <= device.memory_bytes
    first = int(fits.argmax()) if fits.any() else -1
    change = f"{counts[first]} passes with {batches[first]} samples each"
    return Remedied(name="gradient accumulation", change=change, step=replace(kept, batch=batches[first]))


def _checkpointing(step: Step, device: Device) -> Remedied | None:
    """Checkpoint each block: keep only its input and recompute it in backward, one block at a time."""
    if step.workload.mode != "training":
        return None
    candidates = [_checkpointed(step, level) for level in _levels(step.workload.blocks)]
    return min(candidates, key=lambda changed: float(changed.step.peak.mid[0]), default=None)


def _checkpointed(step: Step, level: Sequence[Blocks]) -> Remedied:
    """Checkpoint the blocks of one level: each keeps its result, and one at a time keeps all its activations."""
    kept, results = added([blocks.kept for blocks in level]), added([blocks.results for blocks in level])
    at = np.array([step.batch], dtype=np.float64)

    def size(stored: StoredBytes) -> float:
        return float(stored_bytes(stored, batches=at, width="full")[0])

    whole = max((blocks.largest_kept for blocks in level), key=size)
    outside_bytes = max(size(line.activations) for line in step.workload.memory) - size(kept)

    def changed(line: MemoryLine) -> MemoryLine:
        left_ratio = (size(line.activations) - max(0.0, outside_bytes)) / max(1.0, size(kept))
        left_ratio = min(1.0, max(0.0, left_ratio))
        given_up = added([scaled(kept, -left_ratio), scaled(results, left_ratio)])
        activations = added([line.activations, given_up, whole])
        return replace(line, activations=activations) if size(activations) < size(line.activations) else line

    paths = tuple(blocks.path for blocks in level)
    block_count = sum(blocks.count for blocks in level)
    return Remedied(
        name="activation checkpointing",
        change=f"torch.utils.checkpoint on the {block_count} blocks {', '.join(paths)}",
        step=_with_lines(step, changed),
        again=paths,
    )


def _levels(blocks: Sequence[Blocks]) -> list[list[Blocks]]:
    """Return the outermost blocks and, if they differ, the innermost."""
    outer, inner = outermost(blocks), innermost(blocks)
    return [level for level in (outer, inner) if level][: 1 if outer == inner else 2]


def _sharding(step: Step, device: Device) -> Remedied | None:
    """Shard parameters, gradients and optimizer state over several GPUs, each with its share of the batch.

    Parameters that FSDP gathers are whole on each GPU. A served language model and its KV cache are split instead.
    """
    if device.kind != "gpu" or (not step.workload.batch_is_affine and step.batch > 1):
        return None
    count = 2
    while True:
        sharded = _sharded(step, count=count)
        if sharded.peak.high[0] <= device.memory_bytes or count == _PART_COUNTS[-1]:
            change = f"{count} GPUs with FSDP, batch {sharded.batch} on each"
            if step.workload.generation is not None:
                change = f"{count} GPUs with tensor parallelism"
            return Remedied(name="sharding", change=change, step=sharded)
        count *= 2


def _sharded(step: Step, *, count: int) -> Step:
    whole = gathered(step.workload)

    def part(stored: StoredBytes) -> StoredBytes:
        return scaled(stored, 1 / count)

    if step.workload.generation is not None:
        return _with_lines(
            step, lambda line: replace(line, parameters=part(line.parameters), kv_cache=part(line.kv_cache))
        )

    def sharded(line: MemoryLine) -> MemoryLine:
        beside = _NOTHING if line.phase == "optimizer" else whole
        return replace(
            line,
            parameters=added([part(line.parameters), beside]),
            gradients=part(line.gradients),
            optimizer_state=part(line.optimizer_state),
        )

    return replace(_with_lines(step, sharded), batch=math.ceil(step.batch / count))


def _with_lines(step: Step, change: Callable[[MemoryLine], MemoryLine]) -> Step:
    lines = tuple(change(line) for line in step.workload.memory)
    return replace(step, workload=replace(step.workload, memory=lines))
