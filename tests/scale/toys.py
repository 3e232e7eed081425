"""Steps, plans and fabrics whose figures are easy to work with by hand."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from advisor.records.engine import DirectKernels
from advisor.records.prediction import PARTS
from advisor.records.scale import Fabric, Link
from advisor.records.workload import Blocks, MemoryLine, Row, StoredBytes, Workload
from advisor.scale.parallel_step import Alone
from advisor.scale.traffic import Traffic

BLOCK_COUNT = 4
BLOCK_BYTES = 100
OUTSIDE_BYTES = 80
PARAMETER_BYTES = OUTSIDE_BYTES + BLOCK_COUNT * BLOCK_BYTES
KERNELS = DirectKernels(
    direct_s=2e-6,
    direct_ratio=1.0,
    direct_most_bytes=8e6,
    switch_s=10e-6,
    switch_ratio=0.5,
    switch_most_bytes=64e6,
)
"""The all-reduces of an engine."""


def fabric(*, gpus: int, gb_per_s: float = 100.0, machines: int = 1, network_gb_per_s: float = 50.0) -> Fabric:
    """Links with steps of 1 us inside a machine and 10 us between machines, and only NCCL's protocol Simple."""
    return Fabric(
        gpu_count=gpus,
        inside=simple_link(1e-6, gb_per_s),
        machines=machines,
        between=simple_link(10e-6, network_gb_per_s) if machines > 1 else None,
    )


def simple_link(step_s: float, gb_per_s: float) -> Link:
    """A link that only NCCL's protocol Simple can use."""
    return Link(step_s=(math.inf, math.inf, step_s), bytes_per_s=gb_per_s * 1e9)


def alone(*, dispatch_s: Mapping[str, float] | None = None, copies_s: float = 0.0, **kernels_s: float) -> Alone:
    """One device at one batch, by its kernels and dispatch for the parts of its step; others take no time."""
    resources = (kernels_s, dispatch_s or {}, {"forward": copies_s})
    work_s = np.array([[parts_s.get(name, 0.0) for name in PARTS] for parts_s in resources])
    work_s = work_s[..., np.newaxis, np.newaxis]
    return Alone(step_s=work_s.sum(axis=1).max(axis=0), work_s=work_s)


def traffic(**changes: Any) -> Traffic:
    """1 GB of gradients in 10 buckets; 9 blocks with results of 100 MB."""
    values: dict[str, Any] = {
        "gradient_bytes": 1e9,
        "bucket_count": 10,
        "last_bucket_bytes": 1e8,
        "gathered_bytes": 1e9,
        "scattered_bytes": 1e9,
        "block_count": 9,
        "block_ratio": 0.5,
        "result_bytes": np.array([1e8]),
    }
    return Traffic(**(values | changes))


def workload(**changes: Any) -> Workload:
    """480 bytes of parameters in fp32: 4 blocks of 100 and 80 outside; Adam keeps twice as much.

    Of a sample, blocks keep 10 each, of which they hand 2 on, and 5 are kept outside.
    """
    optimizer = Row(
        op="optimizer",
        family="optimizer",
        phase="optimizer",
        module="",
        inputs=(),
        outputs=(),
        attributes={
            "element_count": PARAMETER_BYTES / 4,
            "calls_per_tensor": 1,
            "write_bytes_per_element": 12.0,
            "state_bytes_per_element": 8.0,
        },
        count=1,
    )
    values: dict[str, Any] = {
        "schema_version": 1,
        "name": "toy",
        "mode": "training",
        "batch": 8,
        "batch_is_affine": True,
        "traced_batches": (8, 16),
        "method": "fake",
        "torch_version": "2.13",
        "parameter_count": PARAMETER_BYTES // 4,
        "parameter_bytes": PARAMETER_BYTES,
        "optimizer": "Adam",
        "inputs": (),
        "rows": (optimizer,),
        "memory": (line("backward", activations=45.0), line("optimizer", gradients=PARAMETER_BYTES)),
        "unknown_ops": {},
        "assumptions": (),
        "blocks": (
            Blocks(
                path="layers.*",
                count=BLOCK_COUNT,
                parameter_bytes=BLOCK_COUNT * BLOCK_BYTES,
                largest_parameter_bytes=BLOCK_BYTES,
                kept=StoredBytes(full=(0.0, 40.0)),
                largest_kept=StoredBytes(full=(0.0, 10.0)),
                results=StoredBytes(full=(0.0, 8.0)),
            ),
        ),
    }
    return Workload(**(values | changes))


def line(phase: Any, *, gradients: float = 0.0, activations: float = 0.0) -> MemoryLine:
    """A moment with all parameters and Adam's state."""
    nothing = StoredBytes()
    return MemoryLine(
        phase=phase,
        parameters=StoredBytes(full=(float(PARAMETER_BYTES), 0.0)),
        buffers=nothing,
        gradients=StoredBytes(full=(gradients, 0.0)),
        optimizer_state=StoredBytes(full=(2.0 * PARAMETER_BYTES, 0.0)),
        activations=StoredBytes(full=(0.0, activations)),
        temporaries=nothing,
    )
