"""Lowers a device-neutral workload to the kernels that one kind of device runs, as arrays."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.ops.norm import has_running_statistics
from advisor.ops.registry import CHANNELS_LAST, ITEMSIZE_BYTES, QUANTIZED_DTYPES, Number, aten
from advisor.predict.blocks import part_of
from advisor.predict.composite_kernels import (
    FUSED_FLOP_RATIO,
    PRODUCT_CALL_CYCLES,
    UNBIASED_INPUTS,
    Program,
    program_of,
)
from advisor.predict.cpu_loops import GRAIN_NUMEL
from advisor.predict.efficiency import BY_TOKEN, QUANTIZED_PRODUCT, VECTOR_ATTENTION
from advisor.predict.issued import depthwise_cycles, padding_of
from advisor.predict.kernel_time import BLAS_HALF, DISPATCHED, TENSOR_UNITS, Kernels, kernels_of
from advisor.predict.precision import MATRIX_FAMILIES, Width, computed_width, computing_family, unit_of, width_of
from advisor.predict.products import Product, has_window
from advisor.predict.row_work import (
    RowCounts,
    RowWork,
    count_rows,
    is_constant,
    is_vector_attention,
    refusing_rows,
)
from advisor.predict.unfolded import Unfolding, unfolding_of
from advisor.records.device import MAPPED_BLOCK_BYTES, CompileMode, DeviceKind, Layout, Precision
from advisor.records.prediction import IndexArray
from advisor.records.workload import Row, Workload

_HALF_DTYPES = frozenset({"float16", "bfloat16"})
_EAGER_BY_LIBRARY = ("norm", "pool")
"""Families that a CPU runs by a library call in eager mode (oneDNN or similar code in torch), like convolutions.
Inductor generates its own code for them."""
_LAST_LIBRARY_CALLS = 0.67
"""Overhead of a convolution's call for channels-last images relative to NCHW, for which oneDNN looks up two primitives
more, which reorder the images (ONEDNN_VERBOSE): 27 and 40 us on a Granite Rapids."""
_LAPACK_FLOP_RATIO = 8.0
"""Slowdown of a FLOP in LAPACK on a CPU relative to a large matmul, from systems of 32 and 128 rows on a Granite Rapids
(`scripts/nets/operators.py`)."""
_GROUPED_SHARE = (1 - 0.82) / (1.36 - 0.82)
"""Share of grouped convolutions in the FLOP of all convolutions at which Inductor rates both layouts equal."""
_LEFT_TO_TORCH = frozenset(aten("_embedding_bag _embedding_bag_forward_only"))
"""Operators for which Inductor calls torch's kernels (`make_fallback` in torch/_inductor/lowering.py)."""
_SMALL_CHANNELS = 64
"""Channels up to which Inductor takes a convolution for small (the same file)."""
_LEAST_ONEDNN_SIZE = 16**3
"""Size m n k above which torch multiplies 16-bit matrices with oneDNN (ATen/native/mkldnn/Matmul.cpp)."""
_CHANNEL_BLOCK = 16.0
"""Output channels that oneDNN computes together with AVX-512 or AMX, filled up with zeros."""
_PACKED_CYCLES = 0.8
"""Cycles in which MKL copies an element of an fp32 matrix into the order that its kernels read. A linear layer takes
them whatever its rows: 0.5 to 0.7 with one core and 1.1 to 1.4 with two of a Zen 4 at 3.45 GHz (256 and 1,024 wide),
0.7 with two of a Granite Rapids. All cores are taken to share them, which fits whole steps best (docs/experiments.md),
though two of a Zen 4 take as long as one. A product with a single row copies nothing. Attention copies all keys and
values again for each block of queries."""
_COPIED_WEIGHT_CYCLES = 4.0
"""Cycles of a core in which Inductor's code copies an element of a convolution's parameters to channels-last, in every
call unless the model is frozen: 11 million in 6.2 ms by two cores of a Zen 4 (a ResNet-50)."""
_CAST_BYTES = ITEMSIZE_BYTES["float32"] + ITEMSIZE_BYTES["float16"]
_BY_ELEMENT = frozenset({"pointwise", "copy", "creation", "reduction"})
"""Families in which torch splits the elements among a CPU's cores."""
_NHWC_COPY_RATIO = 2.0
"""Time of a transposing 16-bit copy relative to a plain copy: measured on 14 nets with group norms, channels-last, on
an RTX 3090; no other GPU was measured with them. The fp32 copies for layer norms in NCHW take as long as plain copies
(XCiT and ConvNeXt on two GPUs)."""
_SAME_BY_PRODUCT = ("flops", "weight_bytes", "launches", "joins", "passed_bytes")
"""Terms that a convolution on a CPU has with and without oneDNN, which alone reorders images and repacks parameters."""
_ALIGNED_NUMEL = 8
"""Elements of 16 bits in the 16 bytes that tensor cores' fast kernels load and store at a time."""
_UNALIGNED_FLOPS_PER_CYCLE = 400.0
"""FLOP per cycle of a core in an eager 16-bit product with rows that do not start at multiples of 16 bytes."""
_IN_FP16: Mapping[Precision, Precision] = {"amp-bf16": "amp-fp16", "bf16": "fp16"}
"""The fp16 precision with the same kernels as a bf16 one; they differ only in the compute unit."""


