from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.ops.evaluate import call_at
from advisor.ops.registry import CHANNELS_LAST, MADE_CONTIGUOUS
from advisor.predict.composite_kernels import Program, program_of
from advisor.records.device import DeviceKind
from advisor.records.workload import Row
from tests.predict.toys import operand, row

BATCHES = np.array([1.0, 2.0])


def program(toy: Row, kind: DeviceKind) -> Program:
    return program_of(call_at(toy, batch=BATCHES), kind=kind, itemsize_bytes=4.0)


def attention_row(op: str = "attention", *, dropout_ratio: float) -> Row:
    heads = operand((0.0, 1.0), 12, 10, 64)
    inputs = (heads, heads, heads) if op == "attention" else (heads, heads, heads, heads)
    attributes = {"causal": False, "dropout_ratio": dropout_ratio}
    return row(op, inputs, (heads,), family="attention", attributes=attributes)


def rnn_row(op: str = "rnn", **changes: Any) -> Row:
    """Two layers of 32 over 5 steps, inputs (steps, batch, features)."""
    attributes = {
        "mode": "lstm", "input_size": 16, "hidden_size": 32, "proj_size": 0, "num_layers": 2, "bidirectional": False,
        "batch_first": False,
    }  # fmt: skip
    inputs = (operand(5, (0.0, 1.0), 16),)
    return row(op, inputs, (operand(5, (0.0, 1.0), 32),), family="rnn", attributes=attributes | changes)


def optimizer_row() -> Row:
    """AdamW on 100 tensors of 1,000 elements each; 11 operators move 92 bytes per element, a single pass 28."""
    attributes = {
        "name": "AdamW", "element_count": 100_000, "tensor_count": 100, "calls_per_tensor": 11.0,
        "flops_per_element": 8.0, "read_bytes_per_element": 16.0, "write_bytes_per_element": 12.0,
        "loop_read_bytes_per_element": 52.0, "loop_write_bytes_per_element": 40.0,
    }  # fmt: skip
    return row("optimizer", family="optimizer", phase="optimizer", attributes=attributes)


def test_an_ordinary_operator_is_one_kernel_and_one_dispatch() -> None:
    assert program(row("aten.relu", family="pointwise"), "gpu") == Program()
    assert Program() == Program(launches=1, dispatches=1, extra_bytes=0)


def test_attention_is_fused_on_a_gpu_with_and_without_dropout() -> None:
    for dropout_ratio in (0.0, 0.1):
        assert program(attention_row(dropout_ratio=dropout_ratio), "gpu") == Program()


def test_a_short_sequence_leaves_a_query_much_to_do_beside_its_products_on_a_cpu() -> None:
    """A softmax of 10 keys takes as long as products with 55 more."""
    for op in ("attention", "attention_backward"):
        assert program(attention_row(op, dropout_ratio=0.0), "cpu").flop_ratio == pytest.approx(1 + 55 / 10)


def test_functions_take_a_cpu_as_long_as_many_additions_and_a_gpu_as_one() -> None:
    ratios = {
        name: program(row(f"aten.{name}", family="pointwise"), "cpu").flop_ratio for name in ("add", "div", "tanh")
    }
    assert ratios["add"] == 1 < ratios["div"] < ratios["tanh"]
    assert program(row("aten.tanh", family="pointwise"), "gpu") == Program()


def test_a_cpu_copies_the_bias_into_the_result_before_the_product_adds_to_it() -> None:
    data, result = operand((0.0, 1.0), 8), operand((0.0, 1.0), 16)
    toy = row("aten.addmm", (operand(16), data, operand(8, 16)), (result,), family="matmul")
    assert np.asarray(program(toy, "cpu").extra_bytes).tolist() == [2 * 4 * 16, 2 * 4 * 32]  # written, and read again
    assert program(toy, "gpu") == Program()


