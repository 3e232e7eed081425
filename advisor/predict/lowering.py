"""Lowers a device-neutral workload to the kernels that one kind of device runs, as arrays."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from advisor.ops.evaluate import DtypeOf, call_at, call_cost, row_cost
from advisor.ops.registry import CHANNELS_LAST, ITEMSIZE_BYTES, Call, Number, autocast_of, formula_of
from advisor.predict.blocks import part_of
from advisor.predict.composite_kernels import FUSED_FLOP_RATIO, Program, has_running_statistics, program_of
from advisor.predict.efficiency import BY_TOKEN, QUANTIZED_PRODUCT, VECTOR_ATTENTION
from advisor.predict.precision import (
    MATRIX_FAMILIES,
    Width,
    compiled_dtype,
    computed_dtype,
    computing_family,
    stored_dtype,
    unit_of,
    width_of,
)
from advisor.predict.products import AS_IT_IS, Product, products_of
from advisor.predict.row_errors import refusing_rows
from advisor.records.device import CompileMode, DeviceKind, Precision
from advisor.records.prediction import PARTS, BoolArray, FloatArray, IndexArray
from advisor.records.workload import Operand, Row, Workload

UNITS = ("fp32", "tf32", "fp16", "bf16", "fp64", "vector", "scalar")
"""The units of `Device.peak_flops_per_s`."""
TENSOR_UNITS = frozenset({"tf32", "fp16", "bf16"})
_HALF_DTYPES = frozenset({"float16", "bfloat16"})
_FLOAT_DTYPES = frozenset({"float64", "float32", "float16", "bfloat16", "complex128", "complex64"})


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowWork:
    """The work of one call of a row, on any device, with its operands at one width; arrays are (batches,).

    `read_bytes` and `write_bytes` include neither `parameter_bytes` nor `revisited_bytes`.
    """

    row: Row
    part: int
    """Index of `PARTS`."""
    is_idle: bool
    """True if no byte moves, as in a view: nothing is run."""
    dtype: str
    flops: FloatArray
    read_bytes: FloatArray
    revisited_bytes: FloatArray
    """See `Cost`."""
    revisited_set_bytes: FloatArray
    """See `Cost`."""
    parameter_bytes: FloatArray
    """Bytes of the operands that do not grow with the batch."""
    write_bytes: FloatArray
    cast_bytes: FloatArray
    """Bytes of the casts before or after the call."""
    cast_count: float
    parameter_cast_bytes: FloatArray
    """Bytes of the casts that torch.compile cannot fuse: those of parameters."""
    parameter_cast_count: float
    compiled_bytes: FloatArray
    """Bytes that torch.compile reads and writes, without parameters; zero in eager mode."""
    image_bytes: FloatArray
    """Bytes of all images of a convolution."""
    blocks: Number
    """Thread blocks: one per token for a kernel of an inference engine, else practically infinite."""
    products: tuple[Product, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounts:
    """The work of all rows of a step, in one compile mode; arrays are (batches,)."""

    rows: tuple[RowWork, ...]
    transfer_bytes: FloatArray
    """Bytes that the step copies to the device."""
    batches: FloatArray
    compile: CompileMode
    pass_count: int = 1
    """How often the step reads its parameters."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernels:
    """The kernels of one step on one kind of device at one precision.

    `family` to `calls` and `can_winograd` are (kernels,). `flops` to `blocks` are (kernels, batches), per call.
    `dispatches` to `parameter_bytes` are (batches,), per step.
    """

    families: tuple[str, ...]
    """Kernel families: those of operators, split by suffix where rates differ: `_grouped`, `_depthwise`, `_running`
    (batch norms with running statistics) and `_backward`."""
    family: IndexArray
    """Index of `families`."""
    unit: IndexArray
    """Index of `UNITS`."""
    row: IndexArray
    """Index of the workload's rows."""
    part: IndexArray
    """Index of `PARTS`."""
    calls: FloatArray
    flops: FloatArray
    nchw_flop_ratio: FloatArray
    """Slowdown of a FLOP in NCHW relative to a matmul or an addition."""
    nhwc_flop_ratio: FloatArray
    """The same, channels-last."""
    nchw_direct_flops: FloatArray
    """FLOP of direct convolution kernels on a GPU in NCHW, weighted by their slowdown."""
    nhwc_direct_flops: FloatArray
    """The same, channels-last."""
    weight_bytes: FloatArray
    """Bytes of parameters read."""
    data_bytes: FloatArray
    """Bytes of activations read and written."""
    reread_bytes: FloatArray
    """The part of `data_bytes` that is a second read, which channels-last 16-bit kernels may save."""
    revisited_bytes: FloatArray
    """Bytes of repeated reads from a working set of `revisited_set_bytes`."""
    revisited_set_bytes: FloatArray
    loads_in_turn: FloatArray
    """Loads that each thread makes in sequence in NCHW."""
    launches: FloatArray
    joins: FloatArray
    """How often all cores of a CPU start and finish together."""
    library_calls: FloatArray
    """Calls into a CPU library."""
    cast_bytes: FloatArray
    nchw_copied_bytes: FloatArray
    """Bytes of operands that are copied to another layout if the images are in NCHW."""
    nhwc_copied_bytes: FloatArray
    """The same, channels-last."""
    transposed_bytes: FloatArray
    """Bytes of images that a library may transpose."""
    biased_bytes: FloatArray
    """Bytes of results to which a bias is added."""
    repacked_bytes: FloatArray
    """Bytes of parameters that a library may repack at every call."""
    groups: FloatArray
    """Number of matmuls (m, k) x (k, n) in the kernel; practically infinite, like m, n and k, if it is none."""
    m: FloatArray
    n: FloatArray
    k: FloatArray
    blocks: FloatArray
    """Thread blocks; practically infinite if the kernel does not assign one to each token."""
    can_winograd: BoolArray
    dispatches: FloatArray
    """Operators that the host dispatches in eager mode, without those of backward."""
    backward_dispatches: FloatArray
    compiled_dispatches: FloatArray
    """Kernels that compiled code launches."""
    transfer_bytes: FloatArray
    """Bytes copied to the device."""
    parameter_bytes: FloatArray
    """Bytes of all parameters and of other data that stays in memory between passes."""

    @property
    def has_backward(self) -> bool:
        """Return whether the step computes gradients, compiled or not."""
        return any(PARTS[part].endswith("backward") for part in np.unique(self.part))

    def at(self, batches: IndexArray) -> "Kernels":
        """Return the kernels at some of the batch sizes, given by index."""
        names = (*_PER_CALL, *_OF_PRODUCTS, *_OF_STEP)
        arrays: dict[str, Any] = {name: np.take(getattr(self, name), batches, axis=-1) for name in names}
        return replace(self, **arrays)

    def in_bf16(self) -> "Kernels":
        """Return the same kernels in bf16 instead of fp16; only the compute unit differs."""
        fp16, bf16 = UNITS.index("fp16"), UNITS.index("bf16")
        return replace(self, unit=np.where(self.unit == fp16, bf16, self.unit))


