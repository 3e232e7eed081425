from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from advisor.ops.evaluate import call_at
from advisor.ops.registry import CHANNELS_LAST, MADE_CONTIGUOUS, STRIDED
from advisor.predict.composite_kernels import CASTS, Program, program_of
from advisor.records.device import DeviceKind
from advisor.records.workload import Row
from tests.predict.toys import operand, row

BATCHES = np.array([1.0, 2.0])


def program(toy: Row, kind: DeviceKind, *, itemsize_bytes: float = 4.0) -> Program:
    return program_of(call_at(toy, batch=BATCHES), kind=kind, itemsize_bytes=itemsize_bytes)


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


def test_a_score_of_attention_takes_a_cpu_an_exponential_beside_its_products() -> None:
    for op in ("attention", "attention_backward"):
        found = program(attention_row(op, dropout_ratio=0.0), "cpu")
        # 12 heads x 10 queries x 10 keys per sample; exp() takes as long as 10 additions, and 3 are beside it.
        assert np.asarray(found.function_flops).tolist() == [13 * 1200, 13 * 2400]
        assert found.flop_ratio == 1


@pytest.mark.parametrize(("length", "block"), [(100, 32), (192, 64), (768, 256)])
def test_long_attention_takes_a_cpu_larger_blocks_of_queries(length: int, block: int) -> None:
    heads = operand((0.0, 1.0), 12, length, 64)
    attributes = {"causal": False, "dropout_ratio": 0.0}
    toy = row("attention", (heads, heads, heads), (heads,), family="attention", attributes=attributes)
    assert program(toy, "cpu").block_rows == block


def test_a_causal_mask_skips_blocks_of_512_keys_on_a_cpu() -> None:
    def causal(length: int) -> Program:
        heads = operand((0.0, 1.0), 12, length, 64)
        attributes = {"causal": True, "dropout_ratio": 0.0}
        return program(
            row("attention", (heads, heads, heads), (heads,), family="attention", attributes=attributes), "cpu"
        )

    # The formula counts half of the pairs. One block is computed in full, twice that half; of two blocks a query takes
    # 1.5 on average, of four 2.5.
    assert [causal(length).flop_ratio for length in (256, 512, 1024, 2048)] == [2, 2, 1.5, 1.25]
    assert np.asarray(causal(1024).function_flops).tolist()[0] == 13 * 12 * 1024 * 768


def test_a_mask_of_blocks_spares_a_cpu_the_exponentials_of_those_that_it_leaves_out() -> None:
    heads = operand((0.0, 1.0), 12, 1024, 64)
    attributes = {"causal": False, "dropout_ratio": 0.0, "block_ratio": 0.75}
    masked = program(
        row("attention", (heads, heads, heads), (heads,), family="attention", attributes=attributes), "cpu"
    )
    assert masked.flop_ratio == 1
    assert np.asarray(masked.function_flops).tolist()[0] == 13 * 12 * 1024 * 768


def test_gradients_of_attention_in_16_bits_are_products_of_blocks_by_onednn() -> None:
    heads = operand((0.0, 1.0), 12, 200, 64)
    attributes = {"causal": False, "dropout_ratio": 0.0}
    toy = row("attention_backward", (heads, heads, heads, heads), (heads,), family="attention", attributes=attributes)
    # Blocks of 64 of 200 queries: 4 for each of 12 heads, with 6 products each.
    assert np.asarray(program(toy, "cpu", itemsize_bytes=2).scalar_cycles).tolist() == [288 * 60_000, 576 * 60_000]
    assert not np.any(program(toy, "cpu").scalar_cycles)


def test_the_dense_gradient_of_a_table_is_read_before_it_is_written_and_a_bag_sorts_first() -> None:
    table, indices = operand(1000, 64), operand((0.0, 8.0), dtype="int64")
    dense = row("aten.embedding_dense_backward", (operand((0.0, 8.0), 64), indices), (table,), family="embedding")
    bag = replace(dense, op="aten._embedding_bag_dense_backward")
    assert program(dense, "cpu").extra_bytes == program(bag, "cpu").extra_bytes == 4 * 64_000
    # 8 log2 8 and 16 log2 16 comparisons of 13.5 cycles
    assert np.asarray(program(bag, "cpu").serial_cycles).tolist() == [13.5 * 24, 13.5 * 64]


