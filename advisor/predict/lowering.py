"""A device-neutral workload in, the kernels that one kind of device runs for it out, as arrays."""

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
    """One row at every batch size, with operands of one width on any device; of one call, arrays (batches,).

    `part` is of `PARTS`. Where it `is_idle` no byte moves, as in a view, and nothing is run.
    `parameter_bytes`, of what is as large at every batch size, and `revisited_bytes` (see `Cost`) are part of neither
    `read_bytes` nor `write_bytes`.
    `cast_bytes` are those of `cast_count` conversions before or after the call, `image_bytes` all of a convolution's
    images. `compiled_bytes`, zero in eager mode, are what torch.compile reads and writes but parameters; there
    `parameter_cast_bytes` and `parameter_cast_count` are all that is left of the casts.
    `blocks` of threads: one for each token where a kernel of an engine does the row, else without end.
    """

    row: Row
    part: int
    is_idle: bool
    dtype: str
    flops: FloatArray
    read_bytes: FloatArray
    revisited_bytes: FloatArray
    revisited_set_bytes: FloatArray
    parameter_bytes: FloatArray
    write_bytes: FloatArray
    cast_bytes: FloatArray
    cast_count: float
    parameter_cast_bytes: FloatArray
    parameter_cast_count: float
    compiled_bytes: FloatArray
    image_bytes: FloatArray
    blocks: Number
    products: tuple[Product, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RowCounts:
    """The rows of a step that do work, as `compile` has them, and what the step copies to the device, (batches,).

    `pass_count`: how often the step reads its parameters.
    """

    rows: tuple[RowWork, ...]
    transfer_bytes: FloatArray
    batches: FloatArray
    compile: CompileMode
    pass_count: int = 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Kernels:
    """One step on one kind of device at one precision.

    `part` (an index of `PARTS`) says what of the step a kernel belongs to.
    `families` are kernels' own: those of operators, with `_grouped`, `_depthwise`, `_running` (statistics) and
    `_backward` where these run at other rates. `family`, `unit` (an index of `UNITS`), `row` (an index of the
    workload's rows) and `calls` are (kernels,). Of one call, (kernels, batches): FLOP, how much longer one of them
    takes in NCHW and channels-last than one of a product or an addition, those of a GPU's direct kernels in either,
    bytes of parameters, bytes of what operators hand to each other, those of them that are read again and, from a
    set of so many bytes, again and again, the loads that each thread makes in turn in NCHW, launches, how often all
    cores of a CPU start and end together, calls into a CPU's library, and the bytes that the layout or a fitted
    weight multiplies: of casts, of operands copied into another order in NCHW and channels-last, of images that a
    library transposes, of results that a bias is added to, of parameters that it puts into its own order. `groups`
    products (m, k) x (k, n), without end where the kernel is no product, and `blocks` of threads, without end where
    they are no tokens of an engine. Of the whole step, (batches,): the operators that the host dispatches, in
    backward apart, and the kernels that compiled code launches, the bytes that travel to the device, and those of
    all parameters and of what else lies in memory between passes.
    """

    families: tuple[str, ...]
    family: IndexArray
    unit: IndexArray
    row: IndexArray
    part: IndexArray
    calls: FloatArray
    flops: FloatArray
    nchw_flop_ratio: FloatArray
    nhwc_flop_ratio: FloatArray
    nchw_direct_flops: FloatArray
    nhwc_direct_flops: FloatArray
    weight_bytes: FloatArray
    data_bytes: FloatArray
    reread_bytes: FloatArray
    revisited_bytes: FloatArray
    revisited_set_bytes: FloatArray
    loads_in_turn: FloatArray
    launches: FloatArray
    joins: FloatArray
    library_calls: FloatArray
    cast_bytes: FloatArray
    nchw_copied_bytes: FloatArray
    nhwc_copied_bytes: FloatArray
    transposed_bytes: FloatArray
    biased_bytes: FloatArray
    repacked_bytes: FloatArray
    groups: FloatArray
    m: FloatArray
    n: FloatArray
    k: FloatArray
    blocks: FloatArray
    can_winograd: BoolArray
    dispatches: FloatArray
    backward_dispatches: FloatArray
    compiled_dispatches: FloatArray
    transfer_bytes: FloatArray
    parameter_bytes: FloatArray

    @property
    def has_backward(self) -> bool:
        """Whether the step computes gradients, compiled or not."""
        return any(PARTS[part].endswith("backward") for part in np.unique(self.part))

    def at(self, batches: IndexArray) -> "Kernels":
        """Those at some of the batch sizes, by their indices."""
        names = (*_PER_CALL, *_OF_PRODUCTS, *_OF_STEP)
        arrays: dict[str, Any] = {name: np.take(getattr(self, name), batches, axis=-1) for name in names}
        return replace(self, **arrays)

    def in_bf16(self) -> "Kernels":
        """Those of the same width in bf16, where these are in fp16: the two differ by the unit alone."""
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
"""What weights are stored in that kernels compute with in half."""
_PER_CALL = (
    "flops", "nchw_flop_ratio", "nhwc_flop_ratio", "nchw_direct_flops", "nhwc_direct_flops", "weight_bytes",
    "data_bytes", "reread_bytes", "revisited_bytes", "revisited_set_bytes", "loads_in_turn", "launches", "joins",
    "library_calls", "cast_bytes", "nchw_copied_bytes", "nhwc_copied_bytes", "transposed_bytes", "biased_bytes",
    "repacked_bytes", "blocks",
)  # fmt: skip
_OF_PRODUCTS = ("groups", "m", "n", "k")
_OF_STEP = ("dispatches", "backward_dispatches", "compiled_dispatches", "transfer_bytes", "parameter_bytes")
_EAGER_BY_LIBRARY = ("norm", "pool")
"""What a CPU calls a library for (oneDNN, or torch's own like it), as for convolutions; Inductor writes its own."""
_GROUPED_SHARE = (1 - 0.82) / (1.36 - 0.82)
"""Of a net's FLOP in convolutions, where Inductor's weights of the two layouts are equal."""
_BY_ELEMENT = frozenset({"pointwise", "copy", "creation", "reduction"})
"""Families whose elements torch divides among a CPU's cores."""
_GRAIN_NUMEL = 32_768
"""Elements up to which it does not (ATen/Parallel.h: GRAIN_SIZE)."""
_ENDLESS = 1e9
"""A dimension so long that no tile of it is left half empty."""


def count_rows(
    workload: Workload, *, batches: FloatArray, width: Width, compile_mode: CompileMode = "eager"
) -> RowCounts:
    """Evaluate the formula of every row once for all batch sizes. Views do nothing and are left out."""
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
    if row.family == "conv" and len(products) > 1:  # two gradients, and each needs that of the result
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
    """Of threads: engines give one to each token, a row of the result."""
    if row.family not in BY_TOKEN:
        return _ENDLESS
    result = call.outputs[0]
    return np.maximum(result.numel / result.shape[-1], 1.0)


def _compiled_bytes(row: Row, *, batches: FloatArray, width: Width, dtype_of: DtypeOf) -> FloatArray:
    """What torch.compile reads and writes for the row, but parameters.

    A fused kernel casts what it reads and writes. What others read in half and it keeps in fp32 it writes twice, and
    parts of a concatenation that were computed in their place are neither read nor written again.
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
    """The kernels that a kind of device runs for the rows: composites become that device's own programs.

    Under torch.compile what stays inside a fused kernel does not reach memory, a row that another kernel goes on with,
    or that has nothing left to move, launches nothing of its own, and the host dispatches kernels, not operators.
    A GPU decodes in a CUDA graph, which the host starts once for each token, far sooner than it ends.
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
    """Inductor's kernels copy nothing into another order, and have vectors and threads for every layout."""
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
    """The kernels of one row: one for each of its products, which share its FLOP and bytes.

    The last product is that of a recurrent layer's state, which reads its weights again.
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
        # One kernel is the rule, and a division of tiny arrays takes as long as all else here.
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
    """Whether a kernel runs on all cores of a CPU: not where torch leaves a few elements, or MKL a vector, to one."""
    if product is not None:
        return np.where(np.asarray(product.groups) * product.m > 1, 1.0, 0.0)
    if compiled or work.row.family not in _BY_ELEMENT:
        return 1.0
    itemsize_bytes = ITEMSIZE_BYTES[work.dtype]
    numel = np.maximum(work.write_bytes, work.read_bytes if work.row.family == "reduction" else 0.0) / itemsize_bytes
    return np.where(numel > _GRAIN_NUMEL, 1.0, 0.0)


def _is_relaid(counts: RowCounts) -> bool:
    """Whether torch.compile keeps all images channels-last: unless grouped convolutions, slower then, have much to do.

    Inductor weighs FLOP by 1.36 for grouped ones, some 0.8 for all others; in training a single one decides. On CPUs it
    always does (torch/_inductor/graph.py, decide_layout_opt).
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
    """The family whose rates the kernel has."""
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
        return np.maximum(lengths, 1.0)  # an empty product has no FLOP, and a tile as any other

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
    """Attention of one token each: the keys are cut among all cores, and no tile is filled or not (Flash-Decoding)."""
    return row.phase == "decode" and row.family == "attention"


def is_streamed(operand: Operand) -> bool:
    """Whether it lies in memory from one pass to the next, so that every pass reads it from there."""
    return operand.kept or is_constant(operand)


def is_constant(operand: Operand) -> bool:
    """Whether the operand is as large at every batch size: a parameter, as far as the trace can tell."""
    return not operand.varies and all(isinstance(dim, int) or dim[1] == 0 for dim in operand.shape)


def _cast_operands(row: Row, *, width: Width, dtype_of: DtypeOf) -> list[Operand]:
    """The operands that autocast converts: inputs stored in another dtype, and in backward the gradients of parameters.

    Backward finds the half copies of the parameters that forward made, and converts their gradients to fp32.
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
    """A cast reads one width and writes the other."""
    numel = _operands_bytes((operand,), batches=batches, dtype_of=lambda _: "int8")
    return numel * (ITEMSIZE_BYTES["float32"] + ITEMSIZE_BYTES["float16"])


def _operands_bytes(operands: tuple[Operand, ...], *, batches: FloatArray, dtype_of: DtypeOf) -> FloatArray:
    total = np.zeros(len(batches))
    for operand in operands:
        total = total + operand_bytes(operand, batches=batches, dtype=dtype_of(operand))
    return total


def constant_bytes(operand: Operand, *, dtype: str) -> float:
    """Bytes of an operand that is as large at every batch size."""
    return (
        math.prod((dim if isinstance(dim, int) else dim[0] for dim in operand.shape), start=1.0) * ITEMSIZE_BYTES[dtype]
    )


def operand_bytes(operand: Operand, *, batches: FloatArray, dtype: str) -> FloatArray:
    """Bytes of one operand at every batch size."""
    numel = np.ones(len(batches))
    for dim in operand.shape:
        numel = numel * (dim if isinstance(dim, int) else dim[0] + dim[1] * batches)
    return numel * ITEMSIZE_BYTES[dtype]


def _widest_float(dtypes: list[str]) -> str:
    floats = [dtype for dtype in dtypes if dtype in _FLOAT_DTYPES]
    return max(floats, key=lambda dtype: ITEMSIZE_BYTES[dtype], default="float32")