class _Kernel(NamedTuple):
    """One kernel of a row, with the fields of `Kernels` that have a value per kernel."""

    family: str
    unit: str
    row: int
    part: int
    calls: float
    flops: Number
    nchw_flop_ratio: Number
    nhwc_flop_ratio: Number
    nchw_direct_flops: Number
    nhwc_direct_flops: Number
    weight_bytes: Number
    data_bytes: Number
    reread_bytes: Number
    revisited_bytes: Number
    revisited_set_bytes: Number
    loads_in_turn: Number
    launches: Number
    joins: Number
    library_calls: Number
    cast_bytes: Number
    nchw_copied_bytes: Number
    nhwc_copied_bytes: Number
    transposed_bytes: Number
    biased_bytes: Number
    repacked_bytes: Number
    blocks: Number
    product: Product | None


_QUANTIZED = frozenset({"int4", "int8", "float8_e4m3fn"})
"""Storage dtypes of quantized weights, which kernels convert to 16 bits to compute."""
_PER_CALL = (
    "flops", "nchw_flop_ratio", "nhwc_flop_ratio", "nchw_direct_flops", "nhwc_direct_flops", "weight_bytes",
    "data_bytes", "reread_bytes", "revisited_bytes", "revisited_set_bytes", "loads_in_turn", "launches", "joins",
    "library_calls", "cast_bytes", "nchw_copied_bytes", "nhwc_copied_bytes", "transposed_bytes", "biased_bytes",
    "repacked_bytes", "blocks",
)  # fmt: skip
_OF_PRODUCTS = ("groups", "m", "n", "k")
_OF_STEP = ("dispatches", "backward_dispatches", "compiled_dispatches", "transfer_bytes", "parameter_bytes")
_EAGER_BY_LIBRARY = ("norm", "pool")
"""Families that a CPU runs by a library call in eager mode (oneDNN or similar code in torch), like convolutions.
Inductor generates its own code for them."""
_GROUPED_SHARE = (1 - 0.82) / (1.36 - 0.82)
"""Share of grouped convolutions in the FLOP of all convolutions at which Inductor rates both layouts equal."""
_BY_ELEMENT = frozenset({"pointwise", "copy", "creation", "reduction"})
"""Families in which torch splits the elements among a CPU's cores."""
_GRAIN_NUMEL = 32_768
"""Up to this number of elements torch uses one core (ATen/Parallel.h: GRAIN_SIZE)."""
_ENDLESS = 1e9
"""A dimension long enough to make padding to whole tiles negligible."""