def test_a_fourier_transform_plans_every_length_on_one_core_of_a_cpu() -> None:
    images = operand((0.0, 1.0), 64, 32)
    toy = row("aten._fft_r2c", (images,), (images,), family="fft", attributes={"dim": [1, 2]})
    assert program(toy, "cpu").serial_cycles == 40 * (64 + 32)


def test_functions_take_a_cpu_as_long_as_many_additions_and_a_gpu_as_one() -> None:
    names = ("add", "div", "tanh", "log", "log2", "log10", "elu", "celu")
    ratios = {name: program(row(f"aten.{name}", family="pointwise"), "cpu").flop_ratio for name in names}
    assert ratios["add"] == 1 < ratios["div"] < ratios["tanh"]
    assert ratios["log2"] == ratios["log10"] == ratios["log"]  # the same code but for a factor
    assert ratios["celu"] == ratios["elu"]
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
    norm = row(op, (images, images, images), (images,), family="norm", attributes=attributes)
    found = program(norm, kind)
    keeps_some = kind == "gpu" and "batch_norm" in op and reread_ratio > 0
    assert replace(found, issue_cycles=0.0, nchw_issue_cycles=0.0, sequential_loads=0.0) == Program(
        reread_ratio=reread_ratio, saves_half_rereads=keeps_some
    )


@pytest.mark.parametrize(
    ("op", "attributes", "operand_count"),
    [
        ("aten._native_batch_norm_legit", {"training": True}, 1),
        ("aten.native_batch_norm_backward", {"train": True}, 2),
    ],
)
def test_a_gpu_has_a_thread_block_for_each_channel_of_a_batch_norm_that_averages(
    op: str, attributes: dict[str, Any], operand_count: int
) -> None:
    """20,000 floats of a channel's images fit into registers, 40,000 do not."""
    images = operand((0.0, 1.0), 8, 100, 200 // operand_count)
    norm = row(op, (images, images), (images,), family="norm", attributes=attributes)
    loads = np.asarray(program(norm, "gpu").sequential_loads)
    assert loads[0] == 0
    assert loads[1] == pytest.approx(2 * 40_000 / 724)
    assert program(norm, "gpu").issue_cycles == program(norm, "cpu").sequential_loads == 0


def test_a_gpu_issues_instructions_for_each_element_which_a_cpu_has_no_cycles_for() -> None:
    tokens, images = operand((0.0, 1.0), 10), operand((0.0, 1.0), 8, 10, 10)
    addition = row("aten.add", (tokens, operand(10)), (tokens,), family="pointwise")
    norm = row("aten._native_batch_norm_legit_no_training", (images,), (images,), family="norm")
    assert np.asarray(program(addition, "gpu").issue_cycles)[1] == pytest.approx(0.8 * 20)
    assert np.asarray(program(norm, "gpu").nchw_issue_cycles)[0] == pytest.approx(8 * 160)
    assert program(addition, "cpu") == Program()


def test_a_gpu_adds_the_bias_of_a_convolution_in_a_kernel_of_its_own() -> None:
    images, weight = operand((0.0, 1.0), 8, 10, 10), operand(8, 8, 3, 3)
    plain = row("aten.convolution", (images, weight), (images,), family="conv")
    assert program(plain, "gpu") == Program()
    found = program(replace(plain, inputs=(images, weight, operand(8))), "gpu")
    assert np.asarray(found.pass_bytes).tolist() == [2 * 4 * 800, 2 * 4 * 1600]
    assert np.asarray(found.pass_cycles) == pytest.approx(np.array([800, 1600]) * 0.8)


def test_a_gpu_rolls_one_dimension_after_the_other() -> None:
    tokens = operand((0.0, 1.0), 4, 6)
    found = program(row("aten.roll", (tokens,), (tokens,), family="copy", attributes={"dims": (1, 2)}), "gpu")
    assert (found.launches, found.dispatches) == (2, 2)
    assert np.asarray(found.extra_bytes).tolist() == [2 * 4 * 24, 2 * 4 * 48]  # read and written once more


def test_an_encoder_layer_passes_over_its_tokens_between_the_products_on_a_gpu() -> None:
    x = operand((0.0, 1.0), 10, 16)
    operands = (x, *(operand(16),) * 8, operand(64, 16), operand(64), operand(16, 64), operand(16))
    found = program(row("encoder_layer", operands, (x,), family="attention"), "gpu")
    assert np.asarray(found.pass_bytes)[0] == 4 * 10 * (12 * 16 + 2 * 64)
    assert np.asarray(found.pass_cycles)[0] == 10 * 160


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
        ("aten.upsample_nearest2d", 5.5 * 8 * (7 * 7 + 14 * 14)),  # small images are copied to channels-last and back
        ("aten._upsample_nearest_exact2d", 5.5 * 8 * (7 * 7 + 14 * 14)),
        ("aten.upsample_bilinear2d", 5.5 * 8 * (7 * 7 + 14 * 14)),
        ("aten.upsample_bicubic2d", 27 * 8 * 14 * 14),  # for each output
        ("aten.where", 15 * 8 * 14 * 14),
        ("aten.var", 20 * 8 * 7 * 7),  # for each input
        ("aten.sort", 13.5 * 8 * 7 * 7 * np.log2(7)),  # for each of the n log2 n comparisons along the last dimension
    ],
)
def test_a_cpu_takes_some_elements_one_at_a_time(op: str, cycles: float) -> None:
    small, large = operand((0.0, 20.0), 8, 7, 7), operand((0.0, 20.0), 8, 14, 14)  # 31,360 elements of a sample
    found = program(row(op, (small,), (large,), family="pointwise"), "cpu")
    assert np.asarray(found.serial_cycles).tolist() == pytest.approx([20 * cycles, 0])  # few run on one core
    assert np.asarray(found.scalar_cycles).tolist() == pytest.approx([0, 40 * cycles])
    assert program(row(op, (small,), (large,), family="pointwise"), "gpu").scalar_cycles == 0


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
    norm = row(op, (images, images, images), (images,), family="norm", attributes={MADE_CONTIGUOUS: 2})
    in_order = row(op, (images, images, images), (images,), family="norm")
    copies = program(norm, "gpu")
    assert np.asarray(copies.nchw_copied_bytes).tolist() == [2 * 4 * 800, 2 * 4 * 1600]
    assert np.asarray(copies.nchw_copied_cycles).tolist() == [2 * 1.8 * 800, 2 * 1.8 * 1600]
    assert program(in_order, "gpu").nchw_copied_bytes == 0


