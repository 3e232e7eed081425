"""Finds the largest batch that fits in memory, and the changes that reduce a step's memory."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from advisor.ops.evaluate import row_cost
from advisor.predict.narrow_kernels import runnable
from advisor.predict.precision import Width
from advisor.predict.step_memory import SpreadBytes, compares_samples, scaled, usable_bytes
from advisor.predict.weights import narrower, stored_bits
from advisor.records.device import Device, DeviceKind
from advisor.records.device_memory import RemedyName
from advisor.records.scale import Plan
from advisor.records.workload import MemoryLine, Workload
from advisor.scale.plans import divides_heads
from advisor.scale.sharded_memory import checkpointed_blocks, memory_of_one

_PART_COUNTS = (2, 4, 8, 16, 32, 64)
"""Numbers of passes for gradient accumulation, and of GPUs for sharding."""
_EIGHT_BIT_RATIO = (1 + 4 / 256) / 4
"""Size of 8-bit state relative to fp32: a byte per value and a scale per 256 values (Dettmers et al., 8-bit Optimizers,
2022)."""
_ALONE = Plan()
MOST_BATCH = 2**30
_PROBE_COUNT = 16
"""Batches tried at a time between the largest known to fit and the smallest known not to."""


@dataclass(frozen=True, kw_only=True)  # no slots: `cached_property` needs a `__dict__`
class Step:
    """A workload in a width on a kind of device, which a remedy changes.

    - `batch`: of one device in one pass; `samples` are those of all, if they are more
    """

    workload: Workload
    batch: int
    width: Width
    kind: DeviceKind
    plan: Plan = _ALONE
    samples: int | None = None
    chunked: Workload | None = None
    """The same step of a language model traced with its logits in chunks; None if it was not traced so."""

    @cached_property
    def peak(self) -> SpreadBytes:
        """Return its peak memory; arrays of one element."""
        return self.at([self.batch])

    def at(self, batches: Sequence[int]) -> SpreadBytes:
        """Return its peak memory at other batches."""
        sizes = np.array(batches, dtype=np.float64)
        return memory_of_one(self.workload, self.plan, batches=sizes, width=self.width, kind=self.kind).total


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


def largest_batches(step: Step, *, memory_bytes: float, most: int = MOST_BATCH) -> tuple[int, int]:
    """Return the largest batch, over all devices and passes, that surely fits and the largest that may; 0 if none does.

    A larger batch never needs less memory. If the step is known only at its own batch, that is the only candidate.
    `most` is the largest batch of one device in one pass that its engine takes.
    """
    parts = step.plan.data * step.plan.accumulate
    surely, perhaps = (parts * min(most, _largest(step, end, memory_bytes=memory_bytes)) for end in ("high", "low"))
    return surely, perhaps


def _largest(step: Step, end: str, *, memory_bytes: float) -> int:
    def fitting(batches: Sequence[int]) -> list[int]:
        needed = getattr(step.at(batches), end)
        return [batch for batch, size_bytes in zip(batches, needed.tolist(), strict=True) if size_bytes <= memory_bytes]

    if not step.workload.batch_is_affine:
        return max(fitting([step.batch]), default=0)
    fits = max(fitting([1 << exponent for exponent in range(MOST_BATCH.bit_length())]), default=0)
    too_large = max(1, 2 * fits)
    while fits and too_large - fits > 1 and fits < MOST_BATCH:
        probes = np.unique(np.linspace(fits + 1, too_large - 1, min(_PROBE_COUNT, too_large - fits - 1)).astype(int))
        best = max(fitting(probes.tolist()), default=fits)
        too_large = min((int(probe) for probe in probes if probe > best), default=too_large)
        fits = best
    return fits


def remedies(step: Step, *, device: Device) -> Iterator[Remedied]:
    """Yield the changes that save memory on this step, cheapest first."""
    needed_bytes = step.peak.mid[0]
    for remedy in (
        _half_precision,
        _narrow_weights,
        _chunked_logits,
        _eight_bit_optimizer,
        _accumulation,
        _checkpointing,
        _sharding,
    ):
        changed = remedy(step, device)
        if changed is not None and changed.step.peak.mid[0] < needed_bytes:
            yield changed


def _half_precision(step: Step, device: Device) -> Remedied | None:
    """Use autocast in training, where weights stay in fp32, and a 16-bit model for inference."""
    has_half = device.kind == "gpu" or "bf16" in device.peak_flops_per_s
    is_training = step.workload.mode == "training"
    if not has_half or step.width in ("half", "traced") or (is_training and step.width == "autocast"):
        return None
    width: Width = "autocast" if is_training else "half"
    change = "autocast (--precision amp-bf16)" if is_training else "the whole model in 16 bits (--precision bf16)"
    return Remedied(name="half precision", change=change, step=replace(step, width=width))


def _narrow_weights(step: Step, device: Device) -> Remedied | None:
    """Store the weights of a served language model in the fewest bits for which the engine has kernels.

    A format that the user chose stays.
    """
    generation = step.workload.generation
    if generation is None or generation.engine is None or not generation.has_default_weights:
        return None
    stored = narrower(step.workload, runnable(generation.engine, device))
    if not stored:
        return None
    weights = min(stored, key=lambda one: int(stored_bits(one)))
    return Remedied(name="narrow weights", change=f"--weights {weights}", step=replace(step, workload=stored[weights]))


def _chunked_logits(step: Step, device: Device) -> Remedied | None:
    """Compute the output layer and the loss in chunks of tokens, so that the logits are never all in memory."""
    if step.chunked is None:
        return None
    change = "logits in chunks (--trainer-kernels liger)"
    return Remedied(name="chunked logits", change=change, step=replace(step, workload=step.chunked, chunked=None))


def _eight_bit_optimizer(step: Step, device: Device) -> Remedied | None:
    """Store the optimizer's fp32 state in 8 bits."""

    def shrunk(line: MemoryLine) -> MemoryLine:
        state = line.optimizer_state
        return replace(line, optimizer_state=replace(state, full=scaled(state, _EIGHT_BIT_RATIO).full))

    if device.kind != "gpu" or not any(line.optimizer_state.full[0] for line in step.workload.memory):
        return None
    change = f"{step.workload.optimizer} with its state in 8 bits (bitsandbytes)"
    workload = replace(step.workload, memory=tuple(map(shrunk, step.workload.memory)))
    return Remedied(name="8-bit optimizer", change=change, step=replace(step, workload=workload))