def test_attention_with_dropout_takes_the_math_path_on_a_cpu() -> None:
    fused = program(attention_row(dropout_ratio=0.0), "cpu")
    assert (fused.launches, fused.extra_bytes) == (1, 0)
    forward = program(attention_row(dropout_ratio=0.1), "cpu")
    # Scores: 12 heads x 10 x 10 per sample, 4 bytes each; 7 passes forward, 10 backward.
    assert np.asarray(forward.extra_bytes).tolist() == [7 * 4800, 7 * 9600]
    backward = program(attention_row("attention_backward", dropout_ratio=0.1), "cpu")
    assert np.asarray(backward.extra_bytes).tolist() == [10 * 4800, 10 * 9600]


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
@pytest.mark.parametrize(
    ("op", "attributes", "reread_ratio"),
    [
        ("aten._native_batch_norm_legit", {"training": True}, 1.0),
        ("aten.native_batch_norm", {"training": False}, 0.0),
        ("aten.native_batch_norm_backward", {"train": True}, 1.0),
        ("aten.native_batch_norm_backward", {"train": False}, 0.0),
        ("aten.native_layer_norm", {}, 0.0),
        ("aten.native_layer_norm_backward", {}, 1.0),
    ],
)
def test_what_is_averaged_over_a_channel_is_read_once_more_to_be_scaled(
    op: str, attributes: dict[str, Any], reread_ratio: float, kind: DeviceKind
) -> None:
    images = operand((0.0, 1.0), 8, 10, 10)
    norm = row(op, (images, images), (images,), family="norm", attributes=attributes)
    found = program(norm, kind)
    keeps_some = kind == "gpu" and "batch_norm" in op and reread_ratio > 0
    assert found == Program(reread_ratio=reread_ratio, saves_half_rereads=keeps_some)


def test_a_thread_for_each_pixel_goes_through_all_samples_and_channels_on_a_gpu() -> None:
    small, large = operand((0.0, 1.0), 8, 7, 7), operand((0.0, 1.0), 8, 14, 14)
    for op in ("aten.upsample_bilinear2d", "aten.upsample_bicubic2d"):
        toy = row(op, (small,), (large,), family="interpolate")
        assert np.asarray(program(toy, "gpu").sequential_loads).tolist() == [8, 16]
    assert program(row("aten.upsample_nearest2d", (small,), (large,), family="interpolate"), "gpu") == Program()
    last = row("aten.upsample_bilinear2d", (small,), (large,), family="interpolate", attributes={CHANNELS_LAST: True})
    assert program(last, "gpu") == Program()


@pytest.mark.parametrize(
    ("op", "cycles"),
    [
        ("aten.upsample_nearest2d", 10 * 8 * 14 * 14),  # for each output
        ("aten.upsample_bilinear2d", 10 * 8 * 14 * 14),
        ("aten.upsample_bicubic2d", 27 * 8 * 14 * 14),
        ("aten.where", 15 * 8 * 14 * 14),
        ("aten.var", 20 * 8 * 7 * 7),  # for each input
        ("aten.sort", 27 * 8 * 7 * 7 * np.log2(7)),  # for each of the n log2 n comparisons along the last dimension
    ],
)
def test_a_cpu_takes_some_elements_one_at_a_time(op: str, cycles: float) -> None:
    small, large = operand((0.0, 1.0), 8, 7, 7), operand((0.0, 1.0), 8, 14, 14)
    toy = row(op, (small,), (large,), family="pointwise")
    assert np.asarray(program(toy, "cpu").scalar_cycles).tolist() == pytest.approx([cycles, 2 * cycles])
    assert not np.any(program(toy, "gpu").scalar_cycles)


def test_a_cpu_draws_random_numbers_on_one_core() -> None:
    mask = operand((0.0, 1.0), 100)
    draw = row("aten.bernoulli_", (mask,), (mask,), family="random")
    assert np.asarray(program(draw, "cpu").serial_cycles).tolist() == [20 * 100, 20 * 200]


def test_images_come_to_a_group_norm_and_go_by_a_copy_on_a_gpu() -> None:
    images = operand((0.0, 1.0), 8, 10, 10)
    norm = row("aten.native_group_norm", (images, operand(8), operand(8)), (images,), family="norm")
    read_and_written = [4 * 1600, 4 * 3200]
    assert np.asarray(program(norm, "gpu").nhwc_copied_bytes).tolist() == read_and_written
    assert program(norm, "cpu") == Program(reread_ratio=1.0)