def count_rows(
    workload: Workload, *, batches: FloatArray, width: Width, compile_mode: CompileMode = "eager"
) -> RowCounts:
    """Evaluate the formula of every row once for all batch sizes; views are idle."""
    return RowCounts(
        rows=tuple(
            _row_work(row, batches=batches, width=width, compile_mode=compile_mode)
            if row.family != "view"
            else _nothing(row, batches=batches)
            for row in workload.rows
        ),
        transfer_bytes=_operands_bytes(workload.inputs, batches=batches, dtype_of=lambda operand: operand.dtype),
        batches=batches,
        compile=compile_mode,
        pass_count=1 if workload.generation is None else 1 + workload.generation.decode_count,
    )


def _nothing(row: Row, *, batches: FloatArray) -> RowWork:
    zeros = {field.name: np.zeros(len(batches)) for field in fields(RowWork) if field.type is FloatArray}
    return RowWork(
        row=row,
        part=part_of(row),
        is_idle=True,
        dtype="float32",
        cast_count=0.0,
        parameter_cast_count=0.0,
        blocks=_ENDLESS,
        products=(),
        **zeros,
    )


@refusing_rows
def _row_work(row: Row, *, batches: FloatArray, width: Width, compile_mode: CompileMode) -> RowWork:
    dtype_of = computed_dtype(width=width, autocast=autocast_of(row.op, row.attributes))
    call = call_at(row, batch=batches, dtype_of=dtype_of)
    cost = call_cost(row, call)
    dtype = _widest_float([dtype_of(operand) for operand in (*row.inputs, *row.outputs)])
    constants = tuple(operand for operand in row.inputs if is_streamed(operand))
    images = tuple(operand for operand in (*row.inputs, *row.outputs) if not is_constant(operand))
    products = () if _is_vector_product(row) else products_of(call)
    if row.family == "conv" and len(products) > 1:  # two gradients, each of which reads the output's gradient
        images += row.inputs[:1]
    casts = _cast_operands(row, width=width, dtype_of=dtype_of)
    parameter_casts = [operand for operand in casts if is_constant(operand)]
    nothing = np.zeros(len(batches))
    read_bytes, write_bytes = nothing + cost.read_bytes, nothing + cost.write_bytes
    cast_bytes = sum((_cast_bytes(operand, batches=batches) for operand in casts), nothing)
    first_read_bytes = read_bytes - cost.revisited_bytes
    parameter_bytes = np.minimum(_operands_bytes(constants, batches=batches, dtype_of=dtype_of), first_read_bytes)
    return RowWork(
        row=row,
        part=part_of(row),
        is_idle=not (read_bytes + write_bytes + cast_bytes).any(),
        dtype=dtype,
        flops=nothing + cost.flops,
        read_bytes=first_read_bytes - parameter_bytes,
        revisited_bytes=nothing + cost.revisited_bytes,
        revisited_set_bytes=nothing + cost.revisited_set_bytes,
        parameter_bytes=parameter_bytes,
        write_bytes=write_bytes,
        cast_bytes=cast_bytes,
        cast_count=float(len(casts)),
        parameter_cast_bytes=sum((_cast_bytes(operand, batches=batches) for operand in parameter_casts), nothing),
        parameter_cast_count=float(len(parameter_casts)),
        compiled_bytes=_compiled_bytes(row, batches=batches, width=width, dtype_of=dtype_of)
        if compile_mode == "compile"
        else nothing,
        image_bytes=_operands_bytes(images, batches=batches, dtype_of=dtype_of) if row.family == "conv" else nothing,
        blocks=_blocks(row, call),
        products=products,
    )


