"""Counts the bytes that GPUs exchange in one pass of a step."""

from dataclasses import dataclass, replace

from advisor.predict.blocks import outermost
from advisor.predict.precision import Width
from advisor.predict.row_work import constant_bytes
from advisor.predict.step_memory import (
    double_ratio,
    gradient_bytes,
    sparse_gradient_bytes,
    sparse_gradients,
    stored_bytes,
)
from advisor.records.prediction import FloatArray
from advisor.records.scale import Plan
from advisor.records.workload import Workload

_BUCKET_BYTES = 25 * 2**20
"""Bucket size of torch.nn.parallel.DistributedDataParallel, `bucket_cap_mb`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Traffic:
    """Bytes that GPUs exchange in one pass.

    DDP sends gradients as wide as the parameters, in `bucket_count` buckets, of which the last holds
    `last_bucket_bytes`. FSDP all-gathers `gathered_bytes` of parameters and reduce-scatters `scattered_bytes` of
    gradients, in half precision if matrix products are; its units are the `block_count` blocks and the rest.
    `sparse_bytes`, (batches,), are the sparse gradients of `sparse_count` tables: the looked-up rows and their indices.
    `result_bytes`, (batches,), is the output of one block for the whole batch. `block_ratio` is the share of the
    parameters that lies in blocks.
    """

    gradient_bytes: float
    bucket_count: int
    last_bucket_bytes: float
    gathered_bytes: float
    scattered_bytes: float
    block_count: int
    block_ratio: float
    result_bytes: FloatArray
    sparse_bytes: FloatArray | float = 0.0
    sparse_count: int = 0


def traffic_of(workload: Workload, *, batches: FloatArray, width: Width) -> Traffic:
    """Return the traffic of one pass at each of `batches`."""
    blocks = outermost(workload.blocks)
    count = sum(one.count for one in blocks)
    parameter_ratio = gradient_ratio = 1.0
    if width not in ("full", "traced"):
        parameter_ratio = 0.5 - 0.25 * double_ratio(line.parameters for line in workload.memory)
        gradient_ratio = 0.5 - 0.25 * double_ratio(line.gradients for line in workload.memory)
    ddp_ratio = gradient_ratio if width == "half" else 1.0
    all_gradients = gradient_bytes(workload) * ddp_ratio
    bucket_count = max(1, round(all_gradients / _BUCKET_BYTES))
    last = max(all_gradients / bucket_count, _last_gradient_bytes(workload) * ddp_ratio)
    results = sum((stored_bytes(one.results, batches=batches, width=width) for one in blocks), 0.0 * batches)
    return Traffic(
        gradient_bytes=all_gradients,
        bucket_count=bucket_count,
        last_bucket_bytes=min(last, all_gradients),
        gathered_bytes=workload.parameter_bytes * parameter_ratio,
        scattered_bytes=gradient_bytes(workload) * gradient_ratio,
        block_count=count,
        block_ratio=sum(one.parameter_bytes for one in blocks) / max(1, workload.parameter_bytes),
        result_bytes=results / max(1, count),
        sparse_bytes=sparse_gradient_bytes(workload, batches=batches, width="half" if width == "half" else "full"),
        sparse_count=sum(row.count for row in sparse_gradients(workload)),
    )


def _last_gradient_bytes(workload: Workload) -> float:
    """Return the bytes of the last gradient of backward, such as an embedding's: one bucket holds all of it."""
    for row in reversed([row for row in workload.rows if row.phase == "backward"]):
        fixed = [one for one in row.outputs if all(isinstance(dim, int) for dim in one.shape)]
        sizes = [constant_bytes(one, dtype=one.dtype) for one in fixed]
        if any(sizes):
            return max(sizes)
    return 0.0


def part_of(traffic: Traffic, plan: Plan) -> Traffic:
    """Return the traffic of one GPU with the same rank in other groups: its part of the blocks, or its stage."""
    ratio = (1 - traffic.block_ratio * (1 - 1 / plan.tensor)) / plan.pipeline
    gradients = traffic.gradient_bytes * ratio
    return replace(
        traffic,
        gradient_bytes=gradients,
        bucket_count=max(1, round(traffic.bucket_count * ratio)),
        last_bucket_bytes=min(traffic.last_bucket_bytes, gradients),
        gathered_bytes=traffic.gathered_bytes * ratio,
        scattered_bytes=traffic.scattered_bytes * ratio,
    )