class StepKernels:
    """A cache of a workload's kernels by kind of device, precision and batch size.

    The rows are counted for the first batch sizes requested, and counted again if a later request has others.
    """

    def __init__(self, workload: Workload, *, compile_mode: CompileMode, layout: Layout) -> None:
        self.workload, self.compile_mode, self.layout = workload, compile_mode, layout
        self._batches: IndexArray = np.array([], dtype=np.intp)
        self._counts: dict[Width, RowCounts] = {}
        self._kernels: dict[tuple[DeviceKind, Precision], Kernels] = {}

    def at(self, batches: IndexArray, *, kind: DeviceKind, precision: Precision) -> Kernels:
        """Return the kernels at these batch sizes."""
        if not set(batches.tolist()).issubset(self._batches.tolist()):
            self._batches = np.unique(batches)
            self._counts, self._kernels = {}, {}
        kernels = self._lowered(kind, precision)
        is_all = np.array_equal(batches, self._batches)
        return kernels if is_all else kernels.at(np.searchsorted(self._batches, batches))

    def _lowered(self, kind: DeviceKind, precision: Precision) -> Kernels:
        """Return the kernels at all counted batch sizes."""
        key = (kind, precision)
        if key not in self._kernels:
            in_fp16 = _IN_FP16.get(precision)
            if in_fp16 is None:
                counts = self._counted(computed_width(precision, self.workload, kind=kind))
                self._kernels[key] = lower(counts, kind=kind, precision=precision, layout=self.layout)
            else:
                self._kernels[key] = self._lowered(kind, in_fp16).in_bf16()
        return self._kernels[key]

    def _counted(self, width: Width) -> RowCounts:
        if width not in self._counts:
            self._counts[width] = count_rows(
                self.workload, batches=self._batches.astype(np.float64), width=width, compile_mode=self.compile_mode
            )
        return self._counts[width]


def lower(counts: RowCounts, *, kind: DeviceKind, precision: Precision, layout: Layout = "nchw") -> Kernels:
    """Return the kernels that a kind of device runs for the rows; composite operators become several kernels.

    Under torch.compile, intermediates inside a fused kernel do not reach memory. A row that is fused into a later
    kernel, or has nothing left to move, launches no kernel. The host dispatches kernels, not operators.
    Decoding on a GPU runs in a CUDA graph, launched once per token, so it has no dispatch overhead.
    """
    kernels: list[dict[str, Any]] = []
    converts_layout = counts.compile == "compile" and (kind == "cpu" or _converts_layout(counts))
    of_step = {name: np.zeros(len(counts.batches)) for name in (*DISPATCHED, "parameter_bytes")}
    for work in counts.rows:
        row = work.row
        is_compiled = counts.compile == "compile" and row.phase != "optimizer"
        is_inside = is_compiled and (any(one.joined for one in row.outputs) or not work.compiled_bytes.any())
        cast_count = work.parameter_cast_count if is_compiled else work.cast_count
        program = _program(row, work, kind=kind, is_compiled=is_compiled)
        if not is_inside and not (row.phase == "decode" and kind == "gpu"):
            called = program.launches if is_compiled else program.dispatches
            by = "compiled_" if is_compiled else "backward_" if row.phase == "backward" else ""
            of_step[f"{by}dispatches"] += row.count * (called + cast_count)
            if kind == "gpu" and not is_compiled:
                of_step["library_launches"] += row.count * np.maximum(program.launches - program.dispatches, 0.0)
        cast_launches = 0.0 if is_inside else cast_count
        of_step["parameter_bytes"] += row.count * work.parameter_bytes / counts.pass_count
        kernels += _row_kernels(
            work,
            program,
            kind=kind,
            precision=precision,
            layout=layout,
            is_compiled=is_compiled,
            converts_layout=converts_layout,
            launches=0.0 if is_inside else program.launches,
            cast_launches=cast_launches,
        )
    return kernels_of(kernels, batch_count=len(counts.batches), transfer_bytes=counts.transfer_bytes, **of_step)


