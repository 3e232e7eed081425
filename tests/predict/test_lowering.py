from dataclasses import fields, replace
from typing import Any, get_args

import numpy as np
import pytest

from advisor.ops.registry import CHANNELS_LAST, MADE_CONTIGUOUS, WITHOUT_INDICES
from advisor.predict.composite_kernels import PRODUCT_CALL_CYCLES
from advisor.predict.kernel_time import BLAS_HALF, DISPATCHED, UNITS, Kernels
from advisor.predict.lowering import StepKernels, lower
from advisor.predict.precision import compiled_dtype, computed_width, width_of
from advisor.predict.row_work import count_rows, is_constant
from advisor.records.device import CompileMode, DeviceKind, Layout, Precision
from advisor.records.generation import Generation
from advisor.records.prediction import PARTS, FloatArray
from advisor.records.workload import Operand, Phase, Row, Workload
from tests.predict.toys import linear_row, operand, row, workload

BATCHES = np.array([1.0, 4.0])
MANY_IMAGES = np.array([16.0, 32.0])
"""Batch sizes at which CPUs leave every convolution to oneDNN."""


def lowered(
    toy: Workload,
    *,
    kind: DeviceKind = "gpu",
    precision: Precision = "fp32",
    compile_mode: CompileMode = "eager",
    layout: Layout = "nchw",
    batches: FloatArray | None = None,
) -> Kernels:
    counts = count_rows(
        toy, batches=BATCHES if batches is None else batches, width=width_of(precision), compile_mode=compile_mode
    )
    return lower(counts, kind=kind, precision=precision, layout=layout)


def moved_bytes(toy: Workload, *, precision: Precision = "fp32", compile_mode: CompileMode = "eager") -> list[float]:
    """The bytes of the whole step, including casts."""
    kernels = lowered(toy, precision=precision, compile_mode=compile_mode)
    one_call = kernels.weight_bytes + kernels.data_bytes
    return [float(value) for value in kernels.calls @ one_call]


def chain_row(*, fused_in: bool, fused_out: bool) -> Row:
    data = operand((0.0, 1.0), 100, fused=fused_in)
    result = operand((0.0, 1.0), 100, fused=fused_out, joined=fused_out)
    return row("aten.relu", (data,), (result,), family="pointwise")


def test_flops_and_bytes_are_of_all_calls_at_every_batch() -> None:
    toy = workload(linear_row(count=3))
    kernels = lowered(toy)
    assert (kernels.calls @ kernels.flops).tolist() == [3 * 256, 3 * 4 * 256]
    # 4 bytes x (bias 16 + weight 128 + batch x (8 in + 16 out)), three times.
    assert moved_bytes(toy) == [3 * 4 * (144 + 24), 3 * 4 * (144 + 4 * 24)]


def test_parameters_are_counted_apart_and_once_more_for_the_whole_step() -> None:
    kernels = lowered(workload(linear_row(count=3)))
    assert kernels.calls.tolist() == [3]
    assert kernels.weight_bytes.tolist() == [[4 * 144, 4 * 144]]
    assert kernels.data_bytes.tolist() == [[4 * 24, 4 * 4 * 24]]
    assert kernels.parameter_bytes.tolist() == [3 * 4 * 144, 3 * 4 * 144]


def test_views_are_left_out() -> None:
    toy = workload(row("aten.view", (operand(8),), (operand(8),), family="view"))
    kernels = lowered(toy)
    assert kernels.families == ()
    assert kernels.launches.shape == (0, 2)
    assert kernels.dispatches.tolist() == [0, 0]


def test_a_kernel_says_of_which_row_it_is_views_counted() -> None:
    view = row("aten.view", (operand(8),), (operand(8),), family="view")
    assert lowered(workload(view, linear_row())).row.tolist() == [1]


def test_pure_half_moves_half_the_bytes() -> None:
    toy = workload(linear_row())
    assert moved_bytes(toy, precision="fp16") == [value / 2 for value in moved_bytes(toy)]


def test_autocast_pays_for_the_casts_of_operands_stored_in_fp32() -> None:
    # In half: 2 x (144 + 24) = 336 at batch 1. Casts read 4 and write 2 bytes of bias, weight and data: 6 x (144 + 8).
    assert moved_bytes(workload(linear_row()), precision="amp-fp16")[0] == 336 + 6 * 152


def test_backward_finds_the_half_copies_of_weights_and_casts_their_gradients_back() -> None:
    weight, grad_out = operand(16, 8), operand((0.0, 1.0), 16, low=True)
    to_data = row("aten.mm", (grad_out, weight), (operand((0.0, 1.0), 8, low=True),), family="matmul", phase="backward")
    # In half: 2 x (16 + 128 + 8); the weight is there in half already, the result stays in half.
    assert moved_bytes(workload(to_data), precision="amp-fp16")[0] == 2 * 152
    turned = operand(16, (0.0, 1.0), low=True)
    data = operand((0.0, 1.0), 8, low=True)
    to_weight = row("aten.mm", (turned, data), (operand(16, 8, low=True),), family="matmul", phase="backward")
    # In half: 2 x (16 + 8 + 128), and the gradient (128) is cast to fp32: 6 x 128.
    assert moved_bytes(workload(to_weight), precision="amp-fp16")[0] == 2 * 152 + 6 * 128


def test_casts_are_launches_of_their_own() -> None:
    kernels = lowered(workload(linear_row(count=2)), precision="amp-fp16")
    assert kernels.families == ("cast", "matmul")
    assert kernels.launches.tolist() == [[1, 1], [3, 3]]  # bias, data and weight each
    assert kernels.dispatches.tolist() == [8, 8]  # two calls


def test_the_backward_pass_dispatches_for_itself() -> None:
    kernels = lowered(workload(linear_row(count=2), linear_row(phase="backward", count=3)))
    assert kernels.dispatches.tolist() == [2, 2]
    assert kernels.backward_dispatches.tolist() == [3, 3]


def test_dispatches_are_counted_in_the_part_of_the_step_that_needs_them() -> None:
    rows = (linear_row(count=2), replace(linear_row(count=5), module="h.*.mlp"), linear_row(phase="backward", count=3))
    found = lowered(workload(*rows)).part_dispatches[..., 0]
    counted = {
        (name, part): found[index, place]
        for index, name in enumerate(DISPATCHED)
        for place, part in enumerate(PARTS)
        if found[index, place]
    }
    assert counted == {
        ("dispatches", "forward"): 2,
        ("dispatches", "inner_forward"): 5,
        ("backward_dispatches", "backward"): 3,
    }


def test_fused_operands_do_not_move_when_compiled() -> None:
    toy = workload(chain_row(fused_in=False, fused_out=True), chain_row(fused_in=True, fused_out=False))
    assert moved_bytes(toy) == [1600, 6400]  # 2 rows x (read + write) x 100 x 4 bytes, times the batch
    assert moved_bytes(toy, compile_mode="compile") == [800, 3200]


