"""Lowers a device-neutral workload to the kernels that one kind of device runs, as arrays."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from advisor.ops.conv import weight_of
from advisor.ops.norm import has_running_statistics
from advisor.ops.registry import CHANNELS_LAST, ITEMSIZE_BYTES, QUANTIZED_DTYPES, Number, aten, formula_of
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
from advisor.predict.issued import depthwise_issue_cycles, padding_of
from advisor.predict.kernel_time import (
    BLAS_HALF,
    DISPATCHED,
    STRIDED_COPY_CYCLES,
    TENSOR_UNITS,
    Kernels,
    kernels_of,
)
from advisor.predict.precision import Width, computed_width, computing_family, unit_of, width_of
from advisor.predict.products import ALIGNED_BYTES, Product, has_window
from advisor.predict.row_work import (
    RowCounts,
    RowWork,
    count_rows,
    image_result_count,
    is_constant,
    is_vector_attention,
    multiplies_narrow,
    refusing_rows,
)
from advisor.predict.unfolded import Unfolding, depthwise_cycles, unfolding_of
from advisor.records.device import MAPPED_BLOCK_BYTES, CompileMode, DeviceKind, Layout, Precision
from advisor.records.prediction import PARTS, IndexArray
from advisor.records.workload import Row, Workload

_FORWARD = (False, False, False)
"""The `output_mask` of a convolution that is no gradient."""
_HALF_DTYPES = frozenset({"float16", "bfloat16"})
_EAGER_BY_LIBRARY = ("norm", "pool")
"""Families that a CPU runs by a library call in eager mode (oneDNN or similar code in torch), like convolutions.
Inductor generates its own code for them."""
_LAST_LIBRARY_CALLS = 0.67
"""Overhead of a convolution's call for channels-last images relative to NCHW, for which oneDNN looks up two primitives
more, which reorder the images (ONEDNN_VERBOSE): 27 and 40 us on a Granite Rapids."""
_GENERIC_REORDERS = 2.0
"""Time of a reorder of 16-bit images by oneDNN's generic code, by its bytes, relative to that of fp32 images."""
_LAPACK_FLOP_RATIO = 8.0
"""Slowdown of a FLOP in LAPACK on a CPU relative to a large matmul, from systems of 32 and 128 rows on a Granite Rapids
(`scripts/nets/operators.py`)."""
_GROUPED_SHARE = (1 - 0.82) / (1.36 - 0.82)
"""Share of grouped convolutions in the FLOP of all convolutions at which Inductor rates both layouts equal."""
_GENERATED_ALONE = frozenset(
    aten(
        "index index_select gather take take_along_dim _unsafe_index _unsafe_masked_index index_put _index_put_impl "
        "_unsafe_index_put scatter scatter_add scatter_reduce index_fill index_add index_copy embedding "
        "embedding_dense_backward"
    )
)
"""Operators for which Inductor generates code, though they count as kernels of their own."""
_SMALL_CHANNELS = 64
"""Channels up to which Inductor takes a convolution for small (`decide_layout_opt` in torch/_inductor/graph.py)."""
_LEAST_ONEDNN_SIZE = 16**3
"""Size m n k above which torch multiplies 16-bit matrices with oneDNN (ATen/native/mkldnn/Matmul.cpp)."""
_CHANNEL_BLOCK = 16.0
"""Output channels that oneDNN computes together with AVX-512 or AMX, filled up with zeros."""
_PACKED_CYCLES = 0.8
"""Cycles in which MKL copies an element of an fp32 matrix into the order that its kernels read. A linear layer takes
them whatever its rows: 0.5 to 0.7 with one core and 1.1 to 1.4 with two of a Zen 4 at 3.45 GHz (256 and 1,024 wide),
0.7 with two of a Granite Rapids. All cores are taken to share them, which fits whole steps best
(docs/internals/experiments.md), though two of a Zen 4 take as long as one. A product with a single row copies nothing.
Attention copies all keys and values again for each block of queries."""
_AMX_WEIGHT_CYCLES = 1.2
"""Cycles in which AMX prepares a weight of a bf16 product or convolution, whatever the batch, beside the cast. From
four layers with large weights at batch 1 and 16, on two cores of a Granite Rapids: 0.7 to 2.2. Linear layers of 768,
for example, take 0.40 ns a weight for no rows, and casting and reading a weight takes 0.29 ns, which leaves 0.9 cycles.
Zen 4, without AMX, needs at most 0.3."""
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
_UNALIGNED_FLOPS_PER_CYCLE = 400.0
"""FLOP per cycle of a core in an eager 16-bit product with rows that do not start at multiples of 16 bytes: the output
layer of GPT-2 on an H100 (docs/internals/experiments.md, "An H100's kernels")."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _RowRun:
    """A row of a workload, and how one kind of device runs it."""

    work: RowWork
    program: Program
    kind: DeviceKind
    precision: Precision
    layout: Layout
    is_compiled: bool
    converts_layout: bool
    """True if torch.compile converts the images of the step to channels-last."""
    launches: Number
    cast_launches: Number

    @property
    def row(self) -> Row:
        """Return the row of the workload."""
        return self.work.row

    @property
    def products(self) -> tuple[Product | None, ...]:
        """Return the matmuls, one for each kernel, or None for the only kernel of a row without any."""
        return self.work.products or (None,)

    @property
    def place(self) -> dict[str, Any]:
        """Return the terms that say which row a kernel belongs to."""
        return {"row": self.work.index, "part": part_of(self.row), "calls": self.row.count}

    @property
    def own_launches(self) -> Number:
        """Return the launches of each of the kernels."""
        return self.launches / len(self.products)

    @property
    def is_channels_last(self) -> bool:
        """Return whether the images of the row are channels-last."""
        return self.layout == "nhwc" or self.converts_layout or CHANNELS_LAST in self.row.attributes

    @property
    def is_by_torch(self) -> bool:
        """Return whether torch has a GPU kernel of its own for the row: a depthwise convolution in NCHW and fp32.

        In 16 bits it calls cuDNN (`use_cudnn_depthwise` in ATen's Convolution.cpp).
        """
        is_for_cudnn = self.work.dtype in _HALF_DTYPES or self.is_channels_last or self.row.phase == "backward"
        is_depthwise = any(product.is_depthwise and not product.is_gradient for product in self.work.products)
        return self.kind == "gpu" and not is_for_cudnn and is_depthwise

    @property
    def read_twice_bytes(self) -> Number:
        """Return the bytes that are read a second time, as for the sums of a norm before the pass that uses them."""
        read_bytes = self.work.compiled_read_bytes if self.is_compiled else self.work.read_bytes
        return self.program.reread_ratio * read_bytes

    @property
    def copied_bytes(self) -> Number:
        """Return the bytes of operands that are copied to another layout, weighted by the time of the copy."""
        program = self.program
        return program.nchw_copied_bytes if self.layout == "nchw" else _NHWC_COPY_RATIO * program.nhwc_copied_bytes

    @property
    def added_bias_bytes(self) -> Number:
        """Return the bytes of a convolution's result to which a CPU adds a bias; compiled code does so in passing."""
        has_bias = len(self.row.inputs) > UNBIASED_INPUTS and not self.is_compiled
        return self.work.cost.write_bytes * has_bias

    def unit_of(self, product: Product | None) -> str:
        """Return the compute unit of a matmul, or of a row without one, as if no matmul were depthwise."""
        if self.kind == "cpu" and self.row.op == "attention" and self.work.dtype in _HALF_DTYPES:
            return BLAS_HALF
        own_family = product.family if product is not None else ""
        family = own_family or computing_family(self.row, kind=self.kind)
        return unit_of(family, kind=self.kind, dtype=self.work.dtype, precision=self.precision)

    def share_of(self, amount: Number, product: Product | None) -> Number:
        """Return the part of an amount of the whole row that belongs to one of its matmuls."""
        products = self.work.products
        # Most rows have one kernel, and dividing tiny arrays takes as long as everything else here.
        if product is None or len(products) == 1:
            return amount
        return amount * product.share / sum(one.share for one in products)


def lower(counts: RowCounts, *, kind: DeviceKind, precision: Precision, layout: Layout = "nchw") -> Kernels:
    """Return the kernels that a kind of device runs for the rows; composite operators become several kernels.

    Under torch.compile, intermediates inside a fused kernel do not reach memory. A row that is fused into a later
    kernel, or has nothing left to move, launches no kernel. The host dispatches kernels, not operators.
    Decoding on a GPU runs in a CUDA graph, launched once per token, so it has no dispatch overhead.
    """
    kernels: list[dict[str, Any]] = []
    converts_layout = counts.compile == "compile" and (kind == "cpu" or _converts_layout(counts))
    if kind == "gpu" and counts.compile == "eager" and _leaves_channels_last(counts):
        layout = "nchw"
    part_dispatches = np.zeros((len(DISPATCHED), len(PARTS), len(counts.batches)))
    dispatched = dict(zip(DISPATCHED, part_dispatches, strict=True))
    parameter_bytes = np.zeros(len(counts.batches))
    for work in counts.rows:
        row = work.row
        is_compiled = counts.compile == "compile" and row.phase != "optimizer"
        is_inside = is_compiled and (any(one.joined for one in row.outputs) or not work.compiled_bytes.any())
        cast_count = work.parameter_cast_count if is_compiled else work.cast_count
        program = _program(row, work, kind=kind, is_compiled=is_compiled)
        if not is_inside and not (row.phase == "decode" and kind == "gpu"):
            called = program.launches if is_compiled else program.dispatches
            by = "compiled_" if is_compiled else "backward_" if row.phase == "backward" else ""
            dispatched[f"{by}dispatches"][part_of(row)] += row.count * (called + cast_count)
            if kind == "gpu" and not is_compiled:
                launches = np.maximum(program.launches - program.dispatches, 0.0)
                dispatched["library_launches"][part_of(row)] += row.count * launches
        parameter_bytes += row.count * work.parameter_bytes / counts.pass_count
        run = _RowRun(
            work=work,
            program=program,
            kind=kind,
            precision=precision,
            layout=layout,
            is_compiled=is_compiled,
            converts_layout=converts_layout,
            launches=0.0 if is_inside else program.launches,
            cast_launches=0.0 if is_inside else cast_count,
        )
        kernels += _row_kernels(row, run)
    return kernels_of(
        kernels,
        batch_count=len(counts.batches),
        transfer_bytes=counts.transfer_bytes,
        paged_bytes=counts.paged_bytes,
        parameter_bytes=parameter_bytes,
        part_dispatches=part_dispatches,
        **{name: by_part.sum(axis=0) for name, by_part in dispatched.items()},
    )


@refusing_rows
def _program(row: Row, work: RowWork, *, kind: DeviceKind, is_compiled: bool) -> Program:
    """Return the program of a row, or of the code that Inductor generates for it.

    That code is one kernel with vectors, whatever the layout. Inductor calls a convolution without its bias, which it
    adds in generated code, and leaves other operators to torch as they are.
    """
    program = program_of(work.call, kind=kind, itemsize_bytes=ITEMSIZE_BYTES[work.dtype])
    if kind == "cpu" and row.family == "linalg":
        program = replace(program, flop_ratio=_LAPACK_FLOP_RATIO)
    formula = formula_of(row.op)
    if not is_compiled or formula is None:
        return program
    if formula.op == "aten.convolution":
        return replace(program, pass_bytes=0.0, pass_cycles=0.0)
    if not formula.fusable and formula.op not in _GENERATED_ALONE:
        return program
    return Program(
        reread_ratio=program.reread_ratio,
        extra_bytes=0.0 if formula.fusable else program.extra_bytes,
        flop_ratio=max(program.flop_ratio - 1, 0.0) + FUSED_FLOP_RATIO if kind == "cpu" else program.flop_ratio,
        scalar_cycles=0.0 if program.has_vectors_compiled else program.scalar_cycles,
        serial_cycles=0.0 if program.has_vectors_compiled else program.serial_cycles,
    )


@refusing_rows
def _row_kernels(row: Row, run: _RowRun) -> list[dict[str, Any]]:
    """Return the terms of a row's kernels: one per matmul, each with its share of the row's FLOP and bytes.

    Its casts, and on a CPU the functions inside its matmuls, are kernels of their own.
    """
    add_own_terms = _add_cpu_terms if run.kind == "cpu" else _add_gpu_terms
    kernels = []
    for product in run.products:
        kernel = _common_terms(run, product)
        add_own_terms(kernel, run, product)
        kernels.append(kernel)
    if run.kind == "cpu" and row.family == "conv" and run.work.products:
        unfolding = unfolding_of(run.work.call)
        kernels = [one for kernel in kernels for one in _by_either_way(kernel, unfolding, run.program)]
    return [*kernels, *_kernels_beside(run)]


def _common_terms(run: _RowRun, product: Product | None) -> dict[str, Any]:
    """Return the terms that a kernel has on every kind of device.

    In a recurrent layer the last matmul is that of the state, which reads its weights at every time step.
    """
    row, work, program, cost = run.row, run.work, run.program, run.work.cost
    moved_bytes = work.compiled_bytes if run.is_compiled else work.read_bytes + cost.write_bytes
    terms: dict[str, Any] = {
        "family": _family(row, product, kind=run.kind, is_generated=run.is_compiled and run.kind == "gpu"),
        "unit": "vector" if product is not None and product.is_depthwise else run.unit_of(product),
        **run.place,
        "flops": run.share_of(cost.flops, product),
        "flop_ratio": program.flop_ratio,
        "weight_bytes": run.share_of(work.parameter_bytes, product),
        "data_bytes": run.share_of(moved_bytes + program.extra_bytes + run.read_twice_bytes, product),
        "launches": run.own_launches,
        "passed_bytes": run.copied_bytes,
    }
    if product is run.products[-1]:
        terms["revisited_bytes"] = program.revisited_bytes + cost.revisited_bytes
        terms["revisited_set_bytes"] = program.revisited_set_bytes + cost.revisited_set_bytes
    if row.family in BY_TOKEN:  # one thread block per token, a row of the result
        result = work.call.outputs[0]
        terms["blocks"] = np.maximum(result.numel / result.shape[-1], 1.0)
    if product is not None:
        # An empty matmul has no FLOP but still one tile.
        terms |= {name: np.maximum(getattr(product, name), 1.0) for name in ("groups", "m", "n", "k")}
    return terms


def _add_cpu_terms(kernel: dict[str, Any], run: _RowRun, product: Product | None) -> None:
    """Add what a CPU does: loops over single elements, calls of libraries, and the copies around them."""
    row, work, program = run.row, run.work, run.program
    is_half, is_conv, unit = work.dtype in _HALF_DTYPES, row.family == "conv", run.unit_of(product)
    has_vectors = program.has_vectors_nhwc and run.is_channels_last
    kernel["scalar_cycles"] = 0.0 if has_vectors else program.scalar_cycles / len(run.products)
    kernel["serial_cycles"] = 0.0 if has_vectors else program.serial_cycles / len(run.products)
    kernel["call_cycles"] = program.call_cycles / len(run.products)
    kernel["indexed_additions"] = program.indexed_additions
    joins = run.own_launches if program.joins is None else program.joins / len(run.products)
    kernel["joins"] = joins * _is_joined(work, product, is_compiled=run.is_compiled)
    if is_conv or (row.family in _EAGER_BY_LIBRARY and not run.is_compiled):
        ratio = _LAST_LIBRARY_CALLS if is_conv and run.is_channels_last else 1.0
        kernel["library_calls"] = run.own_launches * ratio
    if not run.is_channels_last:
        image_bytes = work.image_bytes * (_GENERIC_REORDERS if is_half else 1.0)
        kernel["transposed_bytes"] = run.share_of(image_bytes, product)
        if is_conv:
            # On AMX, oneDNN computes channels-last (brgconv), and torch copies the result to NCHW. Other units write
            # blocks of channels, which oneDNN itself reorders.
            kernel["matrix_unit_cycles"] = STRIDED_COPY_CYCLES * run.share_of(_image_numel(work), product)
    if row.op == "aten.convolution":
        kernel["passed_bytes"] = kernel["passed_bytes"] + run.added_bias_bytes
        if run.converts_layout and run.layout == "nchw" and has_window(work.call):
            copied_numel = run.share_of(work.parameter_bytes, product) / ITEMSIZE_BYTES[work.dtype]
            kernel["scalar_cycles"] = kernel["scalar_cycles"] + _COPIED_WEIGHT_CYCLES * copied_numel
    is_half_product = is_half and row.family == "matmul"
    repack_count = 1.0 if is_conv or is_half_product else program.repack_count
    if np.any(repack_count):
        kernel["repacked_bytes"] = repack_count * kernel["weight_bytes"]
    if is_conv:
        # Large results take faults, too, but the heap often has room for them: of nine steps on an Emerald Rapids five
        # took 0 to 0.6 of the faults of all large blocks, and three 1.2 to 2.3 times as many. The copies of a VGG-11's
        # parameters, at batch 1, took 104,000; predicted are 117,000.
        kernel["mapped_bytes"] = kernel["repacked_bytes"] * (work.parameter_bytes >= MAPPED_BLOCK_BYTES)
    if product is None:
        return
    if product.is_depthwise:
        of_weight = product is run.products[-1] and work.call.attributes.get("output_mask", _FORWARD)[1]
        if cycles := depthwise_cycles(work.call, of_weight=of_weight, is_half=is_half):
            kernel["scalar_cycles"] = kernel["scalar_cycles"] + cycles * kernel["flops"] / 2
            kernel["flop_ratio"] = 0.0
    if is_half:
        weight_cycles = _AMX_WEIGHT_CYCLES * kernel["weight_bytes"] / ITEMSIZE_BYTES[work.dtype]
        kernel["matrix_unit_cycles"] = kernel.get("matrix_unit_cycles", 0.0) + weight_cycles
    if is_half_product:
        is_by_onednn = np.asarray(product.groups) * product.m * product.n * product.k > _LEAST_ONEDNN_SIZE
        kernel["call_cycles"] = kernel["call_cycles"] + PRODUCT_CALL_CYCLES * is_by_onednn
    if unit in ("fp32", BLAS_HALF):
        elements = kernel["flops"] / (2 * np.minimum(kernel["m"], program.block_rows))
        kernel["scalar_cycles"] = kernel["scalar_cycles"] + _PACKED_CYCLES * elements * (kernel["m"] > 1)
    if kernel["family"] in ("conv", "conv_backward"):
        blocks = np.ceil(kernel["n"] / _CHANNEL_BLOCK)
        kernel["flop_ratio"] = program.flop_ratio * blocks * _CHANNEL_BLOCK / kernel["n"]


def _add_gpu_terms(kernel: dict[str, Any], run: _RowRun, product: Product | None) -> None:
    """Add what a GPU does: the instructions that its cores issue, the layouts of images, and how products are tiled."""
    row, work, program = run.row, run.work, run.program
    is_half, is_on_tensor_cores = work.dtype in _HALF_DTYPES, run.unit_of(product) in TENSOR_UNITS
    is_nchw = run.layout == "nchw"
    kernel["sequential_loads"] = program.sequential_loads if is_nchw else 0.0
    kernel["issue_cycles"] = program.issue_cycles + (program.nchw_issue_cycles if is_nchw else 0.0)
    kernel["passed_cycles"] = program.nchw_copied_cycles if is_nchw else 0.0
    if program.saves_half_rereads and run.layout == "nhwc" and width_of(run.precision) != "full":
        kernel["reread_bytes"] = run.share_of(run.read_twice_bytes, product)
    if is_half and not run.is_channels_last and "depthwise" not in kernel["family"]:
        is_always = row.family == "conv" and bool(work.products) and has_window(work.call)
        name = "always_transposed_bytes" if is_always else "transposed_bytes"
        kernel[name] = run.share_of(work.image_bytes, product)
    if product is None:
        return
    kernel["can_winograd"] = product.can_winograd
    kernel["fft_speedup"] = product.fft_speedup
    direct_ratio = product.nhwc_direct_ratio if run.is_channels_last else product.nchw_direct_ratio
    kernel["direct_flops"] = kernel["flops"] * direct_ratio
    if run.is_by_torch:
        kernel |= {"is_untiled": True, "issue_cycles": depthwise_issue_cycles(work.call)}
    if not is_on_tensor_cores:
        return
    if row.family == "matmul" and not run.is_compiled and _has_unaligned_rows(row, work.dtype):
        kernel["issue_cycles"] = kernel["flops"] / _UNALIGNED_FLOPS_PER_CYCLE
    padded_ratio = product.nhwc_padded_ratio if run.is_channels_last else product.nchw_padded_ratio
    kernel["flop_ratio"] = program.flop_ratio * padded_ratio
    if run.is_channels_last and row.op == "aten.convolution":
        copied, cycles = padding_of(
            work.call,
            inputs_ratio=product.padded_inputs_ratio,
            outputs_ratio=product.padded_outputs_ratio,
            is_grouped=bool(np.max(product.groups) > 1),
        )
        kernel["passed_bytes"] = kernel["passed_bytes"] + copied * ITEMSIZE_BYTES[work.dtype]
        kernel["passed_cycles"] = kernel["passed_cycles"] + cycles


def _kernels_beside(run: _RowRun) -> Iterator[dict[str, Any]]:
    """Yield the kernels that a row has beside its matmuls: elementwise passes, casts, and the functions of a CPU."""
    work, program = run.work, run.program
    if np.any(program.pass_bytes) and not run.is_by_torch:  # torch's own kernel adds the bias itself
        passes = {"data_bytes": program.pass_bytes, "issue_cycles": program.pass_cycles}
        yield {**run.place, "family": "pointwise", "unit": "vector", **passes}
    cast_bytes = work.parameter_cast_bytes if run.is_compiled else work.cast_bytes
    if np.any(cast_bytes):
        cast = {"family": "cast", "unit": "vector", "data_bytes": cast_bytes, "launches": run.cast_launches}
        if run.kind == "cpu":  # calibrated with its other elementwise kernels
            joins = run.cast_launches * (cast_bytes > _CAST_BYTES * GRAIN_NUMEL * run.cast_launches)
            cast |= {"family": "pointwise", "flops": cast_bytes / _CAST_BYTES, "joins": joins}
        yield {**run.place, **cast}
    if np.any(program.function_flops):
        yield {**run.place, "family": "softmax", "unit": "vector", "flops": program.function_flops}


def _by_either_way(kernel: dict[str, Any], unfolding: Unfolding, program: Program) -> list[dict[str, Any]]:
    """Return a CPU's kernel of a convolution, and the one in its place where torch multiplies the unfolded image.

    The latter has no `_PACKED_CYCLES`: with them, steps on one core were predicted worse
    (docs/internals/experiments.md).
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


def _has_unaligned_rows(row: Row, dtype: str) -> bool:
    """Return whether the rows of a matrix, in memory, fill no multiple of 16 bytes.

    With a weight (n, k) or its gradient, all rows have n or k elements, however many tokens there are; otherwise the
    last dimensions count. Inductor pads such matrices (`shape_padding`).
    """
    aligned_numel = ALIGNED_BYTES / ITEMSIZE_BYTES[dtype]
    matrices = [operand for operand in (*row.inputs, *row.outputs) if len(operand.shape) > 1]
    weights = [operand for operand in matrices if is_constant(operand)]
    dims = weights[0].shape[-2:] if len(weights) == 1 else [operand.shape[-1] for operand in matrices]
    fixed = (dim if isinstance(dim, int) else dim[0] for dim in dims if isinstance(dim, int) or dim[1] == 0)
    return any(size > 1 and size % aligned_numel for size in fixed)


def _image_numel(work: RowWork) -> Number:
    """Return the elements of the results of a convolution that are images."""
    return sum(tensor.numel for tensor in work.call.outputs[: image_result_count(work.call)])


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


def _leaves_channels_last(counts: RowCounts) -> bool:
    """Return whether most images of a step are in NCHW on a GPU though the model and its inputs are channels-last.

    A group norm leaves its result in NCHW (ATen's native_group_norm). A convolution turns it to channels-last again if
    its weight is in that order (`cudnn_conv_suggest_memory_format` in ATen's ConvUtils.h): a parameter is, a weight
    that the model computes, such as a standardized one, is not.
    """
    rows = [work.row for work in counts.rows]
    calls = [(is_constant(weight_of(row.op, row.inputs)), row.count) for row in rows if row.op == "aten.convolution"]
    with_parameters = sum(count for is_parameter, count in calls if is_parameter)
    has_group_norm = any(row.op == "aten.native_group_norm" for row in rows)
    return has_group_norm and 2 * with_parameters < sum(count for _, count in calls)


def _converts_layout(counts: RowCounts) -> bool:
    """Return whether torch.compile converts all images to channels-last on a GPU.

    In inference it weighs the FLOP of grouped convolutions, which are slower channels-last, by 1.36 and of others by
    about 0.8. In training a single one decides, as does one with a window whose weight has twice as many channels in
    its second dimension as in its first, or if no convolution has more than 64 channels. On CPUs it always converts
    (torch/_inductor/graph.py, decide_layout_opt). Left out is that it never converts with 300 or more graph nodes for
    each convolution, because rows are not nodes: in a vision transformer, whose patches are embedded by the only
    convolution, that is at most 0.4 % of a step on a T4, A100, H100 or RTX 4090.
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
    has_quantized = any(operand.dtype in QUANTIZED_DTYPES for operand in row.inputs)
    if family == "matmul" and has_quantized and not multiplies_narrow(row):
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