@refusing_rows
def _program(row: Row, work: RowWork, *, kind: DeviceKind, is_compiled: bool) -> Program:
    """Return the program of a row, which Inductor vectorizes and parallelizes in any layout, without layout copies."""
    program = program_of(work.call, kind=kind, itemsize_bytes=ITEMSIZE_BYTES[work.dtype])
    if kind == "cpu" and row.family == "linalg":
        program = replace(program, flop_ratio=_LAPACK_FLOP_RATIO)
    if not is_compiled:
        return program
    is_fused = kind == "cpu" and row.family not in MATRIX_FAMILIES
    return replace(
        program,
        sequential_loads=0.0,
        issue_cycles=program.issue_cycles if row.op in _LEFT_TO_TORCH else 0.0,
        nchw_issue_cycles=0.0,
        pass_bytes=0.0,
        pass_cycles=0.0,
        nchw_copied_bytes=0.0,
        nchw_copied_cycles=0.0,
        nhwc_copied_bytes=0.0,
        scalar_cycles=0.0,
        serial_cycles=0.0,
        saves_half_rereads=False,
        flop_ratio=max(program.flop_ratio - 1, 0.0) + FUSED_FLOP_RATIO if is_fused else program.flop_ratio,
    )


def _row_kernels(
    work: RowWork,
    program: Program,
    *,
    kind: DeviceKind,
    precision: Precision,
    layout: Layout,
    is_compiled: bool,
    converts_layout: bool,
    launches: Number,
    cast_launches: Number,
) -> list[dict[str, Any]]:
    """Return the terms of a row's kernels: one per matmul, each with its share of the row's FLOP and bytes.

    Its casts, and on a CPU the functions inside its matmuls, are kernels of their own.
    In a recurrent layer the last matmul is that of the state, which reads its weights at every time step.
    """
    row, cost = work.row, work.cost
    products = work.products or (None,)
    all_shares = sum(product.share for product in work.products)
    is_channels_last = layout == "nhwc" or converts_layout or CHANNELS_LAST in row.attributes
    is_transposed = (kind == "cpu" or work.dtype in _HALF_DTYPES) and not is_channels_last
    has_vectors = (program.has_vectors_nhwc and is_channels_last) or (program.has_vectors_compiled and is_compiled)
    is_by_library = kind == "cpu" and (row.family == "conv" or (row.family in _EAGER_BY_LIBRARY and not is_compiled))
    is_half_product = kind == "cpu" and row.family == "matmul" and work.dtype in _HALF_DTYPES
    repack_count = 1.0 if kind == "cpu" and (row.family == "conv" or is_half_product) else program.repack_count
    is_generic_reorder = kind == "cpu" and work.dtype in _HALF_DTYPES
    # Inductor pads such operands (`shape_padding`).
    is_unaligned = kind == "gpu" and row.family == "matmul" and not is_compiled and _has_unaligned_rows(row)
    # Torch calls cuDNN for depthwise convolutions in 16 bits only (`use_cudnn_depthwise` in ATen's Convolution.cpp).
    is_by_torch = (
        kind == "gpu"
        and not (is_transposed or is_channels_last or row.phase == "backward")
        and any(product.is_depthwise and not product.is_gradient for product in work.products)
    )
    is_converted = kind == "cpu" and converts_layout and layout == "nchw"
    copies_weights = is_converted and row.op == "aten.convolution" and has_window(work.call)
    has_bias = kind == "cpu" and row.op == "aten.convolution" and len(row.inputs) > UNBIASED_INPUTS and not is_compiled
    read_twice_bytes = program.reread_ratio * work.read_bytes
    moved_bytes = work.compiled_bytes if is_compiled else work.read_bytes + cost.write_bytes
    moved_bytes = moved_bytes + program.extra_bytes + read_twice_bytes
    cast_bytes = work.parameter_cast_bytes if is_compiled else work.cast_bytes
    copied_bytes = program.nchw_copied_bytes if layout == "nchw" else _NHWC_COPY_RATIO * program.nhwc_copied_bytes
    copied_cycles = program.nchw_copied_cycles if layout == "nchw" else 0.0
    own_launches = launches / len(products)
    of_row = {"row": work.index, "part": part_of(row), "calls": row.count}

    def terms(product: Product | None) -> dict[str, Any]:
        def share_of(amount: Number) -> Number:
            # Most rows have one kernel, and dividing tiny arrays takes as long as everything else here.
            return amount if product is None or len(products) == 1 else amount * product.share / all_shares

        family = _family(row, product, kind=kind, is_generated=is_compiled and kind == "gpu")
        own_family = product.family if product is not None and product.family else computing_family(row, kind=kind)
        unit = unit_of(own_family, kind=kind, dtype=work.dtype, precision=precision)
        if kind == "cpu" and row.op == "attention" and unit in ("fp16", "bf16"):
            unit = BLAS_HALF
        found: dict[str, Any] = {
            "family": family,
            "unit": "vector" if product is not None and product.is_depthwise else unit,
            **of_row,
            "flops": share_of(cost.flops),
            "flop_ratio": program.flop_ratio,
            "weight_bytes": share_of(work.parameter_bytes),
            "data_bytes": share_of(moved_bytes),
            "sequential_loads": program.sequential_loads if layout == "nchw" else 0.0,
            "issue_cycles": program.issue_cycles + (program.nchw_issue_cycles if layout == "nchw" else 0.0),
            "scalar_cycles": 0.0 if has_vectors else program.scalar_cycles / len(products),
            "serial_cycles": 0.0 if has_vectors else program.serial_cycles / len(products),
            "launches": own_launches,
            "passed_bytes": copied_bytes + cost.write_bytes * has_bias,
            "passed_cycles": copied_cycles,
        }
        if is_unaligned and unit in TENSOR_UNITS:
            found["issue_cycles"] = share_of(cost.flops) / _UNALIGNED_FLOPS_PER_CYCLE
        if program.saves_half_rereads and layout == "nhwc" and width_of(precision) != "full":
            found["reread_bytes"] = share_of(read_twice_bytes)
        if product is products[-1]:
            found["revisited_bytes"] = program.revisited_bytes + cost.revisited_bytes
            found["revisited_set_bytes"] = program.revisited_set_bytes + cost.revisited_set_bytes
        if kind == "cpu":
            joins = own_launches if program.joins is None else program.joins / len(products)
            found["joins"] = joins * _is_joined(work, product, is_compiled=is_compiled)
        if is_by_library:
            is_faster = row.family == "conv" and is_channels_last
            found["library_calls"] = own_launches * (_LAST_LIBRARY_CALLS if is_faster else 1.0)
        if is_transposed and (kind == "cpu" or "depthwise" not in family):
            is_always = kind == "gpu" and bool(work.products) and has_window(work.call)
            name = "always_transposed_bytes" if is_always else "transposed_bytes"
            found[name] = share_of(work.image_bytes) * (2.0 if is_generic_reorder else 1.0)
        if kind == "cpu" and row.family == "conv" and not is_channels_last:
            found["strided_numel"] = share_of(_image_numel(work))
        if copies_weights:
            copied_numel = share_of(work.parameter_bytes) / ITEMSIZE_BYTES[work.dtype]
            found["scalar_cycles"] = found["scalar_cycles"] + _COPIED_WEIGHT_CYCLES * copied_numel
        if is_half_product and product is not None:
            is_by_onednn = np.asarray(product.groups) * product.m * product.n * product.k > _LEAST_ONEDNN_SIZE
            found["serial_cycles"] = found["serial_cycles"] + PRODUCT_CALL_CYCLES * is_by_onednn
        if np.any(repack_count):
            found["repacked_bytes"] = repack_count * found["weight_bytes"]
            if kind == "cpu" and row.family == "conv":
                # Large results take faults, too, but the heap often has room for them: of nine steps on an Emerald
                # Rapids five took 0 to 0.6 of the faults of all large blocks, and three 1.2 to 2.3 times as many. The
                # copies of a VGG-11's parameters, at batch 1, took 104,000; predicted are 117,000.
                found["mapped_bytes"] = found["repacked_bytes"] * (work.parameter_bytes >= MAPPED_BLOCK_BYTES)
        if row.family in BY_TOKEN:  # one thread block per token, a row of the result
            result = work.call.outputs[0]
            found["blocks"] = np.maximum(result.numel / result.shape[-1], 1.0)
        if product is None:
            return found
        if is_by_torch:
            found |= {"is_untiled": True, "issue_cycles": depthwise_cycles(work.call)}
        # An empty matmul has no FLOP but still one tile.
        found |= {name: np.maximum(getattr(product, name), 1.0) for name in ("groups", "m", "n", "k")}
        found["can_winograd"] = product.can_winograd
        found["fft_speedup"] = product.fft_speedup
        found["direct_flops"] = found["flops"] * (
            product.nhwc_direct_ratio if is_channels_last else product.nchw_direct_ratio
        )
        if kind == "cpu" and unit in ("fp32", BLAS_HALF):
            elements = found["flops"] / (2 * np.minimum(found["m"], program.block_rows))
            found["scalar_cycles"] = found["scalar_cycles"] + _PACKED_CYCLES * elements * (found["m"] > 1)
        if kind == "cpu" and family in ("conv", "conv_backward"):
            blocks = np.ceil(found["n"] / _CHANNEL_BLOCK)
            found["flop_ratio"] = program.flop_ratio * blocks * _CHANNEL_BLOCK / found["n"]
        if kind == "gpu" and unit in TENSOR_UNITS:
            padded_ratio = product.nhwc_padded_ratio if is_channels_last else product.nchw_padded_ratio
            found["flop_ratio"] = program.flop_ratio * padded_ratio
            if is_channels_last and row.op == "aten.convolution":
                ratios = {"inputs_ratio": product.padded_inputs_ratio, "outputs_ratio": product.padded_outputs_ratio}
                copied, cycles = padding_of(work.call, **ratios)
                found["passed_bytes"] = found["passed_bytes"] + copied * ITEMSIZE_BYTES[work.dtype]
                found["passed_cycles"] = found["passed_cycles"] + cycles
        return found

    kernels = [terms(product) for product in products]
    if kind == "cpu" and row.family == "conv" and work.products:
        unfolding = unfolding_of(work.call)
        kernels = [one for kernel in kernels for one in _by_either_way(kernel, unfolding, program)]
    if np.any(program.pass_bytes) and not is_by_torch:  # torch's own kernel adds the bias itself
        passes = {"data_bytes": program.pass_bytes, "issue_cycles": program.pass_cycles}
        kernels.append({**of_row, "family": "pointwise", "unit": "vector", **passes})
    if np.any(cast_bytes):
        cast = {"family": "cast", "unit": "vector", "data_bytes": cast_bytes, "launches": cast_launches}
        if kind == "cpu":  # calibrated with its other elementwise kernels
            joins = cast_launches * (cast_bytes > _CAST_BYTES * GRAIN_NUMEL * cast_launches)
            cast |= {"family": "pointwise", "flops": cast_bytes / _CAST_BYTES, "joins": joins}
        kernels.append({**of_row, **cast})
    if np.any(program.function_flops):
        kernels.append({**of_row, "family": "softmax", "unit": "vector", "flops": program.function_flops})
    return kernels