def test_a_row_whose_results_stay_fused_launches_nothing_when_compiled() -> None:
    toy = workload(chain_row(fused_in=False, fused_out=True), chain_row(fused_in=True, fused_out=False))
    eager, compiled = lowered(toy), lowered(toy, compile_mode="compile")
    assert eager.launches.tolist() == [[1, 1], [1, 1]]
    assert compiled.launches.tolist() == [[0, 0], [1, 1]]
    assert (eager.dispatches[0], eager.compiled_dispatches[0]) == (2, 0)
    assert (compiled.dispatches[0], compiled.compiled_dispatches[0]) == (0, 1)


def test_what_others_read_too_is_written_by_the_kernel_that_goes_on_with_it() -> None:
    data = operand((0.0, 1.0), 100)
    toy = workload(row("aten.relu", (data,), (operand((0.0, 1.0), 100, joined=True),), family="pointwise"))
    assert moved_bytes(toy, compile_mode="compile") == [800, 3200]
    assert lowered(toy, compile_mode="compile").launches.tolist() == [[0, 0]]


def test_a_fused_kernel_casts_what_it_reads_and_writes() -> None:
    """A norm between a product and a product under autocast: 100 elements in half come, 100 in half go."""
    low, wide = operand((0.0, 1.0), 100, low=True), operand((0.0, 1.0), 100, narrowed=True)
    norm = row("aten.native_layer_norm", (low,), (wide,), family="norm")
    # In fp32 for the operator, 4 + 4 bytes, and a cast before it, 2 + 4.
    assert moved_bytes(workload(norm), precision="amp-fp16")[0] == 100 * (8 + 6)
    assert moved_bytes(workload(norm), precision="amp-fp16", compile_mode="compile")[0] == 100 * (2 + 2)
    assert moved_bytes(workload(norm), precision="fp32", compile_mode="compile")[0] == 100 * (4 + 4)


def test_an_activation_that_several_kernels_compute_again_is_exchanged_in_fp32() -> None:
    low, wide = operand((0.0, 1.0), 100, low=True), operand((0.0, 1.0), 100, low=True, widened=True)
    activation = workload(row("aten.silu", (low,), (wide,), family="pointwise"))
    assert moved_bytes(activation, precision="amp-fp16", compile_mode="compile")[0] == 100 * (2 + 4)
    assert moved_bytes(activation, precision="fp16", compile_mode="compile")[0] == 100 * (2 + 4)
    assert moved_bytes(activation, precision="amp-fp16")[0] == 100 * (2 + 2)
    assert compiled_dtype(wide, width="autocast on CPUs") == "float16"


def test_images_are_padded_for_channels_last_kernels_on_tensor_cores() -> None:
    def grouped(width: int) -> Workload:
        image, weight = operand((0.0, 1.0), 2 * width, 4, 4, low=True), operand(2 * width, width, 3, 3)
        attributes = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "groups": 2, "transposed": False}
        return workload(row("aten.convolution", (image, weight), (image,), family="conv", attributes=attributes))

    def copied(width: int, **how: Any) -> tuple[float, float]:
        kernels = lowered(grouped(width), **{"precision": "amp-fp16", "layout": "nhwc"} | how)
        at = list(kernels.family).index(kernels.families.index("conv_grouped"))
        return float(kernels.passed_bytes[at, 0]), float(kernels.passed_cycles[at, 0])

    numel = 2 * 24 * 4 * 4
    # Read with 24 channels a group and written with 32 before, the other way round after: 2 bytes x (24 + 32) / 24.
    assert copied(24) == pytest.approx((2 * numel * 56 / 24, numel * (2.3 + 1.2)))
    image, weight = operand((0.0, 1.0), 30, 4, 4, low=True), operand(16, 30, 1, 1)
    attributes = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, "transposed": False}
    result = operand((0.0, 1.0), 16, 4, 4, low=True)
    whole = workload(row("aten.convolution", (image, weight), (result,), family="conv", attributes=attributes))
    kernels = lowered(whole, precision="amp-fp16", layout="nhwc")
    assert float(kernels.passed_bytes[:, 0].sum()) == pytest.approx(30 * 16 * (1 + 32 / 30))
    assert float(kernels.passed_cycles[:, 0].sum()) == pytest.approx(30 * 16 * 1.2)
    assert copied(24, layout="nchw") == copied(24, precision="fp32") == copied(32) == copied(120) == (0.0, 0.0)


def test_channels_last_images_of_transposed_convolutions_are_padded_where_they_are_narrow() -> None:
    image, result = operand((0.0, 1.0), 64, 4, 4, low=True), operand((0.0, 1.0), 12, 4, 4, low=True)
    attributes = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "groups": 1, "transposed": True}
    convolution = row(
        "aten.convolution", (image, operand(64, 12, 1, 1)), (result,), family="conv", attributes=attributes
    )
    kernels = lowered(workload(convolution), precision="amp-fp16", layout="nhwc")
    # The result is cut: 16 channels read, 12 written, 2 bytes each; 1.2 cycles an element, as without groups.
    assert float(kernels.passed_bytes[:, 0].sum()) == pytest.approx(16 * 2 * (16 + 12) / 2 * 1.0 * 2 / 2)
    assert float(kernels.passed_cycles[:, 0].sum()) == pytest.approx(16 * 12 * 1.2)


@pytest.mark.parametrize(
    ("width", "precision", "is_slow"),
    [
        (100, "fp16", True),  # rows of 200 bytes
        (104, "fp16", False),
        (100, "tf32", False),  # rows of 400 bytes
        (102, "tf32", True),
        (102, "fp32", False),  # not on tensor cores
    ],
)
def test_eager_products_with_rows_that_fill_no_multiple_of_sixteen_bytes_are_slow(
    width: int, precision: Precision, is_slow: bool
) -> None:
    x, weight, result = operand((0.0, 1.0), 64), operand(64, width), operand((0.0, 1.0), width)
    product = workload(row("aten.mm", (x, weight), (result,), family="matmul"))
    assert bool(lowered(product, precision=precision).issue_cycles.any()) == is_slow
    assert not lowered(product, precision=precision, compile_mode="compile").issue_cycles.any()  # Inductor pads them


def test_a_compiled_roll_is_part_of_the_kernel_that_reads_it() -> None:
    tokens = operand((0.0, 1.0), 4, 6)
    inside = replace(tokens, fused=True, joined=True)
    attributes = {"dims": (1, 2)}
    rolled = workload(row("aten.roll", (tokens,), (inside,), family="copy", attributes=attributes))
    kernels = lowered(rolled, compile_mode="compile")
    assert kernels.data_bytes[:, 0].tolist() == [4 * 24]  # read once
    assert not kernels.launches.any()
    assert lowered(rolled).data_bytes[:, 0].tolist() == [2 * 2 * 4 * 24]  # two kernels, each reads and writes


def test_a_compiled_norm_s_gradient_reads_its_operands_again_as_they_are_stored() -> None:
    x, mean, weight = operand((0.0, 1.0), 100, low=True), operand((0.0, 1.0), 1), operand(100)
    operands = (x, x, mean, mean, weight)
    norm = row("aten.native_layer_norm_backward", operands, (x,), family="norm", phase="backward")
    once = 2 * 100 * 2 + 2 * 4  # two operands in half, mean and deviation in fp32
    written = 100 * 2
    kernels = lowered(workload(norm), precision="amp-fp16", compile_mode="compile")
    assert kernels.data_bytes[:, 0].tolist() == [2 * once + written]


