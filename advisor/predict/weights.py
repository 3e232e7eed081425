"""Applies weight-only quantization to a workload: changes the storage format of the matrices in its repeated blocks.

Kernels read the weights in that format and compute in the precision of the model (Frantar et al., GPTQ, 2022; Lin et
al., AWQ, 2023; Frantar et al., Marlin, 2024). Embedding, norms and output layer are not quantized.
"""

from collections.abc import Mapping
from dataclasses import replace

from advisor.ops.registry import ITEMSIZE_BYTES
from advisor.predict.blocks import block_of
from advisor.predict.row_work import constant_bytes, is_constant
from advisor.records.generation import WeightFormat
from advisor.records.workload import Row, StoredBytes, Workload

_DTYPES: Mapping[WeightFormat, str] = {"bf16": "bfloat16", "fp8": "float8_e4m3fn", "int8": "int8", "int4": "int4"}
_MATRIX_DIMS = 2
"""Dimensions of a weight; a vector is a bias."""


def with_weights(workload: Workload, weights: WeightFormat) -> Workload:
    """Return the workload with weights in this format, in its operands and in its memory; "auto" changes nothing.

    Raises ValueError if the workload already has another format.
    """
    generation = workload.generation
    if generation is None or weights in ("auto", generation.weights):
        return workload
    if generation.weights != "auto":
        raise ValueError(f"{workload.name} has weights in {generation.weights}")
    dtype = _DTYPES[weights]
    stored_bytes = sum(
        row.count * constant_bytes(row.inputs[index], dtype="float32")
        for row in workload.rows
        for index in (_matrices(row) if row.phase == "prefill" else ())
    )
    ratio = ITEMSIZE_BYTES[dtype] / ITEMSIZE_BYTES["float32"]

    def moved(parameters: StoredBytes) -> StoredBytes:
        full, other = parameters.full[0] - stored_bytes, parameters.other[0] + ratio * stored_bytes
        return replace(parameters, full=(full, parameters.full[1]), other=(other, parameters.other[1]))

    return replace(
        workload,
        generation=replace(generation, weights=weights),
        rows=tuple(_stored_in(row, dtype) for row in workload.rows),
        memory=tuple(replace(line, parameters=moved(line.parameters)) for line in workload.memory),
    )


def _matrices(row: Row) -> list[int]:
    """Return the indices of the operands that are fp32 weights of a matmul in a block."""
    if row.family != "matmul" or not block_of(row):
        return []
    return [
        index
        for index, operand in enumerate(row.inputs)
        if operand.dtype == "float32" and is_constant(operand) and len(operand.shape) >= _MATRIX_DIMS
    ]


def _stored_in(row: Row, dtype: str) -> Row:
    chosen = _matrices(row)
    if not chosen:
        return row
    inputs = tuple(
        replace(operand, dtype=dtype) if index in chosen else operand for index, operand in enumerate(row.inputs)
    )
    return replace(row, inputs=inputs)