def _by_either_way(kernel: dict[str, Any], unfolding: Unfolding, program: Program) -> list[dict[str, Any]]:
    """Return a CPU's kernel of a convolution, and the one in its place where torch multiplies the unfolded image.

    The latter has no `_PACKED_CYCLES`: with them, steps on one core were predicted worse (docs/experiments.md).
    """
    most_cores = unfolding.most_cores
    if not most_cores.any():
        return [kernel]
    product = {name: kernel[name] for name in ("row", "part", "calls", "groups", "m", "n", "k", *_SAME_BY_PRODUCT)}
    product |= {
        "family": "matmul",
        "unit": "fp32",
        "flop_ratio": program.flop_ratio,
        "data_bytes": kernel["data_bytes"] + unfolding.copied_bytes,
        "scalar_cycles": kernel["scalar_cycles"] + unfolding.cycles,
        "most_cores": most_cores,
    }
    return [product] if np.isinf(most_cores).all() else [{**kernel, "above_cores": most_cores}, product]


def _has_unaligned_rows(row: Row) -> bool:
    """Return whether a dimension of a matrix, other than the batch's, fills no multiple of 16 bytes in 16 bits."""
    dims = (dim for operand in (*row.inputs, *row.outputs) if len(operand.shape) > 1 for dim in operand.shape[-2:])
    fixed = (dim if isinstance(dim, int) else dim[0] for dim in dims if isinstance(dim, int) or dim[1] == 0)
    return any(size > 1 and size % _ALIGNED_NUMEL for size in fixed)