def _blocks(row: Row, call: Call) -> Number:
    """Return the number of thread blocks; inference engines use one per token, a row of the result."""
    if row.family not in BY_TOKEN:
        return _ENDLESS
    result = call.outputs[0]
    return np.maximum(result.numel / result.shape[-1], 1.0)


def _compiled_bytes(row: Row, *, batches: FloatArray, width: Width, dtype_of: DtypeOf) -> FloatArray:
    """Return the bytes that torch.compile reads and writes for the row, without parameters.

    A fused kernel casts its operands on the fly. A result that it keeps in fp32 and other kernels read in 16 bits is
    written twice. Parts of a concatenation that are computed in place are neither read nor written again.
    """
    formula = formula_of(row.op)
    is_fusable = formula is not None and formula.fusable
    stored: DtypeOf = (lambda operand: compiled_dtype(operand, width=width)) if is_fusable else dtype_of
    cost = row_cost(row, batch=batches, dtype_of=stored)
    constants = tuple(operand for operand in row.inputs if is_streamed(operand))
    inside = tuple(operand for operand in (*row.inputs, *row.outputs) if operand.fused)
    first_read_bytes = np.zeros(len(batches)) + cost.read_bytes - cost.revisited_bytes
    moved_bytes = first_read_bytes + cost.write_bytes
    moved_bytes = moved_bytes - _operands_bytes(inside, batches=batches, dtype_of=stored)
    moved_bytes = moved_bytes - np.minimum(
        _operands_bytes(constants, batches=batches, dtype_of=stored), first_read_bytes
    )
    if row.op == "aten.cat" and not row.outputs[0].fused:
        moved_bytes = moved_bytes - _operands_bytes(inside, batches=batches, dtype_of=stored)
    if not is_fusable:
        copied = tuple(
            operand
            for operand in _cast_operands(row, width=width, dtype_of=dtype_of)
            if not is_constant(operand) and not operand.narrowed
        )
        moved_bytes = moved_bytes + _operands_bytes(copied, batches=batches, dtype_of=dtype_of)
    result: FloatArray = np.maximum(moved_bytes, 0.0)
    return result


def lower(counts: RowCounts, *, kind: DeviceKind, precision: Precision) -> Kernels:
    """Return the kernels that a kind of device runs for the rows; composite operators become several kernels.

    Under torch.compile, intermediates inside a fused kernel do not reach memory. A row that is fused into a later
    kernel, or has nothing left to move, launches no kernel. The host dispatches kernels, not operators.
    Decoding on a GPU runs in a CUDA graph, launched once per token, so it has no dispatch overhead.
    """
    kernels: list[_Kernel] = []
    is_relaid = counts.compile == "compile" and (kind == "cpu" or _is_relaid(counts))
    dispatches, backward_dispatches, compiled_dispatches, parameter_bytes = (
        np.zeros(len(counts.batches)) for _ in range(4)
    )
    for index, work in enumerate(counts.rows):
        row = work.row
        if work.is_idle:
            continue
        is_compiled = counts.compile == "compile" and row.phase != "optimizer"
        is_inside = is_compiled and (any(one.joined for one in row.outputs) or not work.compiled_bytes.any())
        cast_count = work.parameter_cast_count if is_compiled else work.cast_count
        program = program_of(row, kind=kind, itemsize_bytes=ITEMSIZE_BYTES[work.dtype], batches=counts.batches)
        is_graph = row.phase == "decode" and kind == "gpu"
        if not is_inside and not is_graph:
            called = program.launches if is_compiled else program.dispatches
            calls = row.count * (called + cast_count)
            if is_compiled:
                compiled_dispatches = compiled_dispatches + calls
            elif row.phase == "backward":
                backward_dispatches = backward_dispatches + calls
            else:
                dispatches = dispatches + calls
        parameter_bytes += row.count * work.parameter_bytes / counts.pass_count
        is_fused = is_compiled and kind == "cpu" and row.family not in MATRIX_FAMILIES
        kernels += _kernels_of(
            index,
            work,
            _compiled(program) if is_compiled else program,
            kind=kind,
            precision=precision,
            compiled=is_compiled,
            relaid=is_relaid,
            launches=0.0 if is_inside else program.launches + cast_count,
            flop_ratio=max(program.flop_ratio - 1, 0.0) + FUSED_FLOP_RATIO if is_fused else program.flop_ratio,
        )
    return _as_arrays(
        kernels,
        batches=counts.batches,
        dispatches=dispatches,
        backward_dispatches=backward_dispatches,
        compiled_dispatches=compiled_dispatches,
        transfer_bytes=counts.transfer_bytes,
        parameter_bytes=parameter_bytes,
    )