@pytest.mark.parametrize("op", ["aten.native_layer_norm", "aten.native_layer_norm_backward", "aten.native_group_norm"])
def test_norms_first_copy_operands_that_come_in_another_order_on_a_gpu(op: str) -> None:
    images = operand((0.0, 1.0), 10, 10, 8)
    norm = row(op, (images, images), (images,), family="norm", attributes={MADE_CONTIGUOUS: 2})
    in_order = row(op, (images, images), (images,), family="norm")
    assert np.asarray(program(norm, "gpu").nchw_copied_bytes).tolist() == [2 * 4 * 800, 2 * 4 * 1600]
    assert program(in_order, "gpu").nchw_copied_bytes == 0
    assert program(norm, "cpu") == program(in_order, "cpu")


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_each_gradient_of_a_convolution_is_a_call_that_reads_that_of_its_result(kind: DeviceKind) -> None:
    result, images, weight = operand((0.0, 1.0), 5, 10, 10), operand((0.0, 1.0), 15, 10, 10), operand(5, 15, 1, 1)

    def backward(*mask: bool) -> Program:
        attributes = {"transposed": False, "output_mask": mask}
        operands = (result, images, weight)
        return program(row("aten.convolution_backward", operands, family="conv", attributes=attributes), kind)

    both = backward(True, True, False)
    assert (both.launches, both.dispatches) == (2, 1)
    assert np.asarray(both.reread_ratio).tolist() == [0.25, 0.25]  # 500 of 2,000 elements
    assert (backward(False, True, False).launches, backward(False, True, False).reread_ratio) == (1, 0)


def test_cudnn_runs_a_recurrent_layer_step_by_step() -> None:
    lstm = program(rnn_row(), "gpu")
    assert lstm.launches == 2 * (1 + 2 * 5)  # layers x (inputs' product + 2 kernels x steps)
    assert lstm.dispatches == 1
    # Recurrent weights 4 gates x 32 x 32, read anew in 4 of 5 steps, in 2 layers, 4 bytes each.
    assert (lstm.revisited_bytes, lstm.revisited_set_bytes) == (2 * 4 * 4096 * 4, 4096 * 4)


def test_both_directions_are_layers_of_their_own_and_backward_runs_twice() -> None:
    assert program(rnn_row(bidirectional=True), "gpu").launches == 2 * program(rnn_row(), "gpu").launches
    assert program(rnn_row("rnn_backward"), "gpu").launches == 2 * program(rnn_row(), "gpu").launches


def test_batch_first_inputs_have_their_steps_in_the_second_dimension() -> None:
    toy = rnn_row(batch_first=True)
    assert np.asarray(program(toy, "gpu").launches).tolist() == [
        2 * (1 + 2),
        2 * (1 + 4),
    ]  # (5, batch, 16): as many steps


def test_the_steps_of_a_packed_input_are_its_tokens_per_sample() -> None:
    toy = rnn_row()
    # 60 tokens of 4 samples: 15 steps on average, beside a state of (layers, samples, hidden).
    packed = replace(toy, inputs=(operand(60, 16), operand(2, 4, 32)))
    assert program(packed, "gpu").launches == 2 * (1 + 2 * 15)
    backward = replace(packed, op="rnn_backward", inputs=(operand(60, 32), *packed.inputs))
    assert program(backward, "gpu").launches == 2 * 2 * (1 + 2 * 15)
    unbatched = replace(toy, inputs=(operand(60, 16), operand(2, 32)))
    assert program(unbatched, "gpu").launches == 2 * (1 + 2 * 60)


def test_a_cpu_runs_an_lstm_in_one_operator_per_layer_and_a_gru_step_by_step() -> None:
    lstm, gru = program(rnn_row(), "cpu"), program(rnn_row(mode="gru"), "cpu")
    assert (lstm.dispatches, gru.dispatches) == (2, 2)
    assert (lstm.launches, gru.launches) == (2, 2 * 12 * 5)
    # In each of 2 layers all cores meet after the product and the gates of 5 steps; a GRU after the product.
    assert (lstm.joins, gru.joins) == (2 * 2 * 5, 2 * 5)
    assert (lstm.repacks, gru.repacks) == (True, False)
    # 4 of 5 steps in 2 layers read 4 gates (a GRU has 3) x 32 x 32 recurrent weights of 4 bytes again.
    assert (lstm.revisited_bytes, gru.revisited_bytes) == (2 * 4 * 4096 * 4, 2 * 4 * 3072 * 4)


@pytest.mark.parametrize(("op", "flop_ratio"), [("aten.silu", 5.0), ("aten.silu_", 5.0), ("aten.relu_", 1.0)])
def test_a_function_takes_a_cpu_as_long_in_place(op: str, flop_ratio: float) -> None:
    elements = operand(8)
    assert program(row(op, (elements,), (elements,), family="pointwise"), "cpu").flop_ratio == flop_ratio


def test_a_gpu_steps_over_lists_of_tensors() -> None:
    step = program(optimizer_row(), "gpu")
    assert step.dispatches == 11
    assert step.launches == 11 * 3  # 100 tensors in launches of 36
    assert step.extra_bytes == 100_000 * (92 - 28)


def test_a_cpu_steps_tensor_by_tensor() -> None:
    assert program(optimizer_row(), "cpu").dispatches == 11 * 100
