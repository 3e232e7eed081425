"""One GPU's passes, a plan and a fabric in, the step of all GPUs together out."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from advisor.records.prediction import PARTS, FloatArray
from advisor.records.scale import Fabric, Plan
from advisor.scale.collectives import all_gather_s, all_reduce_s, send_s
from advisor.scale.links import inner_fabric, outer_fabric
from advisor.scale.overlap import exposed_of_buckets_s, exposed_of_units_s
from advisor.scale.traffic import Traffic, part_of

_TENSOR_ALL_REDUCES = 2
"""Of a block in forward, and as many in backward: after attention and after the feed-forward layers (Megatron-LM)."""
_DIVIDED = ("inner_forward", "inner_backward")
"""Of `PARTS`, what tensor parallelism divides."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alone:
    """What the passes take on one GPU by itself, (devices, batches); `part_s` is by `PARTS`.

    The KV cache, where there is one, has `kv_head_count` heads.
    """

    step_s: FloatArray
    part_s: FloatArray
    kv_head_count: int = 1

    def parts_s(self, *names: str) -> FloatArray:
        """The sum of some parts."""
        total: FloatArray = np.sum([self.part_s[PARTS.index(name)] for name in names], axis=0)
        return total

    @property
    def optimizer_s(self) -> FloatArray:
        """Once in a step, however many passes it has."""
        return self.parts_s("optimizer")

    @property
    def backward_s(self) -> FloatArray:
        """Backward of one pass."""
        return self.parts_s("backward", "block_backward", "inner_backward")

    @property
    def block_forward_s(self) -> FloatArray:
        """What checkpoints compute again."""
        return self.parts_s("block_forward", "inner_forward")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """A step on all GPUs of a plan, (devices, batches). `waiting_s` of it GPUs wait for each other's data.

    `efficiency_ratio`: how long the step would take if GPUs never waited and all work were divided, over how long it
    takes.
    """

    step_s: FloatArray
    waiting_s: FloatArray
    efficiency_ratio: FloatArray


def spread_step(alone: Alone, plan: Plan, *, traffic: Traffic, fabric: Fabric) -> Spread:
    """The step at `plan`, where `alone` and `traffic` are of what one pass hands to a data-parallel GPU.

    With one GPU and one pass it is `alone`, to the last digit.
    """
    if plan.pipeline > 1:
        return _pipeline(alone, plan, traffic=traffic, fabric=fabric)
    part = _tensor_part(alone, plan, traffic=traffic)
    told_s = _told_s(plan, traffic=traffic, fabric=fabric)
    data_s = _data_parallel_waiting_s(part, plan, told_s=told_s, traffic=part_of(traffic, plan), fabric=fabric)
    waiting_s = plan.accumulate * _directions(alone, plan) * told_s + data_s
    step_s = _busy_s(part, plan) - _saved_s(part, plan) + waiting_s
    ideal_s = (_busy_s(alone, plan) - _saved_s(alone, plan)) / plan.tensor
    return Spread(step_s=step_s, waiting_s=waiting_s, efficiency_ratio=ideal_s / step_s)


def _busy_s(alone: Alone, plan: Plan) -> FloatArray:
    """All passes one after the other, and what checkpoints compute again."""
    in_row_s = (plan.accumulate - 1) * (alone.step_s - alone.optimizer_s)
    again_s = plan.accumulate * alone.block_forward_s if plan.checkpoint_activations else 0.0 * alone.step_s
    busy_s: FloatArray = alone.step_s + in_row_s + again_s
    return busy_s


def _saved_s(alone: Alone, plan: Plan) -> FloatArray:
    """What a GPU that keeps but a shard of the optimizer's state does not step."""
    saved_s: FloatArray = (0.0 if plan.sharding == "none" else 1 - 1 / plan.data) * alone.optimizer_s
    return saved_s


def _is_training(alone: Alone) -> bool:
    return bool(np.any(alone.optimizer_s + alone.backward_s))


def _directions(alone: Alone, plan: Plan) -> int:
    """How often a pass goes through the blocks."""
    return (2 if _is_training(alone) else 1) + plan.checkpoint_activations