@pytest.mark.parametrize("op", ["aten.native_layer_norm", "aten.native_layer_norm_backward"])
def test_layer_norms_take_a_cpu_cycles_for_each_element_that_they_first_copy(op: str) -> None:
    images = operand((0.0, 1.0), 100, 20, 8)  # 16,000 elements, which one core copies, and 32,000; two operands
    norm = row(op, (images, images, images), (images,), family="norm", attributes={MADE_CONTIGUOUS: 2})
    copies = program(norm, "cpu")
    assert np.asarray(copies.serial_cycles).tolist() == [2 * 3.5 * 16_000, 0]
    assert np.asarray(copies.scalar_cycles).tolist() == [0, 2 * 3.5 * 32_000]
    assert copies.has_vectors_nhwc  # channels-last images are contiguous when their channels come last
    assert not np.any(program(replace(norm, attributes={}), "cpu").scalar_cycles)
    assert program(replace(norm, op="aten.native_group_norm"), "cpu") == Program(reread_ratio=1.0)


@pytest.mark.parametrize("op", ["aten.clone", "aten.add", "aten.cat"])
def test_operands_in_another_order_take_a_cpu_cycles_for_each_element(op: str) -> None:
    tokens, halves = operand((0.0, 16.0), 20, 100), operand((0.0, 16.0), 20, 100, dtype="bfloat16")
    transposed = row(op, (tokens, tokens), (tokens,), family="copy", attributes={STRIDED: "transposed"})
    found = program(transposed, "cpu")
    assert np.asarray(found.serial_cycles).tolist() == [3.5 * 32_000, 0]
    assert np.asarray(found.scalar_cycles).tolist() == [0, 3.5 * 64_000]
    assert not found.has_vectors_nhwc
    assert found.has_vectors_compiled
    assert np.asarray(program(replace(transposed, outputs=(halves,)), "cpu").serial_cycles)[0] == 3 * 32_000
    images = replace(transposed, outputs=(operand((0.0, 1.0), 8, 10, 10),))
    assert program(images, "cpu").has_vectors_nhwc
    assert not np.any(program(replace(transposed, attributes={STRIDED: "rows"}), "cpu").scalar_cycles)
    masked = row("aten.masked_fill", (tokens,), (tokens,), family="pointwise", attributes={STRIDED: "transposed"})
    assert np.asarray(program(masked, "cpu").serial_cycles)[0] == 15 * 32_000  # a loop in any order


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