def _accumulation(step: Step, device: Device) -> Remedied | None:
    """Accumulate gradients over several micro-batches."""
    plan = step.plan
    most = (step.samples or step.batch) // (plan.data * plan.accumulate)  # one sample cannot be divided further
    is_split = most > 1 and step.workload.batch_is_affine and plan.pipeline == 1
    if step.workload.mode != "training" or not is_split:
        return None
    counts = list(dict.fromkeys(min(count, most) for count in _PART_COUNTS))
    batches = [math.ceil(step.batch / count) for count in counts]
    kept = replace(step, plan=replace(plan, accumulate=2))  # the gradients stay, for any number of passes
    fits = kept.at(batches).high <= usable_bytes(device, step.workload)
    first = int(fits.argmax()) if fits.any() else -1
    plan = replace(plan, accumulate=plan.accumulate * counts[first])
    alone = ", which the loss compares only among themselves" if compares_samples(step.workload) else ""
    samples = "1 sample" if batches[first] == 1 else f"{batches[first]} samples"
    change = f"{plan.accumulate} passes with {samples} each{alone}"
    return Remedied(name="gradient accumulation", change=change, step=replace(step, plan=plan, batch=batches[first]))


def _checkpointing(step: Step, device: Device) -> Remedied | None:
    """Checkpoint each block: keep only its input and recompute it in backward, one block at a time."""
    blocks = checkpointed_blocks(step.workload)
    if step.workload.mode != "training" or not blocks or step.plan.checkpoint_activations:
        return None
    paths = tuple(one.path for one in blocks)
    return Remedied(
        name="activation checkpointing",
        change=f"torch.utils.checkpoint on the {sum(one.count for one in blocks)} blocks {', '.join(paths)}",
        step=replace(step, plan=replace(step.plan, checkpoint_activations=True)),
        again=paths,
    )


def _sharding(step: Step, device: Device) -> Remedied | None:
    """Shard the step over the fewest GPUs on which the ranking would let it run, each with its share of the batch.

    Training is sharded fully (FSDP). Inference is split by tensor parallelism.
    """
    workload, plan = step.workload, step.plan
    is_training, ranks = workload.mode == "training", plan.gpu_count
    is_split = ranks > plan.data or (step.batch > 1 and not workload.batch_is_affine)
    if device.kind != "gpu" or (is_training and is_split):
        return None
    shared: list[tuple[int, Step]] = []
    for count in _PART_COUNTS:
        split = replace(plan, data=count, sharding="zero3") if is_training else Plan(tensor=count)
        if count < ranks or split == plan or not divides_heads(workload, split.tensor):
            continue
        batch = math.ceil(step.batch * plan.data / split.data)
        shared.append((count, replace(step, plan=split, batch=batch)))
        if shared[-1][1].peak.mid[0] <= usable_bytes(device, workload):
            break
    if not shared:
        return None
    count, found = shared[-1]
    how = f"FSDP, batch {found.batch} on each" if is_training else "tensor parallelism"
    return Remedied(name="sharding", change=f"{count} GPUs with {how}", step=found)