def _image_numel(work: RowWork) -> Number:
    """Return the elements of all results that grow with the batch."""
    operands = zip(work.row.outputs, work.call.outputs, strict=True)
    return sum(tensor.numel for operand, tensor in operands if not is_constant(operand))


def _is_joined(work: RowWork, product: Product | None, *, is_compiled: bool) -> Number:
    """Return 1 if the kernel runs on all cores of a CPU, else 0.

    Torch runs few elements on one core, and MKL a matmul with a single row.
    """
    if product is not None:
        return np.where(np.asarray(product.groups) * product.m > 1, 1.0, 0.0)
    if is_compiled or work.row.family not in _BY_ELEMENT:
        return 1.0
    read_bytes = work.read_bytes if work.row.family == "reduction" else 0.0
    numel = np.maximum(work.cost.write_bytes, read_bytes) / ITEMSIZE_BYTES[work.dtype]
    return np.where(numel > GRAIN_NUMEL, 1.0, 0.0)


def _converts_layout(counts: RowCounts) -> bool:
    """Return whether torch.compile converts all images to channels-last on a GPU.

    In inference it weighs the FLOP of grouped convolutions, which are slower channels-last, by 1.36 and of others by
    about 0.8. In training a single one decides, as does one with a window whose weight has twice as many channels in
    its second dimension as in its first, or if no convolution has more than 64 channels. On CPUs it always converts
    (torch/_inductor/graph.py, decide_layout_opt).
    """
    is_training = any(work.row.phase == "backward" for work in counts.rows)
    flops, grouped_flops, is_any_wide = 0.0, 0.0, False
    for work in counts.rows:
        if work.row.op != "aten.convolution":
            continue
        own_flops = float(np.ravel(work.cost.flops)[0]) * work.row.count
        first, second, *window = (float(np.ravel(size)[0]) for size in work.call.inputs[1].shape)
        is_grouped = any(np.max(one.groups) > 1 and not one.is_depthwise for one in work.products)
        if is_training and (is_grouped or (2 * first <= second and window[0] > 1)):
            return False
        flops += own_flops
        grouped_flops += own_flops * is_grouped
        is_any_wide |= max(first, second) > _SMALL_CHANNELS
    return is_any_wide if is_training else grouped_flops <= _GROUPED_SHARE * flops


def _family(row: Row, product: Product | None, *, kind: DeviceKind, is_generated: bool) -> str:
    """Return the family whose rates apply to the kernel. Inductor generates the kernel for a GPU if `is_generated`.

    On a CPU, attention consists of products, forward and backward (ATen's FlashAttentionKernel.cpp).
    """
    if kind == "cpu" and product is not None and row.family == "attention":
        return "matmul"
    family = row.family
    if is_vector_attention(row):
        return VECTOR_ATTENTION
    if family == "matmul" and any(operand.dtype in QUANTIZED_DTYPES for operand in row.inputs):
        return QUANTIZED_PRODUCT
    if product is not None and family == "conv":
        if product.is_depthwise:
            family = "conv_depthwise"
        elif np.max(product.groups) > 1:
            family = "conv_grouped"
    if family == "norm" and has_running_statistics(row.op, row.attributes):
        return "norm_running"
    if family == "norm" and is_generated and row.phase != "backward":
        return "norm_generated"
    if product is not None and product.family:
        return product.family
    is_gradient = row.phase == "backward" or (product is not None and product.is_gradient)
    is_backward = is_gradient and row.family in ("conv", "norm", "attention", "pool")
    return f"{family}_backward" if is_backward else family