def test_a_gpu_sums_the_gradient_of_a_convolutions_bias_in_a_kernel_of_its_own() -> None:
    result, images, weight = operand((0.0, 1.0), 5, 10, 10), operand((0.0, 1.0), 15, 10, 10), operand(5, 15, 1, 1)

    def backward(*mask: bool, kind: DeviceKind = "gpu") -> Program:
        attributes = {"transposed": False, "output_mask": mask}
        operands = (result, images, weight)
        return program(row("aten.convolution_backward", operands, family="conv", attributes=attributes), kind)

    whole = backward(True, True, True)
    assert (whole.launches, whole.dispatches) == (3, 1)
    assert np.asarray(whole.pass_bytes).tolist() == [4 * 500, 4 * 1000]  # the result's gradients, read once more
    assert backward(False, True, True).launches == 2
    alone = backward(False, False, True)  # a single kernel, which reads them
    assert (alone.launches, alone.pass_bytes) == (1, 0)
    on_cpu = backward(True, True, True, kind="cpu")  # with the weight's, by oneDNN
    assert (on_cpu.launches, on_cpu.pass_bytes) == (2, 0)


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
    assert (lstm.repack_count, gru.repack_count) == (1, 0)
    assert np.asarray(gru.serial_cycles).tolist() == [0, 0]
    assert program(rnn_row("rnn_backward", mode="gru"), "cpu").launches == 2 * 35 * 5
    # 4 of 5 steps in 2 layers read 4 gates (a GRU has 3) x 32 x 32 recurrent weights of 4 bytes again.
    assert (lstm.revisited_bytes, gru.revisited_bytes) == (2 * 4 * 4096 * 4, 2 * 4 * 3072 * 4)


def test_a_cpu_computes_the_gates_of_many_samples_longer_than_it_launches_them() -> None:
    """Cells of 32 units: 512 samples are 16,384 elements, on one core; 2,048 are 65,536, on all. 9,000 are launched."""
    batches = np.array([1.0, 512.0, 2048.0])
    gru = program_of(call_at(rnn_row(mode="gru"), batch=batches), kind="cpu", itemsize_bytes=4)
    of_cell = [(6.7 * n - 9000) + 2 * (2.0 * n - 9000) + 8 * (0.85 * n - 9000) for n in (16_384, 65_536)]
    # 2 layers x 5 steps.
    assert np.asarray(gru.serial_cycles).tolist() == pytest.approx([0, 10 * of_cell[0], 0])
    assert np.asarray(gru.scalar_cycles).tolist() == pytest.approx([0, 0, 10 * of_cell[1]])


def test_autocast_casts_the_state_of_a_gru_at_every_step_and_its_weights_again_in_inference() -> None:
    kept, again = (
        program(rnn_row(mode="gru", **{CASTS: how}), "cpu", itemsize_bytes=2) for how in ("kept", "repeated")
    )
    plain = program(rnn_row(mode="rnn_tanh", **{CASTS: "kept"}), "cpu", itemsize_bytes=2)
    # 2 layers of 5 steps: 12 operators of a cell and 4 casts, then a weight and a bias.
    assert (kept.launches, plain.launches, again.launches) == (10 * 16, 10 * 4, 10 * 18)
    assert again.joins == 10 + kept.joins
    assert again.revisited_bytes - kept.revisited_bytes == 10 * 3072 * (4 + 2)
    assert not np.any(again.scalar_cycles)  # inputs whose first dimension is the steps are one matrix


