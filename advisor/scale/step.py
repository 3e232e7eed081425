"""One GPU's passes, a plan and a fabric in, the step of all GPUs together out."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from advisor.records.prediction import PARTS, FloatArray
from advisor.records.scale import Fabric, Plan
from advisor.scale.collectives import all_gather_s, all_reduce_s, send_s
from advisor.scale.overlap import exposed_of_buckets_s, exposed_of_units_s
from advisor.scale.traffic import Traffic

_TENSOR_ALL_REDUCES = 2
"""Of a block in forward, and as many in backward: after attention and after the feed-forward layers (Megatron-LM)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alone:
    """What the passes take on one GPU by itself, (devices, batches); `part_s` is by `PARTS`."""

    step_s: FloatArray
    part_s: FloatArray

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
    in_row_s = (plan.accumulate - 1) * (alone.step_s - alone.optimizer_s)
    again_s = plan.accumulate * alone.block_forward_s if plan.checkpoint_activations else 0.0 * alone.step_s
    busy_s = alone.step_s + in_row_s + again_s
    if plan.tensor > 1:
        return _tensor_parallel(alone, busy_s, plan, traffic=traffic, fabric=fabric)
    if plan.pipeline > 1:
        return _pipeline(alone, busy_s, plan, traffic=traffic, fabric=fabric)
    waiting_s = _data_parallel_waiting_s(alone, plan, traffic=traffic, fabric=fabric)
    saved_s = 0.0 if plan.sharding == "none" else alone.optimizer_s * (1 - 1 / plan.data)
    step_s = busy_s - saved_s + waiting_s
    return Spread(step_s=step_s, waiting_s=waiting_s, efficiency_ratio=1 - waiting_s / step_s)


def _data_parallel_waiting_s(alone: Alone, plan: Plan, *, traffic: Traffic, fabric: Fabric) -> FloatArray:
    """What communication adds: all of it beside backward, and under FSDP beside forward too, but for its tail."""
    nothing = 0.0 * alone.step_s
    backward_s = alone.backward_s
    is_training = bool(np.any(alone.part_s[PARTS.index("optimizer")] + backward_s))
    if plan.data == 1 or not is_training:
        return nothing
    if plan.checkpoint_activations:
        backward_s = backward_s + alone.block_forward_s
    if plan.sharding == "zero3":
        units = traffic.block_count + 1
        gather_s = units * all_gather_s(traffic.gathered_bytes / units, fabric) + nothing
        scatter_s = units * all_gather_s(traffic.scattered_bytes / units, fabric) + nothing
        forward_s = alone.parts_s("forward", "block_forward", "inner_forward")
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


def _tensor_parallel(alone: Alone, busy_s: FloatArray, plan: Plan, *, traffic: Traffic, fabric: Fabric) -> Spread:
    """Blocks' products in equal parts on all GPUs; norms, residual additions and what is outside blocks on each.

    All-reduces of the blocks' results have nothing to hide behind (Shoeybi et al., Megatron-LM, 2019, section 3).
    """
    passes = plan.accumulate
    is_training = bool(np.any(alone.backward_s))
    inner_s = passes * alone.parts_s("inner_forward", "inner_backward")
    directions = 2 if is_training else 1
    if plan.checkpoint_activations:
        inner_s = inner_s + passes * alone.parts_s("inner_forward")
        directions += 1
    divided_s = inner_s + alone.optimizer_s * traffic.block_ratio
    calls = passes * traffic.block_count * directions * _TENSOR_ALL_REDUCES
    waiting_s = calls * all_reduce_s(traffic.result_bytes, fabric) + 0.0 * busy_s
    step_s = busy_s - divided_s * (1 - 1 / plan.tensor) + waiting_s
    return Spread(step_s=step_s, waiting_s=waiting_s, efficiency_ratio=busy_s / plan.tensor / step_s)


def _pipeline(alone: Alone, busy_s: FloatArray, plan: Plan, *, traffic: Traffic, fabric: Fabric) -> Spread:
    """Stages of equal work, one after the other: the first pass has to go through all, the others follow it.

    m passes through p stages take (m + p - 1) / m of what they do without gaps (Huang et al., GPipe, 2019).
    """
    stages, passes = plan.pipeline, plan.accumulate
    work_s = busy_s - alone.optimizer_s
    directions = 2 if np.any(alone.backward_s) else 1
    sends_s = directions * (stages - 1) * send_s(traffic.result_bytes, fabric)
    gaps_s = work_s / passes * (stages - 1) / stages
    step_s = busy_s / stages + gaps_s + sends_s
    return Spread(step_s=step_s, waiting_s=gaps_s + sends_s, efficiency_ratio=busy_s / stages / step_s)