def _data_parallel_waiting_s(
    alone: Alone, plan: Plan, *, told_s: FloatArray, traffic: Traffic, fabric: Fabric
) -> FloatArray:
    """What communication adds: all of it beside backward, and under FSDP beside forward too, but for its tail.

    While the GPUs of a tensor-parallel group wait for each other, for `told_s` in each direction, it goes on.
    """
    fabric = outer_fabric(fabric, ways=plan.tensor)
    nothing = 0.0 * alone.step_s
    if plan.data == 1 or not _is_training(alone):
        return nothing
    backward_s = alone.backward_s + told_s
    if plan.checkpoint_activations:
        backward_s = backward_s + alone.block_forward_s + told_s
    if plan.sharding == "zero3":
        units = traffic.block_count + 1
        gather_s = units * all_gather_s(traffic.gathered_bytes / units, fabric) + nothing
        scatter_s = units * all_gather_s(traffic.scattered_bytes / units, fabric) + nothing
        forward_s = alone.parts_s("forward", "block_forward", "inner_forward") + told_s
        of_pass_s = exposed_of_units_s(forward_s, gather_s, unit_count=units)
        return plan.accumulate * (of_pass_s + exposed_of_units_s(backward_s, gather_s + scatter_s, unit_count=units))
    if plan.sharding == "none":
        bucket_s, last_s = _collective_of_buckets(all_reduce_s, traffic, fabric)
        return nothing + exposed_of_buckets_s(backward_s, bucket_s, last_s, bucket_count=traffic.bucket_count)
    bucket_s, last_s = _collective_of_buckets(all_gather_s, traffic, fabric)
    of_pass_s = exposed_of_buckets_s(backward_s, bucket_s, last_s, bucket_count=traffic.bucket_count)
    reductions = plan.accumulate if plan.sharding == "zero2" else 1
    # Each GPU has stepped its part of the parameters and hands it to all.
    return reductions * of_pass_s + all_gather_s(traffic.gathered_bytes, fabric)


def _collective_of_buckets(
    collective: Callable[[float, Fabric], FloatArray], traffic: Traffic, fabric: Fabric
) -> tuple[FloatArray, FloatArray]:
    """The seconds of a bucket, and of the last one."""
    others = max(1, traffic.bucket_count - 1)
    bucket_bytes = (traffic.gradient_bytes - traffic.last_bucket_bytes) / others
    return collective(bucket_bytes, fabric), collective(traffic.last_bucket_bytes, fabric)


def _tensor_part(alone: Alone, plan: Plan, *, traffic: Traffic) -> Alone:
    """What one GPU of a tensor-parallel group computes: blocks' products in equal parts, and the optimizer's step of
    them; norms, residual additions and what is outside blocks on each.

    Of the KV cache each reads whole heads; where there are fewer of these than GPUs, some read the same (vLLM's
    `QKVParallelLinear`).
    """
    ratios = {
        **dict.fromkeys(_DIVIDED, 1 / plan.tensor),
        "cached_forward": 1 / min(plan.tensor, alone.kv_head_count),
        "optimizer": 1 - traffic.block_ratio * (1 - 1 / plan.tensor),
    }
    part_s = alone.part_s * np.array([ratios.get(name, 1.0) for name in PARTS])[:, np.newaxis, np.newaxis]
    return replace(alone, step_s=alone.step_s - np.sum(alone.part_s - part_s, axis=0), part_s=part_s)


def _told_s(plan: Plan, *, traffic: Traffic, fabric: Fabric) -> FloatArray:
    """All-reduces of the blocks' results in one direction of a pass: they have nothing to hide behind (Shoeybi et al.,
    Megatron-LM, 2019, section 3)."""
    calls = traffic.block_count * _TENSOR_ALL_REDUCES
    return calls * all_reduce_s(traffic.result_bytes, inner_fabric(fabric, ways=plan.tensor))


def _pipeline(alone: Alone, plan: Plan, *, traffic: Traffic, fabric: Fabric) -> Spread:
    """Stages of equal work, one after the other: the first pass has to go through all, the others follow it.

    m passes through p stages take (m + p - 1) / m of what they do without gaps (Huang et al., GPipe, 2019). Where
    several pipelines run side by side, each stage adds its gradients up with its like after the last pass, and nothing
    hides that.
    """
    stages, passes = plan.pipeline, plan.accumulate
    busy_s = _busy_s(alone, plan)
    work_s = busy_s - alone.optimizer_s
    directions = 2 if _is_training(alone) else 1
    sends_s = directions * (stages - 1) * send_s(traffic.result_bytes, fabric)
    gaps_s = work_s / passes * (stages - 1) / stages
    gradients_s = 0.0 * busy_s
    if plan.data > 1 and _is_training(alone):
        gradients_s = gradients_s + all_reduce_s(
            part_of(traffic, plan).gradient_bytes, outer_fabric(fabric, ways=stages)
        )
    waiting_s = gaps_s + sends_s + gradients_s
    ideal_s = (busy_s - _saved_s(alone, plan)) / stages
    step_s = ideal_s + waiting_s
    return Spread(step_s=step_s, waiting_s=waiting_s, efficiency_ratio=ideal_s / step_s)