def _compiled(program: Program) -> Program:
    """Return the program as Inductor compiles it: vectorized and parallel in every layout, without layout copies."""
    return replace(
        program,
        loads_in_turn=0.0,
        nchw_copied_bytes=0.0,
        nhwc_copied_bytes=0.0,
        is_scalar=False,
        keeps_halves_channels_last=False,
    )


def _kernels_of(
    index: int,
    work: RowWork,
    program: Program,
    *,
    kind: DeviceKind,
    precision: Precision,
    compiled: bool,
    relaid: bool,
    launches: Number,
    flop_ratio: Number,
) -> Iterator[_Kernel]:
    """Yield the kernels of one row: one per matmul, each with its share of the row's FLOP and bytes.

    In a recurrent layer the last matmul is that of the state, which reads its weights at every time step.
    """
    row = work.row
    data_bytes = work.compiled_bytes if compiled else work.read_bytes + work.write_bytes
    cast_bytes = work.parameter_cast_bytes if compiled else work.cast_bytes
    is_half = width_of(precision) != "full"
    is_channels_last = relaid or CHANNELS_LAST in row.attributes
    is_transposed = (kind == "cpu" or work.dtype in _HALF_DTYPES) and not is_channels_last
    is_by_library = kind == "cpu" and (row.family == "conv" or (row.family in _EAGER_BY_LIBRARY and not compiled))
    is_repacked = kind == "cpu" and (row.family == "conv" or program.repacks)
    has_bias = row.op == "aten.convolution" and len(row.inputs) > 2 and not compiled  # Inductor adds it further on
    products: Sequence[Product | None] = work.products or (None,)
    read_twice_bytes = program.reread_ratio * work.read_bytes
    moved_bytes = data_bytes + program.extra_bytes + read_twice_bytes
    reread_bytes = read_twice_bytes * (program.keeps_halves_channels_last and is_half)
    whole = (work.flops, work.parameter_bytes, moved_bytes, reread_bytes, cast_bytes, work.image_bytes)
    all_shares = sum(product.share for product in work.products)
    for product in products:
        # Most rows have one kernel, and dividing tiny arrays takes as long as everything else here.
        shares = (
            whole
            if product is None or len(products) == 1
            else tuple(amount * product.share / all_shares for amount in whole)
        )
        flops, weight_bytes, moved_bytes, reread_bytes, cast_bytes, image_bytes = shares
        own_launches = launches / len(products)
        family = _family(row, product)
        own_family = product.family if product is not None and product.family else computing_family(row)
        unit = "scalar" if program.is_scalar else unit_of(own_family, kind=kind, dtype=work.dtype, precision=precision)
        nhwc = product.nhwc if product is not None else AS_IT_IS
        nchw = nhwc if is_channels_last or product is None else product.nchw
        is_padded = kind == "gpu" and unit in TENSOR_UNITS
        is_last = product is products[-1]
        joins = own_launches * _is_joined(work, product, compiled=compiled) + is_last * program.joins
        yield _Kernel(
            family=family,
            unit="vector" if product is not None and product.is_depthwise else unit,
            row=index,
            part=work.part,
            calls=row.count,
            flops=flops,
            nchw_flop_ratio=flop_ratio * (nchw.padded_ratio if is_padded else 1.0),
            nhwc_flop_ratio=flop_ratio * (nhwc.padded_ratio if is_padded else 1.0),
            nchw_direct_flops=flops * nchw.direct_ratio,
            nhwc_direct_flops=flops * nhwc.direct_ratio,
            weight_bytes=weight_bytes,
            data_bytes=moved_bytes,
            reread_bytes=reread_bytes,
            revisited_bytes=is_last * (program.revisited_bytes + work.revisited_bytes),
            revisited_set_bytes=is_last * (program.revisited_set_bytes + work.revisited_set_bytes),
            loads_in_turn=program.loads_in_turn,
            launches=own_launches,
            joins=joins if kind == "cpu" else 0.0,
            library_calls=own_launches if is_by_library else 0.0,
            cast_bytes=cast_bytes,
            nchw_copied_bytes=program.nchw_copied_bytes,
            nhwc_copied_bytes=program.nhwc_copied_bytes,
            transposed_bytes=image_bytes if is_transposed and (kind == "cpu" or "depthwise" not in family) else 0.0,
            biased_bytes=work.write_bytes if has_bias else 0.0,
            repacked_bytes=weight_bytes if is_repacked else 0.0,
            blocks=work.blocks,
            product=product,
        )


