"""Peak memory of a step at a batch size and precision."""

import numpy as np

from advisor.ops.registry import formula_of
from advisor.predict.lowering import is_constant, operand_bytes
from advisor.predict.precision import Width, stored_dtype
from advisor.records.device import DeviceKind
from advisor.records.prediction import FloatArray
from advisor.records.workload import MemoryLine, StoredBytes, Workload

_CUDA_CONTEXT_BYTES = 666_632_192
"""A CUDA context with all of PyTorch's kernels loaded (pytorch/pytorch pull request 86509; 287,047,680 with none)."""
_CPU_PROCESS_BYTES = 1e9
"""Operating system, Python and torch: an idle cloud image takes 0.3 to 0.6 GB, `import torch` 0.2 to 0.4 GB."""
_FRAGMENTATION_RATIO = 0.05
"""Of the peak: the caching allocator rounds blocks up to 512 bytes, large ones to 2 MiB, and splits leave gaps."""


def peak_memory_bytes(workload: Workload, *, batches: FloatArray, width: Width, kind: DeviceKind) -> FloatArray:
    """The most that a step needs, (batches,): tensors with what the allocator adds, and the process itself."""
    copies = _half_copies_bytes(workload, batches=batches) if width == "autocast" else np.zeros(len(batches))
    tensors = np.zeros(len(batches))
    for line in workload.memory:
        live = _line_bytes(line, batches=batches, width=width)
        tensors = np.maximum(tensors, live if line.phase == "optimizer" else live + copies)
    process = _CUDA_CONTEXT_BYTES if kind == "gpu" else _CPU_PROCESS_BYTES
    return tensors * (1 + _FRAGMENTATION_RATIO) + process


def _line_bytes(line: MemoryLine, *, batches: FloatArray, width: Width) -> FloatArray:
    parts = (
        line.parameters,
        line.buffers,
        line.gradients,
        line.optimizer_state,
        line.activations,
        line.temporaries,
    )
    total = np.zeros(len(batches))
    for part in parts:
        total = total + _stored_bytes(part, batches=batches, width=width)
    return total


def _stored_bytes(part: StoredBytes, *, batches: FloatArray, width: Width) -> FloatArray:
    low_ratio = 1.0 if width == "full" else 0.5
    float_ratio = 0.5 if width == "half" else 1.0
    return (
        low_ratio * _at(part.low, batches=batches)
        + float_ratio * _at(part.full, batches=batches)
        + _at(part.other, batches=batches)
    )


def _at(affine: tuple[float, float], *, batches: FloatArray) -> FloatArray:
    constant, per_sample = affine
    return constant + per_sample * batches


def _half_copies_bytes(workload: Workload, *, batches: FloatArray) -> FloatArray:
    """Autocast keeps a half copy of every fp32 parameter that a low-precision operator of forward reads."""
    total = np.zeros(len(batches))
    for row in workload.rows:
        formula = formula_of(row.op)
        if row.phase != "forward" or formula is None or formula.autocast != "low":
            continue
        for operand in row.inputs:
            if is_constant(operand) and stored_dtype(operand, width="autocast") == "float32":
                total = total + row.count * operand_bytes(operand, batches=batches, dtype="float16")
    return total
