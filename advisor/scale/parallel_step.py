"""Predicts a step on several GPUs from the passes of one GPU, a plan and a fabric."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from advisor.predict.precision import Width
from advisor.records.prediction import PARTS, RECOMPUTED_PARTS, RESOURCES, FloatArray, IndexArray, Predictions
from advisor.records.scale import Fabric, Plan
from advisor.records.workload import Workload
from advisor.scale.collectives import ALL_REDUCES, all_gather_s, all_reduce_s, rank_count, send_s
from advisor.scale.links import fabric_of, inner_fabric, outer_fabric
from advisor.scale.traffic import Traffic, part_of, traffic_of

_DIVIDED = ("inner_forward", "inner_backward")
"""The entries of `PARTS` that tensor parallelism divides."""
_KERNELS = RESOURCES.index("kernels")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Alone:
    """A pass on one GPU alone, (devices, batches); `work_s` is (resources, parts, devices, batches) in seconds.

    Resources and parts are those of `RESOURCES` and `PARTS`. The busiest resource sets the time of the pass.
    """

    step_s: FloatArray
    work_s: FloatArray

    def parts_s(self, *names: str) -> FloatArray:
        """Return the time of the parts with these names.

        A part takes as long as its kernels or its dispatch. Together they may take longer than the pass, in which the
        host runs ahead of long kernels; then they are shortened alike. Copies of inputs run beside all parts.
        """
        part_s = self.work_s[: RESOURCES.index("transfer")].max(axis=0)
        all_s = part_s.sum(axis=0)
        ratio = np.divide(self.step_s, all_s, out=np.ones_like(all_s), where=all_s > self.step_s)
        total_s: FloatArray = np.sum([part_s[PARTS.index(name)] for name in names], axis=0) * ratio
        return total_s

    @property
    def backward_s(self) -> FloatArray:
        """Return the time of backward in one pass."""
        return self.parts_s("backward", "block_backward", "inner_backward")

    @property
    def block_forward_s(self) -> FloatArray:
        """Return the forward time of the blocks, which activation checkpointing recomputes."""
        return self.parts_s(*RECOMPUTED_PARTS)

    def with_work(self, work_s: FloatArray) -> "Alone":
        """Return the pass with other work; the time changes by as much as that of the busiest resource."""
        before_s, after_s = (one.sum(axis=1).max(axis=0) for one in (self.work_s, work_s))
        return Alone(step_s=self.step_s + (after_s - before_s), work_s=work_s)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """A step on all GPUs of a plan, (devices, batches). `waiting_s` is the part in which GPUs wait for each other."""

    step_s: FloatArray
    waiting_s: FloatArray


def spread_part(
    workload: Workload,
    plan: Plan,
    *,
    alone: Predictions,
    rows: Sequence[int] | IndexArray,
    at: IndexArray,
    width: Width,
) -> Spread:
    """Return the step of a workload under `plan` on the devices `rows`, from its predictions on single devices.

    `at` has the index of the batch of one pass in `alone` for each batch of the result.
    """
    return spread_step(
        _alone_at(alone, rows=rows, at=at),
        plan,
        traffic=traffic_of(workload, batches=alone.batches[at].astype(np.float64), width=width),
        fabric=fabric_of([alone.devices[row] for row in rows], plan),
    )


def one_gpu_s(plan: Plan, *, alone: Predictions, rows: Sequence[int], at: IndexArray) -> FloatArray:
    """Return the time in which one GPU of each of the devices `rows` computes all passes of `plan`.

    `at` is as in `spread_part`. The memory of the GPU is taken to suffice.
    """
    return _busy_s(_alone_at(alone, rows=rows, at=at), plan)


def _alone_at(alone: Predictions, *, rows: Sequence[int] | IndexArray, at: IndexArray) -> Alone:
    """Return the passes of these devices at these of the predicted batches."""
    if alone.part_ratio is None:
        raise ValueError("the parts of the step were not counted")
    step_s = alone.step_s[rows][:, at]
    return Alone(step_s=step_s, work_s=alone.part_ratio[:, :, rows][..., at] * step_s)


def spread_step(alone: Alone, plan: Plan, *, traffic: Traffic, fabric: Fabric) -> Spread:
    """Return the step under `plan`; `alone` and `traffic` are those of one pass of one data-parallel GPU.

    With one GPU and one pass, the result equals `alone` exactly.
    """
    if plan.pipeline > 1:
        return _pipeline(alone, plan, traffic=traffic, fabric=fabric)
    part = _tensor_part(alone, plan, traffic=traffic)
    tensor_all_reduce_s = _tensor_all_reduce_s(plan, traffic=traffic, fabric=fabric)
    data_s = _data_parallel_waiting_s(
        part, plan, tensor_all_reduce_s=tensor_all_reduce_s, traffic=part_of(traffic, plan), fabric=fabric
    )
    waiting_s = plan.accumulate * _directions(alone, plan) * tensor_all_reduce_s + data_s
    return Spread(step_s=_busy_s(part, plan) + waiting_s, waiting_s=waiting_s)


def _busy_s(alone: Alone, plan: Plan, *, optimizer_count: float = 1.0) -> FloatArray:
    """Return the time of all passes one after the other, with the recomputation of activation checkpointing.

    The optimizer runs `optimizer_count` times. Its kernels update a GPU's shard of the parameters, but the host
    dispatches as many.
    """
    counts = np.full((*alone.work_s.shape[:2], 1, 1), float(plan.accumulate))
    counts[:, [PARTS.index(name) for name in RECOMPUTED_PARTS]] *= 1 + plan.checkpoint_activations
    counts[:, PARTS.index("optimizer")] = optimizer_count
    if plan.sharding != "none":
        counts[_KERNELS, PARTS.index("optimizer")] /= plan.data
    return alone.with_work(counts * alone.work_s).step_s


def _is_training(alone: Alone) -> bool:
    return bool(np.any(alone.parts_s("optimizer") + alone.backward_s))


def _directions(alone: Alone, plan: Plan) -> int:
    """Return how many times a pass runs through the blocks."""
    return (2 if _is_training(alone) else 1) + plan.checkpoint_activations


def _data_parallel_waiting_s(
    alone: Alone, plan: Plan, *, tensor_all_reduce_s: FloatArray, traffic: Traffic, fabric: Fabric
) -> FloatArray:
    """Return the exposed communication time of data parallelism.

    Communication overlaps with backward, and under FSDP also with forward. It also continues while the GPUs of a
    tensor-parallel group wait for each other, which is `tensor_all_reduce_s` in each direction.
    """
    fabric = outer_fabric(fabric, ways=plan.tensor)
    nothing = 0.0 * alone.step_s
    if plan.data == 1 or not _is_training(alone):
        return nothing
    backward_s = alone.backward_s + tensor_all_reduce_s
    if plan.checkpoint_activations:
        backward_s = backward_s + alone.block_forward_s + tensor_all_reduce_s
    if plan.sharding == "zero3":
        units = traffic.block_count + 1
        gather_s = units * all_gather_s(traffic.gathered_bytes / units, fabric) + nothing
        scatter_s = units * all_gather_s(traffic.scattered_bytes / units, fabric) + nothing
        forward_s = alone.parts_s("forward", "block_forward", "inner_forward") + tensor_all_reduce_s
        of_pass_s = exposed_of_units_s(forward_s, gather_s, unit_count=units)
        return plan.accumulate * (of_pass_s + exposed_of_units_s(backward_s, gather_s + scatter_s, unit_count=units))
    if plan.sharding == "none":
        bucket_s, last_s = _collective_of_buckets(all_reduce_s, traffic, fabric)
        dense_s = exposed_of_buckets_s(backward_s, bucket_s, last_s, bucket_count=traffic.bucket_count)
        return nothing + dense_s + _sparse_exchange_s(plan, traffic=traffic, fabric=fabric)
    bucket_s, last_s = _collective_of_buckets(all_gather_s, traffic, fabric)
    of_pass_s = exposed_of_buckets_s(backward_s, bucket_s, last_s, bucket_count=traffic.bucket_count)
    reductions = plan.accumulate if plan.sharding == "zero2" else 1
    # Each GPU has updated its part of the parameters and sends it to all.
    return reductions * of_pass_s + all_gather_s(traffic.gathered_bytes, fabric)


def _sparse_exchange_s(plan: Plan, *, traffic: Traffic, fabric: Fabric) -> FloatArray | float:
    """Return the time in which every GPU gets the rows that all have looked up: two all-gathers for each table.

    One is of the indices, one of the values. The gradients of embeddings come last in backward, so nothing hides it.
    """
    if not traffic.sparse_count:
        return 0.0
    calls, ranks = 2 * traffic.sparse_count, rank_count(fabric)
    return calls * all_gather_s(ranks * plan.accumulate * traffic.sparse_bytes / calls, fabric)


def _collective_of_buckets(
    collective: Callable[[float, Fabric], FloatArray], traffic: Traffic, fabric: Fabric
) -> tuple[FloatArray, FloatArray]:
    """Return the time of one bucket, and of the last bucket."""
    others = max(1, traffic.bucket_count - 1)
    bucket_bytes = (traffic.gradient_bytes - traffic.last_bucket_bytes) / others
    return collective(bucket_bytes, fabric), collective(traffic.last_bucket_bytes, fabric)


def exposed_of_buckets_s(
    backward_s: FloatArray, bucket_s: FloatArray, last_bucket_s: FloatArray, *, bucket_count: int
) -> FloatArray:
    """Return the exposed time of sending gradient buckets during backward (Li et al., PyTorch Distributed, 2020).

    Buckets become ready at even intervals, the last one at the end of backward. Bucket i waits for its own gradients
    and for the link, so the end is the maximum over i of (ready_i + time of all buckets still to send). With equal
    buckets, either only the last one is left (backward + last bucket), or the link has been busy since the first one
    (backward / count + all buckets).
    """
    all_s = (bucket_count - 1) * bucket_s + last_bucket_s
    done_s = np.maximum(backward_s + last_bucket_s, backward_s / bucket_count + all_s)
    return done_s - backward_s


def exposed_of_units_s(compute_s: FloatArray, link_s: FloatArray, *, unit_count: int) -> FloatArray:
    """Return the exposed time of moving FSDP units while others compute (Zhao et al., PyTorch FSDP, 2023).

    One unit's share is always exposed: the first all-gather of forward, or the last reduce-scatter of backward.
    """
    alone_s = link_s / unit_count
    return np.maximum(compute_s, link_s - alone_s) + alone_s - compute_s


def _tensor_part(alone: Alone, plan: Plan, *, traffic: Traffic) -> Alone:
    """Return the work of one GPU in a tensor-parallel group.

    The matrix products of the blocks and their optimizer step are divided equally. Norms, residual additions and
    everything outside the blocks run on every GPU. The host of each GPU dispatches as many kernels as without a group.
    """
    ratios = {
        **dict.fromkeys(_DIVIDED, 1 / plan.tensor),
        "optimizer": 1 - traffic.block_ratio * (1 - 1 / plan.tensor),
    }
    work_s = alone.work_s.copy()
    work_s[_KERNELS] *= np.array([ratios.get(name, 1.0) for name in PARTS])[:, np.newaxis, np.newaxis]
    return alone.with_work(work_s)


def _tensor_all_reduce_s(plan: Plan, *, traffic: Traffic, fabric: Fabric) -> FloatArray:
    """Return the time of the all-reduces of block results in one direction of a pass.

    They are fully exposed (Shoeybi et al., Megatron-LM, 2019, section 3).
    """
    calls = traffic.block_count * ALL_REDUCES
    return calls * all_reduce_s(traffic.result_bytes, inner_fabric(fabric, ways=plan.tensor))


def _pipeline(alone: Alone, plan: Plan, *, traffic: Traffic, fabric: Fabric) -> Spread:
    """Return the step of a pipeline whose stages have equal work.

    m micro-batches through p stages take (m + p - 1) / m of their time without bubbles (Huang et al., GPipe, 2019).
    With several pipelines, each stage all-reduces its gradients with the same stage of the others after the last
    micro-batch, and this time is fully exposed.
    """
    stages, passes = plan.pipeline, plan.accumulate
    busy_s = _busy_s(alone, plan)
    work_s = _busy_s(alone, plan, optimizer_count=0.0)
    directions = 2 if _is_training(alone) else 1
    sends_s = directions * (stages - 1) * send_s(traffic.result_bytes, fabric.inside)
    gaps_s = work_s / passes * (stages - 1) / stages
    gradients_s = 0.0 * busy_s
    if plan.data > 1 and _is_training(alone):
        gradients_s = gradients_s + all_reduce_s(
            part_of(traffic, plan).gradient_bytes, outer_fabric(fabric, ways=stages)
        )
    waiting_s = gaps_s + sends_s + gradients_s
    return Spread(step_s=busy_s / stages + waiting_s, waiting_s=waiting_s)