def _is_joined(work: RowWork, product: Product | None, *, compiled: bool) -> Number:
    """Return 1 if the kernel runs on all cores of a CPU, else 0.

    Torch runs few elements on one core, and MKL a matmul with a single row.
    """
    if product is not None:
        return np.where(np.asarray(product.groups) * product.m > 1, 1.0, 0.0)
    if compiled or work.row.family not in _BY_ELEMENT:
        return 1.0
    itemsize_bytes = ITEMSIZE_BYTES[work.dtype]
    numel = np.maximum(work.write_bytes, work.read_bytes if work.row.family == "reduction" else 0.0) / itemsize_bytes
    return np.where(numel > _GRAIN_NUMEL, 1.0, 0.0)


def _is_relaid(counts: RowCounts) -> bool:
    """Return whether torch.compile converts all images to channels-last on a GPU.

    It does not if grouped convolutions, which are slower channels-last, do much of the work. Inductor weighs their FLOP
    by 1.36 and others by about 0.8; in training a single grouped convolution decides. On CPUs it always converts
    (torch/_inductor/graph.py, decide_layout_opt).
    """
    flops, grouped_flops = 0.0, 0.0
    for work in counts.rows:
        if work.row.family == "conv":
            is_grouped = any(np.max(one.groups) > 1 and not one.is_depthwise for one in work.products)
            flops += float(work.flops[0]) * work.row.count
            grouped_flops += float(work.flops[0]) * work.row.count * is_grouped
    is_training = any(work.row.phase == "backward" for work in counts.rows)
    return grouped_flops <= (0.0 if is_training else _GROUPED_SHARE * flops)


def _family(row: Row, product: Product | None) -> str:
    """Return the family whose rates apply to the kernel."""
    family = row.family
    if _is_vector_product(row):
        return VECTOR_ATTENTION
    if family == "matmul" and any(operand.dtype in _QUANTIZED for operand in row.inputs):
        return QUANTIZED_PRODUCT
    if product is not None and family == "conv":
        if product.is_depthwise:
            family = "conv_depthwise"
        elif np.max(product.groups) > 1:
            family = "conv_grouped"
    if family == "norm" and has_running_statistics(row):
        return "norm_running"
    if product is not None and product.family:
        return product.family
    is_gradient = row.phase == "backward" or (product is not None and product.is_gradient)
    is_backward = is_gradient and row.family in ("conv", "norm", "attention", "pool")
    return f"{family}_backward" if is_backward else family