def test_a_product_reads_the_copy_in_half_that_the_kernel_before_it_wrote() -> None:
    def moved(data: Operand) -> float:
        product = row("aten.mm", (data, operand(100, 7)), (operand((0.0, 1.0), 7, low=True),), family="matmul")
        kernels = lowered(workload(product), precision="amp-fp16", compile_mode="compile")
        return float(kernels.data_bytes[:, 0].sum())

    weight_cast_bytes = 700 * (4 + 2)
    # 100 elements read and 7 written, 2 bytes each; what stays in fp32 too is written twice.
    assert moved(operand((0.0, 1.0), 100, low=True)) == 2 * 107 + weight_cast_bytes
    assert moved(operand((0.0, 1.0), 100, narrowed=True)) == 2 * 107 + weight_cast_bytes
    assert moved(operand((0.0, 1.0), 100)) == 2 * 107 + 200 + weight_cast_bytes


def test_what_was_computed_in_its_place_is_not_concatenated_again() -> None:
    parts = (operand((0.0, 1.0), 100, fused=True), operand((0.0, 1.0), 50))
    cat = row("aten.cat", parts, (operand((0.0, 1.0), 150),), family="copy")
    assert moved_bytes(workload(cat))[0] == 4 * 300
    assert moved_bytes(workload(cat), compile_mode="compile")[0] == 4 * 100  # the second part, read and written
    whole = row("aten.cat", parts[:1] * 2, (operand((0.0, 1.0), 200),), family="copy")
    assert moved_bytes(workload(whole), compile_mode="compile")[0] == 0
    assert lowered(workload(whole), compile_mode="compile").launches[0, 0] == 0


