"""Devices, efficiencies and workloads with round numbers, for the tests of prediction."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from advisor.predict.efficiency import _STAND_INS, BY_TOKEN, QUANTIZED_PRODUCT
from advisor.predict.kernel_time import TERMS, UNITS, Kernels, kernels_of
from advisor.records.device import Device, DeviceKind, Efficiency, FamilyEfficiency
from advisor.records.workload import MemoryLine, Operand, Phase, Row, StoredBytes, Workload

NOTHING = StoredBytes()
KNOWN_FAMILIES = {*_STAND_INS, *chain(*_STAND_INS.values()), *BY_TOKEN, QUANTIZED_PRODUCT}
"""The kernel families that prediction knows, beside those of operators."""


def device(*, kind: DeviceKind = "gpu", **changes: Any) -> Device:
    """1 TFLOP/s in every unit, 100 GB/s, 1 TB, copies at 10 GB/s."""
    values: dict[str, Any] = {
        "id": "toy",
        "name": "Toy",
        "vendor": "Acme",
        "generation": "First",
        "core_count": 4,
        "peak_flops_per_s": dict.fromkeys(UNITS, 1e12),
        "memory_bytes": 1e12,
        "memory_bytes_per_s": 1e11,
        "cache_bytes": 0.0,
        "host_to_device_bytes_per_s": 1e10 if kind == "gpu" else None,
    }
    return Device(kind=kind, **(values | changes))


def family(*, compute_ratio: float = 1.0, memory_ratio: float = 1.0, log_spread: float = 0.0) -> FamilyEfficiency:
    return FamilyEfficiency(
        compute_ratio=compute_ratio, memory_ratio=memory_ratio, log_spread=log_spread, n=1, source="by hand"
    )


def efficiency(*, kind: DeviceKind = "gpu", **changes: Any) -> Efficiency:
    """Everything at its peak, nothing but the work takes time, no error."""
    values: dict[str, Any] = {
        "vendor": "*",
        "generation": "*",
        "precision": "*",
        "families": {"*": family()},
        "dispatch_s": 0.0,
        "backward_dispatch_s": 0.0,
        "launch_s": 0.0,
        "device_log_spread": 0.0,
        "date": "2026-01-01",
        "source": "by hand",
    }
    return Efficiency(kind=kind, **(values | changes))


def kernels(*, flops: Any, data_bytes: Any, **changes: Any) -> Kernels:
    """Kernels (kernels, batches) of one family on the vector unit, each called once, of which none is a product."""
    work = np.array(flops, dtype=np.float64)
    count, batches = work.shape
    idle = kernels_of(
        [{"family": "pointwise", "unit": "vector", "row": row, "calls": 1.0} for row in range(count)],
        batch_count=batches,
        **{name: np.zeros(batches) for name, term in TERMS.items() if term.of.startswith("step")},
    )
    return replace(idle, flops=work, data_bytes=np.array(data_bytes, dtype=np.float64), **changes)


def operand(*shape: Any, **changes: Any) -> Operand:
    return Operand(shape=shape, **({"dtype": "float32"} | changes))


def row(
    op: str,
    inputs: tuple[Operand, ...] = (),
    outputs: tuple[Operand, ...] = (),
    *,
    family: str,
    phase: Phase = "forward",
    count: int = 1,
    attributes: Mapping[str, Any] | None = None,
) -> Row:
    return Row(
        op=op,
        family=family,
        phase=phase,
        module="",
        inputs=inputs,
        outputs=outputs,
        attributes=attributes or {},
        count=count,
    )


def linear_row(**changes: Any) -> Row:
    """addmm of a bias (16,), data (batch, 8) and a weight (8, 16): 2 x 8 x 16 = 256 FLOP per sample."""
    data, weight, bias, result = operand((0.0, 1.0), 8), operand(8, 16), operand(16), operand((0.0, 1.0), 16, low=True)
    return row("aten.addmm", (bias, data, weight), (result,), family="matmul", **changes)


def memory_line(*, phase: Phase = "forward", **parts: StoredBytes) -> MemoryLine:
    names = ("parameters", "buffers", "gradients", "optimizer_state", "activations", "temporaries")
    return MemoryLine(phase=phase, **(dict.fromkeys(names, NOTHING) | parts))


def workload(*rows: Row, **changes: Any) -> Workload:
    values: dict[str, Any] = {
        "schema_version": 1,
        "name": "toy",
        "mode": "inference",
        "batch": 1,
        "batch_is_affine": True,
        "traced_batches": (1, 2),
        "method": "fake",
        "torch_version": "2",
        "parameter_count": 0,
        "parameter_bytes": 0,
        "optimizer": None,
        "inputs": (),
        "memory": (memory_line(),),
        "unknown_ops": {},
        "assumptions": (),
    }
    return Workload(rows=rows, **(values | changes))