def _as_arrays(kernels: Sequence[_Kernel], *, batches: FloatArray, **of_step: FloatArray) -> Kernels:
    families = tuple(sorted({kernel.family for kernel in kernels}))
    shape = (len(kernels), len(batches))

    def filled(values: Sequence[Number]) -> FloatArray:
        array = np.empty(shape)
        for position, value in enumerate(values):
            array[position] = value
        return array

    def of_products(name: str) -> FloatArray:
        lengths = filled([getattr(kernel.product, name) if kernel.product else _ENDLESS for kernel in kernels])
        return np.maximum(lengths, 1.0)  # an empty matmul has no FLOP but still one tile

    def is_product(name: str) -> BoolArray:
        return np.array([kernel.product is not None and getattr(kernel.product, name) for kernel in kernels], np.bool_)

    return Kernels(
        families=families,
        family=np.array([families.index(kernel.family) for kernel in kernels], dtype=np.intp),
        unit=np.array([UNITS.index(kernel.unit) for kernel in kernels], dtype=np.intp),
        row=np.array([kernel.row for kernel in kernels], dtype=np.intp),
        part=np.array([kernel.part for kernel in kernels], dtype=np.intp),
        calls=np.array([kernel.calls for kernel in kernels], dtype=np.float64),
        **{name: filled([getattr(kernel, name) for kernel in kernels]) for name in _PER_CALL},
        **{name: of_products(name) for name in _OF_PRODUCTS},
        can_winograd=is_product("can_winograd"),
        **of_step,
    )


def _is_vector_product(row: Row) -> bool:
    """Return whether the row is attention of a single query token, which splits the keys over all SMs (Flash-Decoding).

    Tiles and waves do not apply to it.
    """
    return row.phase == "decode" and row.family == "attention"


def is_streamed(operand: Operand) -> bool:
    """Return whether the operand stays in memory between passes, so that every pass reads it from there."""
    return operand.kept or is_constant(operand)


def is_constant(operand: Operand) -> bool:
    """Return whether the operand's size is independent of the batch: a parameter, as far as the trace can tell."""
    return not operand.varies and all(isinstance(dim, int) or dim[1] == 0 for dim in operand.shape)


def _cast_operands(row: Row, *, width: Width, dtype_of: DtypeOf) -> list[Operand]:
    """Return the operands that autocast converts: inputs stored in another dtype and, in backward, parameter gradients.

    Backward reuses the 16-bit copies of the parameters from forward and converts their gradients to fp32.
    """
    if width != "autocast":
        return []
    is_backward = row.phase == "backward"
    inputs = [operand for operand in row.inputs if not (is_backward and is_constant(operand))]
    gradients = [operand for operand in row.outputs if is_backward and is_constant(operand)]
    return [operand for operand in inputs if stored_dtype(operand, width=width) != dtype_of(operand)] + [
        operand for operand in gradients if operand.dtype == "float32" and dtype_of(operand) == "float16"
    ]


def _cast_bytes(operand: Operand, *, batches: FloatArray) -> FloatArray:
    """Return the bytes of a cast, which reads one of fp32 and fp16 and writes the other."""
    numel = _operands_bytes((operand,), batches=batches, dtype_of=lambda _: "int8")
    return numel * (ITEMSIZE_BYTES["float32"] + ITEMSIZE_BYTES["float16"])


def _operands_bytes(operands: tuple[Operand, ...], *, batches: FloatArray, dtype_of: DtypeOf) -> FloatArray:
    total = np.zeros(len(batches))
    for operand in operands:
        total = total + operand_bytes(operand, batches=batches, dtype=dtype_of(operand))
    return total


def constant_bytes(operand: Operand, *, dtype: str) -> float:
    """Return the bytes of an operand whose size does not depend on the batch."""
    return (
        math.prod((dim if isinstance(dim, int) else dim[0] for dim in operand.shape), start=1.0) * ITEMSIZE_BYTES[dtype]
    )


def operand_bytes(operand: Operand, *, batches: FloatArray, dtype: str) -> FloatArray:
    """Return the bytes of one operand at every batch size."""
    numel = np.ones(len(batches))
    for dim in operand.shape:
        numel = numel * (dim if isinstance(dim, int) else dim[0] + dim[1] * batches)
    return numel * ITEMSIZE_BYTES[dtype]


def _widest_float(dtypes: list[str]) -> str:
    floats = [dtype for dtype in dtypes if dtype in _FLOAT_DTYPES]
    return max(floats, key=lambda dtype: ITEMSIZE_BYTES[dtype], default="float32")
