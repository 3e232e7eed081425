"""Resolves the precision in which a step runs on a device, the dtype of every operand and the unit that computes."""

from collections.abc import Callable, Iterable, Sequence
from typing import Literal

from advisor.ops.registry import Autocast
from advisor.records.device import Device, DeviceKind, Precision
from advisor.records.options import PrecisionChoice
from advisor.records.script import Script
from advisor.records.workload import Operand, Row, Workload

Width = Literal["full", "autocast", "autocast on CPUs", "half", "traced"]
"""Which operands are stored in 16 bits: none, those that autocast casts (as on GPUs, or as on CPUs), all, or those of a
16-bit model's trace."""
AUTOCASTS = ("autocast", "autocast on CPUs")

HALF_UNITS: dict[Precision, str] = {"amp-fp16": "fp16", "amp-bf16": "bf16", "fp16": "fp16", "bf16": "bf16"}
"""The unit that computes in 16 bits, by the precision that does."""
_WIDTHS: dict[Precision, Width] = {
    "fp32": "full", "cudnn-tf32": "full", "tf32": "full",
    "amp-fp16": "autocast", "amp-bf16": "autocast",
    "fp16": "half", "bf16": "half",
}  # fmt: skip
_PACKED_HALF_PER_FP32 = 2.0
"""A 32-bit lane holds two 16-bit values, so a higher rate can only come from tensor cores."""
MATRIX_FAMILIES = frozenset({"matmul", "conv", "attention", "rnn"})
"""Families that run on matrix units if the device has any."""
_CUDNN_FAMILIES = frozenset({"conv", "rnn"})
"""Families that torch runs with cuDNN, where TF32 is allowed by default (PyTorch docs, "CUDA semantics", TF32)."""
_BLAS_FAMILY = "matmul"
"""The family that a CPU computes in fp32 with MKL. Others use oneDNN or torch's own code, with the full SIMD width."""
NARROW_UNITS = {"int8": "int8", "uint8": "int8", "float8_e4m3fn": "fp8", "float8_e5m2": "fp8"}
"""The units that multiply operands of 8 bits."""
FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})
_TF32_IN_CUDNN = frozenset({"cudnn-tf32", "amp-fp16", "amp-bf16"})
"""Precisions in which cuDNN multiplies fp32 operands in TF32 on GPUs that have it (same docs)."""


def precisions_of(
    choice: PrecisionChoice, device: Device, *, rows: Sequence[Row], script: Script | None = None
) -> tuple[Precision, ...]:
    """Return the precisions that the choice allows a step of these rows on the device; none if it cannot run it.

    auto: as the script runs; without one, torch's default fp32, and autocast if the device has units for it and torch
    does not refuse it. Every other choice is one precision.
    """
    uses_cudnn = "tf32" in device.peak_flops_per_s and any(row.family in _CUDNN_FAMILIES for row in rows)
    plain: Precision = "cudnn-tf32" if uses_cudnn else "fp32"
    if choice == "auto" and script is not None and (own := script.precision_on(device.kind)) is not None:
        precision = plain if own == "cudnn-tf32" else resolve_precision(own, device)
        return () if precision is None else (precision,)
    if choice != "auto":
        precision = resolve_precision(choice, device)
        return () if precision is None else (precision,)
    autocast = None if device.kind == "cpu" and refuses_autocast_on_cpus(rows) else autocast_precision(device)
    return (plain,) if autocast is None else (plain, autocast)


def refuses_autocast_on_cpus(rows: Iterable[Row]) -> bool:
    """Return whether torch refuses to run the rows under autocast on a CPU: encoder layers on a padded, nested batch.

    CPU autocast does not switch the fast path off (`is_autocast_enabled()` in torch/nn/modules/transformer.py asks for
    that of GPUs), and `_transformer_encoder_layer_fwd` then raises "expected scalar type Float but found BFloat16"
    (torch 2.13). A batch is nested if its padding comes last, which a trace does not know, and takes for granted.
    """
    ops = {row.op for row in rows}
    return "encoder_layer" in ops and any(op.startswith("aten._nested_tensor_from_mask") for op in ops)


def resolve_precision(choice: PrecisionChoice, device: Device) -> Precision | None:
    """Return the precision in which the step runs, or None if the device cannot run the requested one.

    auto: autocast, or fp32 if the device has no units for it. amp-bf16: bf16 on a device that compiles whole models.
    half: the whole model in bf16 if native, else in fp16 on GPUs, else in fp32. tf32: fp32 on devices without TF32, as
    in torch. A GPU without 16-bit units stores 16 bits and computes in fp32, as cuDNN and cuBLAS do.
    """
    peaks = device.peak_flops_per_s
    if choice == "auto":
        return autocast_precision(device) or "fp32"
    if choice == "amp-bf16" and device.stack is not None:
        return autocast_precision(device)
    if choice == "half":
        return "bf16" if "bf16" in peaks else "fp16" if device.kind == "gpu" else "fp32"
    if choice in ("cudnn-tf32", "tf32"):
        return choice if "tf32" in peaks else "fp32"
    if choice == "fp32":
        return choice
    return choice if device.kind == "gpu" or HALF_UNITS[choice] in peaks else None