def conv_row(*, inputs: int = 3, outputs: int = 5, groups: int = 1, size: int = 1, bias: bool = False) -> Row:
    """Convolution of `size` x `size` that keeps 10 x 10 images as large as they are."""
    images, result = (operand((0.0, 1.0), channels, 10, 10, low=True) for channels in (inputs, outputs))
    weight = operand(outputs, inputs // groups, size, size)
    attributes = {
        "stride": (1, 1), "padding": (size // 2, size // 2), "dilation": (1, 1), "transposed": False, "groups": groups,
    }  # fmt: skip
    operands = (images, weight, operand(outputs)) if bias else (images, weight)
    return row("aten.convolution", operands, (result,), family="conv", attributes=attributes)


def backward_conv_row(**shape: int) -> Row:
    """The gradients of the convolution's input and weight."""
    forward = conv_row(**shape)
    (images, weight), (result,) = forward.inputs, forward.outputs
    attributes = {**forward.attributes, "output_mask": (True, True, False)}
    return row(
        "aten.convolution_backward",
        (result, images, weight),
        (images, weight),
        family="conv",
        phase="backward",
        attributes=attributes,
    )


@pytest.mark.parametrize(
    ("precision", "per_sample"),
    [("amp-fp16", 2 * 800), ("fp16", 2 * 800), ("fp32", 0), ("tf32", 0)],  # 300 halves in and 500 out
)
def test_images_may_be_transposed_for_convolutions_in_half(precision: Precision, per_sample: float) -> None:
    kernels = lowered(workload(conv_row()), precision=precision)
    assert kernels.transposed_bytes[0].tolist() == [per_sample, 4 * per_sample]


def test_images_of_a_kernel_with_a_window_are_always_transposed_on_a_gpu() -> None:
    toy = workload(conv_row(inputs=4, size=3))
    assert lowered(workload(conv_row(size=3)), precision="fp16").transposed_bytes.any()  # pictures of three channels
    kernels = lowered(toy, precision="fp16")
    assert not kernels.transposed_bytes.any()
    assert kernels.always_transposed_bytes.any()
    on_cpu = lowered(toy, kind="cpu", precision="bf16")
    assert on_cpu.transposed_bytes.any()
    assert not on_cpu.always_transposed_bytes.any()


def test_a_product_with_a_vector_has_no_images() -> None:
    of_vector = row(
        "aten.matmul", (operand((0.0, 1.0), 8), operand(8)), (operand((0.0, 1.0)),), family="matmul"
    )  # fmt: skip
    assert not lowered(workload(of_vector), precision="amp-fp16").always_transposed_bytes.any()


def test_images_that_come_channels_last_are_not_transposed() -> None:
    plain = conv_row()
    channels_last = replace(plain, attributes={**plain.attributes, CHANNELS_LAST: True})
    assert not lowered(workload(channels_last), precision="fp16").transposed_bytes.any()
    for kind in get_args(DeviceKind):
        kernels = lowered(workload(plain), kind=kind, precision="fp16", layout="nhwc")
        assert not kernels.transposed_bytes.any()
        assert kernels.matrix_unit_cycles.max() == (pytest.approx(1.2 * 15) if kind == "cpu" else 0)


def test_depthwise_convolutions_transpose_nothing() -> None:
    kernels = lowered(workload(conv_row(inputs=4, outputs=4, groups=4, size=3)), precision="amp-fp16")
    assert not kernels.transposed_bytes.any()


def test_both_gradients_of_a_convolution_need_that_of_its_result() -> None:
    """Images of 300 and 500: one gradient reads 500 and writes 300, the other reads 300 and 500 and writes 15."""
    kernels = lowered(workload(backward_conv_row()), precision="fp16")
    assert kernels.transposed_bytes.sum(axis=0).tolist() == [2 * 1600, 4 * 2 * 1600]
    assert (kernels.data_bytes.sum(axis=0) - 2 * 15).tolist() == [2 * 1600, 4 * 2 * 1600]


def test_a_cpu_transposes_the_images_of_every_convolution_unless_it_is_compiled() -> None:
    depthwise = workload(conv_row(inputs=4, outputs=4, groups=4, size=3))
    assert lowered(depthwise, kind="cpu").transposed_bytes.tolist() == [[4 * 800, 4 * 4 * 800]]
    assert not lowered(depthwise, kind="cpu", compile_mode="compile").transposed_bytes.any()


def test_a_cpu_calls_a_library_for_convolutions_and_in_eager_mode_for_norms_and_pools() -> None:
    """The call of a convolution has less overhead for channels-last images."""
    images = operand((0.0, 1.0), 3, 10, 10)
    toy = workload(conv_row(), row("aten.native_layer_norm", (images,), (images,), family="norm"))

    def calls(**options: Any) -> list[list[float]]:
        steps = (lowered(toy, layout=layout, batches=MANY_IMAGES, **options) for layout in get_args(Layout))
        return [kernels.library_calls[:, 0].tolist() for kernels in steps]

    assert calls(kind="cpu") == [[1, 1], [0.67, 1]]
    assert calls(kind="cpu", compile_mode="compile") == [[0.67, 0], [0.67, 0]]
    assert calls() == [[0, 0], [0, 0]]


@pytest.mark.parametrize(
    ("rows", "is_transposed"),
    [
        ((conv_row(),), False),
        ((conv_row(inputs=4, outputs=4, groups=2, size=3),), True),  # all FLOP in grouped convolutions
        ((conv_row(inputs=40, outputs=40), conv_row(inputs=4, outputs=4, groups=2)), False),  # next to none
        # One grouped convolution is enough in training.
        ((conv_row(inputs=40, outputs=40), conv_row(inputs=4, outputs=4, groups=2), backward_conv_row()), True),
        # So are channels that a window halves, or only small convolutions.
        ((conv_row(inputs=70, outputs=70, size=3), backward_conv_row()), False),
        ((conv_row(inputs=70, outputs=35, size=3), backward_conv_row()), True),
        ((conv_row(inputs=70, outputs=35), backward_conv_row()), False),
        ((conv_row(inputs=64, outputs=64), backward_conv_row()), True),
    ],
)
def test_compiled_convolutions_keep_their_images_channels_last(rows: tuple[Row, ...], is_transposed: bool) -> None:
    kernels = lowered(workload(*rows), precision="amp-fp16", compile_mode="compile")
    assert (kernels.transposed_bytes + kernels.always_transposed_bytes).any() == is_transposed


def test_a_cpu_puts_the_weights_of_convolutions_into_its_own_order() -> None:
    toy = workload(conv_row(inputs=4, outputs=8, size=3))
    assert not lowered(toy).repacked_bytes.any()
    on_cpu = lowered(toy, kind="cpu", batches=MANY_IMAGES)
    # 8 x 4 x 3 x 3 floats, as many at every batch size
    assert on_cpu.repacked_bytes.tolist() == [[4 * 8 * 4 * 9] * 2]


@pytest.mark.parametrize("plain", [conv_row(size=3), backward_conv_row(size=3)])
@pytest.mark.parametrize("kind", get_args(DeviceKind))
@pytest.mark.parametrize("compile_mode", get_args(CompileMode))
def test_the_weights_of_a_convolution_are_no_images_even_if_the_model_computes_them(
    plain: Row, kind: DeviceKind, compile_mode: CompileMode
) -> None:
    computed = replace(
        plain,
        inputs=tuple(replace(one, varies=True) for one in plain.inputs),
        outputs=tuple(replace(one, varies=True) for one in plain.outputs),
    )
    found, expected = (
        lowered(workload(one), kind=kind, compile_mode=compile_mode, batches=MANY_IMAGES) for one in (computed, plain)
    )
    for term in fields(Kernels):
        assert np.array_equal(getattr(found, term.name), getattr(expected, term.name)), term.name


@pytest.mark.parametrize(("size", "layout", "cycles"), [(3, "nchw", 4.0), (1, "nchw", 0.0), (3, "nhwc", 0.0)])
def test_compiled_code_copies_the_weights_of_convolutions_with_windows_on_a_cpu(
    size: int, layout: Layout, cycles: float
) -> None:
    toy = workload(conv_row(inputs=16, outputs=32, size=size))
    both = [
        lowered(toy, kind="cpu", layout=layout, compile_mode=compile_mode, batches=MANY_IMAGES)
        for compile_mode in ("compile", "eager")
    ]
    compiled, eager = (kernels.scalar_cycles for kernels in both)
    assert compiled - eager == pytest.approx(cycles * 16 * 32 * size**2)


def test_malloc_maps_the_copy_of_large_weights_anew() -> None:
    """32 MiB are 2^23 floats: 2^12 x 2^11 weights of a convolution, but not one output less."""
    large = lowered(workload(conv_row(inputs=2**11, outputs=2**12, size=1)), kind="cpu", batches=MANY_IMAGES)
    assert large.mapped_bytes.tolist() == large.repacked_bytes.tolist() == [[2.0**25] * 2]
    small = lowered(workload(conv_row(inputs=2**11, outputs=2**12 - 1, size=1)), kind="cpu")
    assert small.repacked_bytes.any()
    assert not small.mapped_bytes.any()


@pytest.mark.parametrize(
    ("op", "attributes", "family"),
    [
        ("aten._native_batch_norm_legit_no_training", {}, "norm_running"),
        ("aten._batch_norm_no_update", {}, "norm_running"),
        ("aten.native_batch_norm", {"training": False}, "norm_running"),
        ("aten.native_batch_norm", {"training": True}, "norm"),
        ("aten.native_layer_norm", {}, "norm"),
    ],
)
def test_a_batch_norm_that_averages_nothing_is_a_family_of_its_own(
    op: str, attributes: dict[str, bool], family: str
) -> None:
    images = operand((0.0, 1.0), 10)
    toy = workload(replace(row(op, (images,), (images,), family="norm"), attributes=attributes))
    assert lowered(toy).families == (family,)


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_a_norm_that_inductor_generates_for_a_gpu_is_a_family_of_its_own(kind: DeviceKind) -> None:
    tokens = operand((0.0, 1.0), 10)
    toy = workload(row("aten.native_layer_norm", (tokens,), (tokens,), family="norm"))
    expected = "norm_generated" if kind == "gpu" else "norm"
    assert lowered(toy, kind=kind, compile_mode="compile").families == (expected,)


@pytest.mark.parametrize("family", ["pointwise", "copy", "creation", "reduction"])
def test_torch_leaves_some_thousand_elements_to_one_core(family: str) -> None:
    """Up to 32,768 of them (ATen/Parallel.h: GRAIN_SIZE); of a sum those that it reads."""
    data, total = operand((0.0, 1.0), 8_192), operand((0.0, 1.0), 1)
    result = total if family == "reduction" else data
    toy = workload(row("aten.mean", (data,), (result,), family=family))
    batches = np.array([1.0, 4.0, 5.0])
    assert lowered(toy, kind="cpu", batches=batches).joins.tolist() == [[0, 0, 1]]
    assert lowered(toy, kind="cpu", batches=batches, compile_mode="compile").joins.tolist() == [[1, 1, 1]]
    assert not lowered(toy, batches=batches).joins.any()


def test_mkl_leaves_a_product_with_a_vector_to_one_core() -> None:
    assert lowered(workload(linear_row()), kind="cpu", batches=np.array([1.0, 2.0])).joins.tolist() == [[0, 1]]


def test_pools_take_a_cpu_one_element_after_the_other_unless_they_are_compiled() -> None:
    images, pooled = operand((0.0, 1.0), 8, 8, 8), operand((0.0, 1.0), 8, 4, 4)
    pool = row("aten.max_pool2d", (images,), (pooled,), family="pool", attributes={"kernel_size": (2, 2)})
    toy = workload(pool)
    kernels = lowered(toy, kind="cpu", batches=np.array([1.0, 2.0]))
    # 28 cycles for each of 8 x 4 x 4 windows per sample and 7.5 for each of its 2 x 2 elements; channels-last images
    # take vectors.
    assert kernels.scalar_cycles.tolist() == [[7424, 14848]]
    assert not lowered(toy, kind="cpu", layout="nhwc").scalar_cycles.any()
    last = workload(replace(pool, attributes=pool.attributes | {CHANNELS_LAST: True}))
    for other in (last, toy):
        mode: CompileMode = "eager" if other is last else "compile"
        assert not lowered(other, kind="cpu", compile_mode=mode).scalar_cycles.any()
    assert not lowered(toy, kind="gpu").scalar_cycles.any()


def test_a_cpu_writes_no_indices_of_a_1d_max_pool_without_gradients_and_a_gpu_does() -> None:
    """The 256 elements of 8 x 16 windows take 1.2 cycles each, 4.5 in 16 bits; 1,024 + 512 bytes, and 8 an index."""
    samples, pooled = operand((0.0, 1.0), 8, 1, 32), operand((0.0, 1.0), 8, 1, 16)
    indices = operand((0.0, 1.0), 8, 1, 16, dtype="int64")
    attributes = {"kernel_size": (1, 2), WITHOUT_INDICES: True}
    toy = workload(
        row("aten.max_pool2d_with_indices", (samples,), (pooled, indices), family="pool", attributes=attributes)
    )
    on_cpu, in_half = lowered(toy, kind="cpu"), lowered(toy, kind="cpu", precision="bf16")
    assert on_cpu.scalar_cycles[0, 0] == pytest.approx(1.2 * 256)
    assert in_half.scalar_cycles[0, 0] == pytest.approx(4.5 * 256)
    assert on_cpu.data_bytes[0, 0] == 1024 + 512
    assert in_half.data_bytes[0, 0] == 512 + 256
    assert lowered(toy, kind="gpu").data_bytes[0, 0] == 1024 + 512 + 8 * 128


def test_a_cpu_packs_the_weights_of_fp32_products_with_several_rows() -> None:
    """100 x 10 weights take 800 cycles at any batch size, but for one row."""
    toy = workload(
        row("aten.mm", (operand((0.0, 1.0), 10), operand(10, 100)), (operand((0.0, 1.0), 100),), family="matmul")
    )
    kernels = lowered(toy, kind="cpu", batches=np.array([1.0, 2.0, 64.0]))
    assert kernels.scalar_cycles.tolist() == [[0, 800, 800]]
    assert not kernels.matrix_unit_cycles.any()
    assert not lowered(toy, kind="cpu", precision="bf16").scalar_cycles.any()
    assert not lowered(toy, kind="gpu").scalar_cycles.any()


def test_a_matrix_unit_takes_cycles_for_each_weight_in_half_and_for_images_that_it_leaves_channels_last() -> None:
    """9 x 16 weights, with the bias, at 1.2 cycles; 3 x 5 of a convolution, which leaves 5 x 10 x 10 results at 6."""
    batches = np.array([1.0, 64.0])
    product = lowered(workload(linear_row()), kind="cpu", precision="bf16", batches=batches)
    assert product.matrix_unit_cycles.tolist() == [[pytest.approx(1.2 * 144)] * 2]
    convolution = lowered(workload(conv_row()), kind="cpu", precision="bf16", batches=batches)
    assert convolution.matrix_unit_cycles[0].tolist() == pytest.approx([1.2 * 15 + 6 * 500, 1.2 * 15 + 6 * 64 * 500])


def test_a_fused_function_costs_less_than_the_same_by_itself_and_an_addition_next_to_nothing() -> None:
    data = operand((0.0, 1.0), 100)

    def flop_ratio(op: str, mode: CompileMode) -> float:
        toy = workload(row(op, (data,), (data,), family="pointwise"))
        return float(lowered(toy, kind="cpu", compile_mode=mode).flop_ratio[0, 0])

    assert (flop_ratio("aten.add", "eager"), flop_ratio("aten.add", "compile")) == (1, pytest.approx(0.1))
    assert flop_ratio("aten.gelu", "eager") - flop_ratio("aten.gelu", "compile") == pytest.approx(0.9)


def test_a_bias_is_added_to_the_result_of_a_convolution() -> None:
    assert not lowered(workload(conv_row())).passed_bytes.any()
    toy = workload(conv_row(bias=True))
    # 500 floats per sample, unfolded or not
    assert lowered(toy, kind="cpu").passed_bytes.tolist() == [[4 * 500, 4 * 2000]] * 2
    kernels = lowered(toy)
    assert kernels.families == ("conv", "pointwise")  # a kernel of its own on a GPU, read and written
    assert kernels.data_bytes[1].tolist() == [2 * 4 * 500, 2 * 4 * 2000]
    assert not lowered(toy, compile_mode="compile").passed_bytes.any()


@pytest.mark.parametrize("compile_mode", get_args(CompileMode))
def test_the_gradient_of_a_bias_is_summed_on_a_gpu_compiled_or_not(compile_mode: CompileMode) -> None:
    plain = backward_conv_row()
    toy = replace(plain, attributes={**plain.attributes, "output_mask": (True, True, True)})
    without, kernels = (lowered(workload(one), compile_mode=compile_mode) for one in (plain, toy))
    assert kernels.launches.sum() == without.launches.sum() + 2  # at either batch
    assert (kernels.data_bytes.sum(axis=0) - without.data_bytes.sum(axis=0)).tolist() == [4 * 500, 4 * 2000]


@pytest.mark.parametrize(
    ("toy", "family", "unit"),
    [
        (conv_row(), "conv", "bf16"),
        (conv_row(inputs=4, outputs=8, groups=2), "conv_grouped", "bf16"),
        (conv_row(inputs=4, outputs=4, groups=4), "conv_depthwise", "vector"),
        (backward_conv_row(), "conv_backward", "bf16"),
        (backward_conv_row(inputs=4, outputs=8, groups=2), "conv_grouped_backward", "bf16"),
        (backward_conv_row(inputs=4, outputs=4, groups=4), "conv_depthwise_backward", "vector"),
        (linear_row(phase="backward"), "matmul", "bf16"),
    ],
)
def test_kernels_have_the_family_and_unit_whose_rates_they_run_at(toy: Row, family: str, unit: str) -> None:
    kernels = lowered(workload(toy), precision="bf16")
    assert kernels.families == (family,)
    assert {UNITS[index] for index in kernels.unit} == {unit}


@pytest.mark.parametrize(("toy", "on_cpu"), [(conv_row(), "vector"), (linear_row(), "fp32")])
def test_a_cpu_runs_convolutions_on_whole_vectors_and_products_by_blas(toy: Row, on_cpu: str) -> None:
    for kind, unit in (("cpu", on_cpu), ("gpu", "fp32")):
        kernels = lowered(workload(toy), kind=kind, precision="fp32", batches=MANY_IMAGES)
        assert {UNITS[index] for index in kernels.unit} == {unit}


def test_a_backward_convolution_is_two_kernels_that_share_its_work() -> None:
    toy = workload(backward_conv_row())
    kernels = lowered(toy)
    assert kernels.row.tolist() == [0, 0]
    # Each gradient: 2 x 100 pixels x 3 x 5 FLOP per sample.
    assert kernels.flops.tolist() == [[3000, 12_000], [3000, 12_000]]
    assert kernels.launches.tolist() == [[1, 1], [1, 1]]
    assert kernels.weight_bytes[0].tolist() == kernels.weight_bytes[1].tolist() == [4 * 15 / 2, 4 * 15 / 2]
    assert kernels.backward_dispatches.tolist() == [1, 1]


def test_only_3_x_3_convolutions_have_a_winograd_algorithm() -> None:
    assert lowered(workload(conv_row(size=3))).can_winograd.tolist() == [True]
    assert lowered(workload(conv_row())).can_winograd.tolist() == [False]


def test_gradients_of_weights_alone_may_need_the_direct_kernel() -> None:
    toy = workload(backward_conv_row(inputs=128, outputs=128, groups=2, size=3))
    assert not lowered(toy).direct_flops.any()
    kernels = lowered(toy, layout="nhwc")
    assert kernels.direct_flops.tolist() == [[0, 0], kernels.flops[1].tolist()]


@pytest.mark.parametrize(
    ("kind", "precision", "ratios"),
    [("gpu", "fp16", (4 / 3, 16 / 9)), ("gpu", "fp32", (1, 1)), ("cpu", "bf16", (1, 1))],
)
def test_tensor_cores_alone_fill_tiles(kind: DeviceKind, precision: Precision, ratios: tuple[float, float]) -> None:
    toy = workload(conv_row(inputs=6, outputs=6, groups=2, size=3))
    found = [lowered(toy, kind=kind, precision=precision, layout=layout) for layout in get_args(Layout)]
    assert tuple(kernels.flop_ratio[0, 0] for kernels in found) == pytest.approx(ratios)


def test_a_depthwise_convolution_runs_as_its_images_come() -> None:
    """7 x 7 is a size that cuDNN's code is written for, but not torch's: channels-last it is no matter of layout."""
    plain = conv_row(inputs=4, outputs=4, groups=4, size=7)
    channels_last = replace(plain, attributes={**plain.attributes, CHANNELS_LAST: True})
    in_nchw = lowered(workload(plain), precision="fp16")
    assert in_nchw.direct_flops == pytest.approx(0.7 * in_nchw.flops)
    # In fp32 it is torch's own, which has no tiles.
    by_torch = lowered(workload(conv_row(inputs=4, outputs=4, groups=4, size=7, bias=True)))
    assert by_torch.issue_cycles.tolist() == [pytest.approx([400 * 6.99, 1600 * 6.99])]  # with the bias
    assert by_torch.is_untiled.all()
    assert not in_nchw.is_untiled.any()
    assert not lowered(workload(plain), layout="nhwc").direct_flops.any()
    assert not lowered(workload(channels_last)).direct_flops.any()


@pytest.mark.parametrize(
    ("kind", "precision", "compile_mode", "per_sample"),
    [
        ("gpu", "amp-fp16", "eager", 2 * 4 * 100),
        ("gpu", "fp16", "eager", 2 * 4 * 100),
        ("gpu", "fp32", "eager", 0),
        ("gpu", "amp-fp16", "compile", 0),
        ("cpu", "amp-bf16", "eager", 0),
    ],
)
def test_an_eager_batch_norm_of_halves_need_not_be_read_again(
    kind: DeviceKind, precision: Precision, compile_mode: CompileMode, per_sample: float
) -> None:
    images = operand((0.0, 1.0), 4, 10, 10, low=True)
    norm = row("aten._native_batch_norm_legit", (images,), (images,), family="norm", attributes={"training": True})
    toy = workload(norm)
    kernels = lowered(toy, kind=kind, precision=precision, compile_mode=compile_mode, layout="nhwc")
    assert kernels.reread_bytes.tolist() == [[per_sample, 4 * per_sample]]
    assert not lowered(toy, kind=kind, precision=precision, compile_mode=compile_mode).reread_bytes.any()


def test_a_group_norm_copies_channels_last_images_and_a_layer_norm_copies_nchw_images() -> None:
    """8 x 10 x 10 floats, read and written; a copy of channels-last images takes twice as long."""
    images = operand((0.0, 1.0), 8, 10, 10)
    group = row("aten.native_group_norm", (images, operand(8), operand(8)), (images,), family="norm")
    layer = row("aten.native_layer_norm", (images,), (images,), family="norm", attributes={MADE_CONTIGUOUS: 1})
    for norm, expected in ((group, [(0, 0), (2 * 2 * 3200, 0)]), (layer, [(3200, 1.8 * 800), (0, 0)])):
        both = [lowered(workload(norm), layout=layout) for layout in get_args(Layout)]
        assert [(one.passed_bytes[0, 0], one.passed_cycles[0, 0]) for one in both] == expected


@pytest.mark.parametrize("kind", get_args(DeviceKind))
@pytest.mark.parametrize("compile_mode", get_args(CompileMode))
def test_computed_weights_do_not_turn_what_a_group_norm_leaves_to_channels_last(
    kind: DeviceKind, compile_mode: CompileMode
) -> None:
    images = operand((0.0, 1.0), 8, 10, 10)
    norm = row("aten.native_group_norm", (images, operand(8), operand(8)), (images,), family="norm")

    def copied(*weights: Operand, **how: Any) -> float:
        attributes = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "transposed": False, "groups": 1}
        convolutions = [
            row("aten.convolution", (images, weight), (images,), family="conv", attributes=attributes)
            for weight in weights
        ]
        return float(
            lowered(workload(norm, *convolutions), kind=kind, compile_mode=compile_mode, **how).passed_bytes.sum()
        )

    parameter, computed = operand(8, 8, 3, 3), operand(8, 8, 3, 3, varies=True)
    nchw, nhwc = copied(computed), copied(parameter, layout="nhwc")
    assert copied(computed, computed, parameter, layout="nhwc") == (nchw if compile_mode == "eager" else nhwc)
    assert copied(computed, parameter, parameter, layout="nhwc") == nhwc
    assert (nhwc > nchw) == (kind == "gpu" and compile_mode == "eager")


def test_threads_go_through_all_images_of_an_interpolation_in_nchw_alone() -> None:
    small, large = operand((0.0, 1.0), 8, 7, 7), operand((0.0, 1.0), 8, 14, 14)
    toy = workload(row("aten.upsample_bilinear2d", (small,), (large,), family="interpolate"))
    assert lowered(toy).sequential_loads.tolist() == [[8, 32]]
    assert not lowered(toy, layout="nhwc").sequential_loads.any()


@pytest.mark.parametrize(
    ("width", "how", "is_slow"),
    [
        (50_257, {}, True),
        (50_260, {}, True),  # a multiple of four
        (50_264, {}, False),
        (50_257, {"precision": "fp32"}, False),
        (50_257, {"compile_mode": "compile"}, False),  # Inductor pads it
        (50_257, {"kind": "cpu", "precision": "amp-bf16"}, False),
    ],
)
def test_a_16_bit_product_with_rows_of_other_lengths_than_16_bytes_takes_slow_kernels(
    width: int, how: dict[str, Any], is_slow: bool
) -> None:
    """9 tokens a sample, which need not be a multiple of anything."""
    hidden, weight, scores = operand((0.0, 9.0), 64), operand(64, width), operand((0.0, 9.0), width)
    head = workload(row("aten.mm", (hidden, weight), (scores,), family="matmul"))
    kernels = lowered(head, **({"precision": "fp16"} | how))
    assert kernels.flops.all()
    assert kernels.issue_cycles.tolist() == (is_slow * kernels.flops / 400).tolist()


@pytest.mark.parametrize(("op", "is_kept"), [("aten._embedding_bag", True), ("aten.index", False)])
def test_compiled_code_issues_the_instructions_of_operators_that_inductor_leaves_to_torch(
    op: str, is_kept: bool
) -> None:
    taken = row(op, (operand(100, 32), operand((0.0, 4.0))), (operand((0.0, 4.0), 32),), family="embedding")
    eager, compiled = (lowered(workload(taken), compile_mode=mode).issue_cycles for mode in get_args(CompileMode))
    assert eager.all()
    assert compiled.tolist() == (eager * is_kept).tolist()


def test_in_a_trace_of_one_batch_what_varies_is_no_parameter() -> None:
    """Its shapes are numbers as those of weights are, so the trace says which is which."""
    affine = workload(conv_row())
    (one,) = affine.rows
    batch = 4

    def at_one_batch(operand: Operand) -> Operand:
        varies = not is_constant(operand)
        shape = tuple(dim if isinstance(dim, int) else int(dim[0] + dim[1] * batch) for dim in operand.shape)
        return replace(operand, shape=shape, varies=varies)

    fixed = workload(
        replace(one, inputs=tuple(map(at_one_batch, one.inputs)), outputs=tuple(map(at_one_batch, one.outputs)))
    )
    for kind in ("cpu", "gpu"):
        expected, found = (
            lowered(toy, kind=kind, precision="amp-bf16", batches=np.array([4.0])) for toy in (affine, fixed)
        )
        for name in ("weight_bytes", "data_bytes", "transposed_bytes", "repacked_bytes"):
            assert getattr(found, name).tolist() == getattr(expected, name).tolist(), (kind, name)


def test_products_have_their_dimensions_at_every_batch_and_the_rest_has_none() -> None:
    copy = row("aten.clone", (operand((0.0, 1.0)),), (operand((0.0, 1.0)),), family="copy")
    kernels = lowered(workload(linear_row(), copy))
    assert kernels.m[0].tolist() == [1, 4]
    assert (kernels.n[0, 0], kernels.k[0, 0], kernels.groups[0, 0]) == (16, 8, 1)
    assert (kernels.m[1] >= 1e9).all()  # so long that no tile is left half empty


def test_an_empty_product_has_sizes_that_can_be_divided_by() -> None:
    nothing, weight = operand(0, 8), operand(8, 16)
    kernels = lowered(workload(row("aten.mm", (nothing, weight), (operand(0, 16),), family="matmul")))
    assert kernels.flops.tolist() == [[0, 0]]
    assert kernels.m.tolist() == [[1, 1]]


def test_inputs_travel_as_they_are_stored() -> None:
    toy = workload(inputs=(operand((0.0, 1.0), 10), operand((0.0, 1.0), 10, dtype="int64")))
    assert lowered(toy, precision="fp16").transfer_bytes.tolist() == [120, 480]  # 10 x (4 + 8) bytes per sample


@pytest.mark.parametrize(("precision", "unit"), [("fp32", "fp32"), ("amp-bf16", "bf16")])
def test_products_run_on_the_unit_of_their_width(precision: Precision, unit: str) -> None:
    kernels = lowered(workload(linear_row()), precision=precision)
    assert UNITS[kernels.unit[0]] == unit


@pytest.mark.parametrize(
    ("dtype", "unit"), [("int8", "int8"), ("uint8", "int8"), ("float8_e4m3fn", "fp8"), ("float8_e5m2", "fp8")]
)
def test_products_of_two_operands_of_8_bits_run_on_the_unit_for_them(dtype: str, unit: str) -> None:
    first, second = operand((0.0, 1.0), 64, dtype=dtype), operand(64, 64, dtype=dtype)
    product = row("aten._scaled_mm", (first, second, operand()), (operand((0.0, 1.0), 64),), family="matmul")
    for precision in ("fp32", "amp-bf16"):
        kernels = lowered(workload(product), precision=precision)
        assert (UNITS[kernels.unit[0]], kernels.families[kernels.family[0]]) == (unit, "matmul")


def decoding(**changes: Any) -> Row:
    """Attention of one token to a cache of 100 tokens: 2 heads, 8 wide."""
    query, cached = operand((0.0, 1.0), 2, 1, 8), operand((0.0, 1.0), 2, 100, 8, kept=True)
    return row("attention", (query, cached, cached), (query,), family="attention", phase="decode", **changes)


def test_a_cache_is_read_from_memory_as_parameters_are() -> None:
    kernels = lowered(workload(decoding()))

    # Keys and values of 1600 values in fp32 each and for each request; query and result of 16.
    assert kernels.weight_bytes.tolist() == [[12_800.0, 51_200.0]]
    assert kernels.data_bytes.tolist() == [[128.0, 512.0]]


def test_attention_of_one_token_streams_and_fills_no_tiles() -> None:
    kernels = lowered(workload(decoding()))

    assert kernels.families == ("attention_of_one",)
    assert kernels.m.tolist() == kernels.n.tolist() == [[1e9, 1e9]]


def test_a_gpu_decodes_in_a_graph_and_a_cpu_dispatches_every_kernel() -> None:
    toy = workload(decoding(count=7))

    assert lowered(toy, compile_mode="compile").compiled_dispatches.tolist() == [0.0, 0.0]
    assert lowered(toy, compile_mode="compile").launches.tolist() == [[1.0, 1.0]]
    assert lowered(toy, kind="cpu", compile_mode="compile").compiled_dispatches.tolist() == [7.0, 7.0]


def test_kernels_of_engines_give_each_token_a_block_of_threads() -> None:
    # 6 tokens of each request, at batches of 1 and 4; what else runs knows no tokens.
    states = operand((0.0, 1.0), 6, 32)
    norm = row("engine.norm", (states, operand(32)), (states,), family="rms_norm", phase="prefill")
    kernels = lowered(workload(norm, linear_row(phase="prefill")))

    assert kernels.blocks.tolist() == [[6.0, 24.0], [1e9, 1e9]]


def test_every_pass_of_a_generation_reads_the_parameters() -> None:
    # A matrix of 8 x 16 and a bias of 16 in fp32, 576 bytes, read in prefill and in two passes of decode.
    passes = (linear_row(phase="prefill"), linear_row(phase="decode", count=2))
    toy = workload(*passes, generation=Generation(prompt_tokens=4, output_tokens=3))

    assert lowered(toy).parameter_bytes.tolist() == [576.0, 576.0]


def test_products_with_narrow_weights_are_a_family_of_their_own() -> None:
    data, result = operand((0.0, 1.0), 8), operand((0.0, 1.0), 16)
    toy = workload(row("aten.mm", (data, operand(8, 16, dtype="int8")), (result,), family="matmul"))
    kernels = lowered(toy, precision="bf16")

    assert kernels.families == ("matmul_quantized",)
    assert UNITS[kernels.unit[0]] == "bf16"
    assert kernels.weight_bytes.tolist() == [[128.0, 128.0]]


def test_a_compiled_average_takes_a_cpu_the_flop_of_a_fused_addition_and_no_less() -> None:
    images, result = operand((0.0, 1.0), 8, 16, 16), operand((0.0, 1.0), 8, 8, 8)
    pool = row("aten.avg_pool2d", (images,), (result,), family="pool", attributes={"kernel_size": (2, 2)})
    compiled = lowered(workload(pool), kind="cpu", compile_mode="compile")
    assert compiled.flop_ratio.tolist() == [[0.1, 0.1]]


def test_an_encoder_layer_computes_its_products_by_blas_on_a_cpu_and_writes_its_scores_to_memory() -> None:
    """8 sequences of 10 tokens, width 16, hidden layer 64: 491,520 FLOP of layers, 51,200 of attention.

    2 heads have 1,600 scores.
    """
    x = operand((0.0, 1.0), 10, 16)
    sizes = ((48, 16), (48,), (16, 16), (16,), (16,), (16,), (16,), (16,), (64, 16), (64,), (16, 64), (16,))
    operands = (x, *(operand(*size) for size in sizes))
    layer = row("encoder_layer", operands, (x,), family="attention", attributes={"num_heads": 2})
    found = lowered(workload(layer), kind="cpu", batches=np.array([8.0]))
    flops = {
        (found.families[family], UNITS[unit]): found.flops[(found.family == family) & (found.unit == unit)].sum()
        for family, unit in zip(found.family.tolist(), found.unit.tolist(), strict=True)
    }
    assert flops == pytest.approx({("matmul", "fp32"): 491_520 + 51_200, ("softmax", "vector"): 7 * 1_600})
    of_gpu = lowered(workload(layer), kind="gpu", batches=np.array([8.0]))
    of_fused_bytes = of_gpu.data_bytes[of_gpu.family != of_gpu.families.index("pointwise")].sum()
    assert found.data_bytes.sum() - of_fused_bytes == pytest.approx(4 * 4 * 1_600)


def attention(phase: Phase = "forward") -> Workload:
    """Attention of 200 tokens with one head of 64, or its gradients."""
    heads = operand((0.0, 1.0), 1, 200, 64)
    op = "attention_backward" if phase == "backward" else "attention"
    given = (heads,) * (4 if phase == "backward" else 3)
    attributes = {"causal": False, "dropout_ratio": 0.0}
    return workload(row(op, given, (heads,), family="attention", phase=phase, attributes=attributes))


@pytest.mark.parametrize(
    ("phase", "precision", "unit"),
    [
        ("forward", "fp32", "fp32"),
        ("backward", "fp32", "fp32"),
        ("forward", "amp-bf16", BLAS_HALF),
        ("backward", "amp-bf16", "bf16"),
    ],
)
def test_attention_takes_a_cpu_products_by_mkl_but_its_16_bit_gradients_by_onednn(
    phase: Phase, precision: Precision, unit: str
) -> None:
    kernels = lowered(attention(phase), kind="cpu", precision=precision)
    assert kernels.families[kernels.family[0]] == "matmul"
    assert UNITS[kernels.unit[0]] == unit


def test_attention_packs_keys_and_values_for_each_block_of_64_queries_on_a_cpu() -> None:
    kernels = lowered(attention(), kind="cpu", batches=np.array([1.0]))
    # 2 x 200 x 64 elements of keys and values, by 200 / 64 blocks, each in 0.8 cycles.
    assert kernels.scalar_cycles[0] == pytest.approx(0.8 * 2 * 200 * 64 * 200 / 64)


# Kernels that are kept for later batch sizes


@pytest.mark.parametrize("phase", ["forward", "backward"])
@pytest.mark.parametrize("kind", get_args(DeviceKind))
def test_kept_kernels_in_bf16_are_those_that_are_lowered_in_bf16(kind: DeviceKind, phase: Phase) -> None:
    toy = attention(phase)
    kept = StepKernels(toy, compile_mode="eager", layout="nchw").at(
        np.array([1, 4], dtype=np.intp), kind=kind, precision="amp-bf16"
    )
    counts = count_rows(toy, batches=BATCHES, width=computed_width("amp-bf16", toy, kind=kind), compile_mode="eager")
    direct = lower(counts, kind=kind, precision="amp-bf16")
    assert [UNITS[unit] for unit in kept.unit] == [UNITS[unit] for unit in direct.unit]
    assert kept.scalar_cycles.tolist() == direct.scalar_cycles.tolist()


TOY = workload(linear_row(count=3))


def at(step_kernels: StepKernels, *batches: int) -> Kernels:
    return step_kernels.at(np.array(batches, dtype=np.intp), kind="gpu", precision="fp32")


def test_kernels_at_some_of_the_batches_are_those_that_were_lowered_at_these_alone() -> None:
    shared = StepKernels(TOY, compile_mode="eager", layout="nchw")
    at(shared, 1, 2, 4)
    part, alone = at(shared, 1, 4), at(StepKernels(TOY, compile_mode="eager", layout="nchw"), 1, 4)
    for field in fields(Kernels):
        assert np.array_equal(getattr(part, field.name), getattr(alone, field.name)), field.name


def test_batches_that_were_not_counted_yet_are_counted() -> None:
    shared = StepKernels(TOY, compile_mode="eager", layout="nchw")
    at(shared, 1, 2)
    kernels = at(shared, 2, 8)
    # 2 FLOP x 8 in x 16 out = 256 for each sample; the row is called three times.
    assert (kernels.calls @ kernels.flops).tolist() == [3 * 2 * 256, 3 * 8 * 256]


def test_a_large_16_bit_product_on_a_cpu_calls_onednn() -> None:
    found = lowered(workload(linear_row()), kind="cpu", precision="bf16")
    large = (operand((0.0, 1.0), 512), operand(512, 512))
    much = row("aten.linear", large, (operand((0.0, 1.0), 512),), family="matmul")
    called = lowered(workload(much), kind="cpu", precision="bf16")
    assert not found.call_cycles.any()
    assert called.call_cycles.max() == PRODUCT_CALL_CYCLES


def test_the_cycles_of_a_row_with_several_products_count_once() -> None:
    attributes = {
        "mode": "gru", "input_size": 16, "hidden_size": 32, "proj_size": 0, "num_layers": 2, "bidirectional": False,
        "batch_first": False,
    }  # fmt: skip
    source = (operand(5, (0.0, 1.0), 16, low=True),)
    cells = row("rnn", source, (operand(5, (0.0, 1.0), 32, low=True),), family="rnn", attributes=attributes)
    found = lowered(workload(cells), kind="cpu", precision="amp-bf16")
    products = np.min(found.m, axis=-1) < 1e9
    assert np.count_nonzero(products) == 3  # the inputs of each layer, and the states
    cycles = np.sum(np.broadcast_to(found.call_cycles, (len(products), len(BATCHES)))[products], axis=0)
    assert cycles.tolist() == pytest.approx([PRODUCT_CALL_CYCLES * 2 * 5] * 2)  # layers x steps


def mm(left: Operand, right: Operand, result: Operand) -> Row:
    return row("aten.mm", (left, right), (result,), family="matmul")


@pytest.mark.parametrize(
    ("product", "is_slow"),
    [
        (mm(operand(197, 64, varies=True), operand(64, 128), operand(197, 128, varies=True)), False),
        (mm(operand(197, 64, varies=True), operand(64, 101), operand(197, 101, varies=True)), True),
        (mm(operand(101, 197, varies=True), operand(197, 64, varies=True), operand(101, 64)), True),  # of a weight
        (mm(operand(128, 197, varies=True), operand(197, 64, varies=True), operand(128, 64)), False),
        (mm(operand(200, 64, varies=True), operand(64, 197, varies=True), operand(200, 197, varies=True)), True),
    ],
)
def test_half_products_are_slow_whose_rows_in_memory_are_unaligned_not_whose_number_of_rows_is_odd(
    product: Row, is_slow: bool
) -> None:
    assert bool(lowered(workload(product), precision="fp16").issue_cycles.any()) == is_slow