def test_autocast_copies_a_recurrent_layers_weights_for_every_step_of_a_batch_first_input_in_inference() -> None:
    source, result = operand((0.0, 1.0), 5, 16), operand((0.0, 1.0), 5, 32)
    toy = replace(rnn_row(mode="gru", batch_first=True, **{CASTS: "repeated"}), inputs=(source,), outputs=(result,))
    # 5 steps x 96 x 16 weights of the first layer, 6 cycles each, read and written in 2 bytes. One sample is a matrix.
    copied = program(toy, "cpu", itemsize_bytes=2)
    assert np.asarray(copied.scalar_cycles).tolist() == [0, 6 * 7680]
    assert np.asarray(copied.extra_bytes).tolist() == [0, 2 * 2 * 7680]
    assert not np.any(program(replace(toy, attributes=toy.attributes | {CASTS: "kept"}), "cpu").scalar_cycles)


def test_weight_gradients_are_summed_step_by_step_but_those_of_an_lstm_in_fp32() -> None:
    def summed_bytes(mode: str, itemsize_bytes: float) -> float:
        """Beyond the recurrent weights, which 4 of 5 steps read again, twice in each of 2 layers."""
        found = program(rnn_row("rnn_backward", mode=mode), "cpu", itemsize_bytes=itemsize_bytes)
        weights_numel = (4 if mode == "lstm" else 3) * 32 * 32
        return float(found.revisited_bytes - 2 * 2 * 4 * weights_numel * itemsize_bytes)

    # Written, read with the sum and the sum written: 4 passes over 3 x 32 x 32 elements, in 10 cells.
    assert summed_bytes("gru", 4) == 10 * 4 * 3072 * 4
    # The sums in fp32 of 4 x 32 x (16 + 32) and 4 x 32 x (32 + 32) weights are read and written in 5 steps.
    assert summed_bytes("lstm", 2) == 5 * 2 * (6144 + 8192) * 4
    assert summed_bytes("lstm", 4) == 0


@pytest.mark.parametrize(("op", "flop_ratio"), [("aten.silu", 5.0), ("aten.silu_", 5.0), ("aten.relu_", 1.0)])
def test_a_function_takes_a_cpu_as_long_in_place(op: str, flop_ratio: float) -> None:
    elements = operand(8)
    assert program(row(op, (elements,), (elements,), family="pointwise"), "cpu").flop_ratio == flop_ratio


def test_a_gpu_steps_over_lists_of_tensors() -> None:
    step = program(optimizer_row(), "gpu")
    assert step.dispatches == 11
    assert step.launches == 11 * 3  # 100 tensors in launches of 36
    assert step.extra_bytes == 100_000 * (92 - 28)


@pytest.mark.parametrize("kind", ["gpu", "cpu"])
def test_a_step_on_a_sparse_gradient_moves_the_elements_that_it_has(kind: DeviceKind) -> None:
    toy = optimizer_row()
    gradient = (operand(1, (0.0, 10.0), dtype="int64"), operand((0.0, 10.0), 64))
    toy = replace(toy, inputs=gradient, attributes={**toy.attributes, "tensor_count": 1})
    step = program(toy, kind)
    assert np.all(step.launches == 11)
    assert np.asarray(step.extra_bytes).tolist() == [640 * (92 - 28), 1280 * (92 - 28)]


def test_a_cpu_steps_tensor_by_tensor() -> None:
    assert program(optimizer_row(), "cpu").dispatches == 11 * 100


@pytest.mark.parametrize(("element_count", "joined"), [(100_000, 100_000 / 32_768), (100_000_000, 100)])
def test_the_cores_of_a_cpu_share_no_more_of_an_optimizers_tensors_than_its_elements_allow(
    element_count: int, joined: float
) -> None:
    toy = optimizer_row()
    toy = replace(toy, attributes={**toy.attributes, "element_count": element_count})
    assert program(toy, "cpu").joins == pytest.approx(11 * joined)