def autocast_precision(device: Device) -> Precision | None:
    """Return autocast in bf16 if native, else in fp16 on tensor cores; None if the device has neither.

    A compiler of whole models, such as torch-neuronx, casts weights once and activations on the chip: all is bf16.
    """
    peaks = device.peak_flops_per_s
    if "bf16" in peaks:
        return "amp-bf16" if device.stack is None else "bf16"
    if peaks.get("fp16", 0.0) > _PACKED_HALF_PER_FP32 * peaks["vector"] * 1.01:  # datasheets round
        return "amp-fp16"
    return None


def width_of(precision: Precision, workload: Workload | None = None) -> Width:
    """Return which operands the precision stores in 16 bits on a GPU; fp16 and bf16 do not differ.

    A model that was traced in 16 bits keeps what its code computes in fp32, such as norms and losses. The memory of a
    step on a CPU is counted at this width too, although its autocast keeps the results of norms and softmax in 16 bits.
    """
    width = _WIDTHS[precision]
    if workload is None or not workload.is_half:
        return width
    gathers_half = workload.fine_tuning is not None and workload.fine_tuning.fp32_shards
    return "traced" if width == "half" or gathers_half else width


def computed_width(precision: Precision, workload: Workload, *, kind: DeviceKind) -> Width:
    """Return which operands are stored in 16 bits on this kind of device: as `width_of`, with autocast as on CPUs."""
    width = width_of(precision, workload)
    return "autocast on CPUs" if width == "autocast" and kind == "cpu" else width


def stored_dtype(operand: Operand, *, width: Width) -> str:
    """Return the dtype of the operand in memory between operators; "float16" also stands for bfloat16."""
    if (width == "half" and operand.dtype in FLOATS) or (width == "traced" and operand.dtype == "bfloat16"):
        return "float16"
    is_low = operand.low != (operand.other_on_cpus and width == "autocast on CPUs")
    return "float16" if width in AUTOCASTS and is_low and operand.dtype == "float32" else operand.dtype


def compiled_dtype(operand: Operand, *, width: Width) -> str:
    """Return the dtype of the operand in memory between the kernels of torch.compile.

    Under autocast on CPUs, most of the activations that are `widened` count as too expensive to compute again.
    """
    if operand.widened and width not in ("full", "autocast on CPUs"):
        return "float32"
    is_narrow = width in AUTOCASTS and operand.narrowed and operand.dtype == "float32"
    return "float16" if is_narrow else stored_dtype(operand, width=width)


def computed_dtype(*, width: Width, autocast: Autocast) -> Callable[[Operand], str]:
    """Return a function that gives each operand's dtype in an operator with this autocast policy."""
    if width not in AUTOCASTS or autocast == "widest":
        return lambda operand: stored_dtype(operand, width=width)
    target = "float16" if autocast == "low" else "float32"
    return lambda operand: target if operand.dtype == "float32" else operand.dtype


def computing_family(row: Row, *, kind: DeviceKind) -> str:
    """Return the family for which `unit_of` finds the unit of the row.

    On a CPU, attention, torch's fast paths for encoders among it, and GRU and plain recurrent layers count as matmuls,
    since they run in MKL; an LSTM runs in oneDNN (ATen's FlashAttentionKernel.cpp and RNN.cpp).
    """
    is_cell = row.family == "rnn" and row.attributes.get("mode", "lstm") != "lstm"
    return _BLAS_FAMILY if kind == "cpu" and (is_cell or row.family == "attention") else row.family


def unit_of(family: str, *, kind: DeviceKind, dtype: str, precision: Precision) -> str:
    """Return the unit of `Device.peak_flops_per_s` on which an operator of the family computes."""
    if dtype in ("float64", "complex128"):
        return "fp64"
    if family not in MATRIX_FAMILIES:
        return "vector"
    if dtype in NARROW_UNITS:
        return NARROW_UNITS[dtype]
    if dtype == "bfloat16":
        return "bf16"
    if dtype == "float16":
        return HALF_UNITS.get(precision, "fp16")
    if kind == "cpu" and family != _BLAS_FAMILY:
        return "vector"
    is_tf32 = precision == "tf32" or (precision in _TF32_IN_CUDNN and family in _CUDNN_FAMILIES)
    return "tf32" if is_tf32 else "fp32"
