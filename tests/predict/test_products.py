from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from advisor.ops.registry import Call, Tensor, aten, formulas
from advisor.predict.precision import MATRIX_FAMILIES
from advisor.predict.products import _BY_OP, Product, products_of


def tensor(*shape: Any, dtype: str = "float32") -> Tensor:
    return Tensor(shape=shape, dtype=dtype)


def products(
    op: str,
    *inputs: Tensor,
    output: Tensor | None = None,
    attributes: Mapping[str, Any] | None = None,
) -> tuple[Product, ...]:
    outputs = () if output is None else (output,)
    return products_of(Call(op=op, inputs=inputs, outputs=outputs, attributes=attributes or {}))


def sizes(product: Product) -> tuple[Any, ...]:
    return (product.groups, product.m, product.n, product.k)


def direct(product: Product) -> tuple[float, float]:
    return product.nchw_direct_ratio, product.nhwc_direct_ratio


def convolution(
    source: Tensor, weight: Tensor, result: Tensor, *, transposed: bool = False, dilation: int = 1
) -> Product:
    attributes = {"transposed": transposed, "dilation": (dilation, dilation)}
    (found,) = products("aten.convolution", source, weight, output=result, attributes=attributes)
    return found


def gradients(
    grad_output: Tensor,
    source: Tensor,
    weight: Tensor,
    *,
    output_mask: tuple[bool, bool, bool] = (True, True, False),
    transposed: bool = False,
) -> tuple[Product, ...]:
    attributes = {"transposed": transposed, "output_mask": output_mask}
    return products("aten.convolution_backward", grad_output, source, weight, attributes=attributes)


@pytest.mark.parametrize(
    ("op", "inputs", "expected"),
    [
        ("aten.mm", (tensor(6, 8), tensor(8, 16)), (1, 6, 16, 8)),
        ("aten.addmm", (tensor(16), tensor(6, 8), tensor(8, 16)), (1, 6, 16, 8)),
        ("aten.bmm", (tensor(5, 6, 8), tensor(5, 8, 16)), (5, 6, 16, 8)),
        ("aten.baddbmm", (tensor(5, 6, 16), tensor(5, 6, 8), tensor(5, 8, 16)), (5, 6, 16, 8)),
        ("aten.matmul", (tensor(2, 5, 6, 8), tensor(2, 5, 8, 16)), (10, 6, 16, 8)),
        ("aten.matmul", (tensor(2, 5, 6, 8), tensor(8, 16)), (1, 60, 16, 8)),  # all rows against one matrix
    ],
)
def test_a_product_multiplies_its_rows_by_its_columns(
    op: str, inputs: tuple[Tensor, ...], expected: tuple[int, ...]
) -> None:
    (found,) = products(op, *inputs)
    assert sizes(found) == expected


def test_a_linear_layer_has_a_row_for_every_vector_and_a_column_for_every_feature() -> None:
    (found,) = products("aten.linear", tensor(4, 10, 8), tensor(16, 8), output=tensor(4, 10, 16))
    assert sizes(found) == (1, 40, 16, 8)


def test_rows_grow_with_the_batch() -> None:
    (found,) = products("aten.mm", tensor(np.array([1.0, 4.0]), 8), tensor(8, 16))
    assert np.asarray(found.m).tolist() == [1, 4]


def test_a_convolution_has_a_row_per_pixel_and_sums_over_channels_and_taps() -> None:
    # 2 images of 3 channels, 8 x 8, to 16 channels with 3 x 3 taps and stride 2: 2 x 4 x 4 pixels, 3 x 9 terms.
    found = convolution(tensor(2, 3, 8, 8), tensor(16, 3, 3, 3), tensor(2, 16, 4, 4))
    assert sizes(found) == (1, 32, 16, 27)
    assert not found.is_depthwise


def test_a_grouped_convolution_is_a_product_for_each_group() -> None:
    # 8 channels to 16 in 2 groups: each of 4 channels, 4 x 9 terms, to 8.
    found = convolution(tensor(2, 8, 8, 8), tensor(16, 4, 3, 3), tensor(2, 16, 8, 8))
    assert sizes(found) == (2, 128, 8, 36)
    assert not found.is_depthwise


def test_a_depthwise_convolution_sums_over_taps_alone() -> None:
    found = convolution(tensor(2, 8, 8, 8), tensor(8, 1, 5, 5), tensor(2, 8, 8, 8))
    assert sizes(found) == (8, 128, 1, 25)
    assert found.is_depthwise


def test_a_convolution_of_one_channel_is_not_depthwise() -> None:
    found = convolution(tensor(2, 1, 8, 8), tensor(16, 1, 5, 5), tensor(2, 16, 8, 8))
    assert sizes(found) == (1, 128, 16, 25)
    assert not found.is_depthwise


def test_a_transposed_convolution_is_the_gradient_of_one() -> None:
    # 16 channels of 4 x 4 to 3 of 8 x 8, weight (in, out, 3, 3): 2 x 8 x 8 pixels of 3 channels, each of 16 x 9 / 4
    # terms at stride 2, and 2 x 128 x 3 x 36 FLOP: 2 x 4 x 4 pixels of 16 channels that each spread over 3 x 9.
    found = convolution(tensor(2, 16, 4, 4), tensor(16, 3, 3, 3), tensor(2, 3, 8, 8), transposed=True)
    assert sizes(found) == (1, 128, 3, 36)
    assert found.is_gradient


def test_the_gradient_of_a_transposed_convolution_s_input_is_a_convolution() -> None:
    # Weight (16 in, 3 out, 3, 3): 2 x 4 x 4 pixels of 16 channels, each the sum of 3 x 9 terms.
    of_input, of_weight = gradients(tensor(2, 3, 8, 8), tensor(2, 16, 4, 4), tensor(16, 3, 3, 3), transposed=True)
    assert sizes(of_input) == (1, 32, 16, 27)
    assert sizes(of_weight) == (1, 16, 27, 32)


@pytest.mark.parametrize(
    ("channels", "size", "kernel", "speedup"),
    [
        ((256, 256), 14, 3, 9 * 14 * 14 / (4 * 16 * 9)),  # fft2d_r2c_16x16 in the profile of a ResNet-18
        ((128, 128), 28, 3, 9 * 28 * 28 / (4 * 32 * 17)),
        ((256, 128), 56, 3, 9 * 56 * 56 / (4 * 64 * 33)),  # fft2d_r2c_64x64 in that of a VGG-16
        ((256, 256), 10, 7, 49 * 10 * 10 / (4 * 16 * 9)),
        ((512, 512), 7, 3, 1.0),  # 16 x 9 complex products are more
        ((64, 64), 56, 3, 1.0),
        ((128, 128), 112, 3, 1.0),
        ((256, 256), 14, 1, 1.0),
    ],
)
def test_fourier_transforms_save_flops_where_a_plane_fills_one(
    channels: tuple[int, int], size: int, kernel: int, speedup: float
) -> None:
    outputs, inputs = channels
    product = convolution(
        tensor(2, inputs, size, size), tensor(outputs, inputs, kernel, kernel), tensor(2, outputs, size, size)
    )
    assert product.fft_speedup == pytest.approx(speedup)


def test_fourier_transforms_are_of_dense_planes_at_stride_1() -> None:
    source, weight = tensor(2, 256, 14, 14), tensor(256, 256, 3, 3)
    assert convolution(source, weight, tensor(2, 256, 7, 7)).fft_speedup == 1
    assert convolution(source, weight, source, dilation=2).fft_speedup == 1
    assert convolution(source, tensor(256, 128, 3, 3), source).fft_speedup == 1  # 2 groups
    video = tensor(2, 256, 8, 14, 14)
    assert convolution(video, tensor(256, 256, 3, 3, 3), video).fft_speedup == 1


def test_only_3_x_3_convolutions_that_keep_the_size_may_take_winograds_algorithm() -> None:
    source = tensor(2, 8, 8, 8)
    assert convolution(source, tensor(16, 8, 3, 3), tensor(2, 16, 8, 8)).can_winograd
    assert not convolution(source, tensor(16, 8, 3, 3), tensor(2, 16, 4, 4)).can_winograd  # stride 2
    assert not convolution(source, tensor(16, 8, 3, 3), tensor(2, 16, 8, 8), dilation=2).can_winograd
    assert not convolution(source, tensor(16, 8, 5, 5), tensor(2, 16, 8, 8)).can_winograd
    assert not convolution(source, tensor(16, 4, 3, 3), tensor(2, 16, 8, 8)).can_winograd  # 2 groups


def test_a_convolution_goes_backward_in_a_product_for_each_gradient() -> None:
    # 2 images of 3 channels, 8 x 8, to 16 channels of 4 x 4. The input's gradient: a row for each of its 2 x 64 pixels,
    # a column for each of its channels, 16 x 9 terms. The weight's: 16 x (3 x 9), summed over 2 x 16 pixels.
    to_input, to_weight = gradients(tensor(2, 16, 4, 4), tensor(2, 3, 8, 8), tensor(16, 3, 3, 3))
    assert sizes(to_input) == (1, 128, 3, 144)
    assert sizes(to_weight) == (1, 16, 27, 32)


def test_a_grouped_convolution_goes_backward_group_by_group() -> None:
    # 8 channels to 16 in 2 groups of 4 to 8.
    to_input, to_weight = gradients(tensor(2, 16, 8, 8), tensor(2, 8, 8, 8), tensor(16, 4, 3, 3))
    assert sizes(to_input) == (2, 128, 4, 72)
    assert sizes(to_weight) == (2, 8, 36, 128)


def test_a_depthwise_convolution_goes_backward_depthwise() -> None:
    found = gradients(tensor(2, 8, 8, 8), tensor(2, 8, 8, 8), tensor(8, 1, 3, 3))
    assert [product.is_depthwise for product in found] == [True, True]


@pytest.mark.parametrize(
    ("groups", "inputs", "outputs", "size", "is_direct"),
    [
        (1, 64, 64, 3, False),  # not grouped
        (32, 4, 4, 3, False),  # ResNeXt's first stage
        (8, 32, 32, 3, False),  # 256 channels
        (4, 32, 32, 3, True),  # 128 channels in few groups
        (17, 64, 64, 3, True),  # too wide for a tile of a group
        (16, 24, 24, 3, True),  # no power of two
        (32, 8, 16, 3, True),  # more out than in
        (32, 8, 8, 5, True),
    ],
)
def test_gradients_of_grouped_weights_have_tensor_cores_channels_last_for_few_shapes(
    groups: int, inputs: int, outputs: int, size: int, is_direct: bool
) -> None:
    image, result = tensor(2, groups * inputs, 8, 8), tensor(2, groups * outputs, 8, 8)
    to_input, to_weight = gradients(result, image, tensor(groups * outputs, inputs, size, size))
    assert direct(to_input) == (0, 0)
    assert direct(to_weight) == (0, (64 / outputs) ** 0.5 if is_direct else 0)


@pytest.mark.parametrize(
    ("size", "in_nchw", "channels_last"),
    [
        ((3, 3), False, False),
        ((5, 5), False, False),
        ((7, 7), True, False),
        ((9, 9), True, True),
        ((1, 11), True, True),
    ],
)
def test_depthwise_kernels_of_large_sizes_have_direct_code_alone(
    size: tuple[int, int], in_nchw: bool, channels_last: bool
) -> None:
    image, weight = tensor(2, 64, 16, 16), tensor(64, 1, *size)
    to_result, (to_input, to_weight) = convolution(image, weight, image), gradients(image, image, weight)
    assert direct(to_result) == direct(to_input) == (pytest.approx(0.7 * in_nchw), pytest.approx(2.4 * channels_last))
    assert direct(to_weight) == (0, pytest.approx(2.4 * channels_last))  # torch's code for these knows all sizes


@pytest.mark.parametrize(
    ("inputs", "outputs", "in_nchw", "channels_last"),
    [
        (32, 32, 1, 1),
        (24, 24, 32 / 24, (32 / 24) ** 2),
        (72, 72, 128 / 72, (128 / 72) ** 2),
        (264, 264, 320 / 264, (320 / 264) ** 2),
        (16, 24, 32 / 24, 32 / 24),
        (24, 16, 1, 32 / 24),
    ],
)
def test_groups_of_channels_fill_tiles(inputs: int, outputs: int, in_nchw: float, channels_last: float) -> None:
    image, result = tensor(2, 4 * inputs, 8, 8), tensor(2, 4 * outputs, 8, 8)
    weight = tensor(4 * outputs, inputs, 3, 3)
    for found in (convolution(image, weight, result), *gradients(result, image, weight)):
        assert found.nchw_padded_ratio == pytest.approx(in_nchw)
        assert found.nhwc_padded_ratio == pytest.approx(channels_last)
    whole = convolution(tensor(2, inputs, 8, 8), tensor(outputs, inputs, 3, 3), tensor(2, outputs, 8, 8))
    assert (whole.nchw_padded_ratio, whole.nhwc_padded_ratio, *direct(whole)) == (1, 1, 0, 0)


def test_depthwise_convolutions_of_sequences_have_code_of_their_own() -> None:
    assert direct(convolution(tensor(2, 64, 16), tensor(64, 1, 9), tensor(2, 64, 16))) == (0, 0)


def test_an_image_alone_is_in_no_layout() -> None:
    """Weights of each sample, as a conditional convolution has them, are groups over all samples as one image."""
    _, to_weight = gradients(tensor(1, 128, 8, 8), tensor(1, 128, 8, 8), tensor(128, 64, 3, 3))
    assert direct(to_weight) == (0, 0)


@pytest.mark.parametrize("output_mask", [(False, True, False), (False, True, True)])
def test_the_first_layer_has_no_gradient_for_its_input(output_mask: tuple[bool, bool, bool]) -> None:
    found = gradients(tensor(2, 16, 4, 4), tensor(2, 3, 8, 8), tensor(16, 3, 3, 3), output_mask=output_mask)
    assert [sizes(product) for product in found] == [(1, 16, 27, 32)]


def test_attention_passes_blocks_of_queries_over_all_keys() -> None:
    query, key = tensor(2, 12, 10, 64), tensor(2, 12, 20, 64)
    (forward,) = products("attention", query, key, key, output=query)
    assert sizes(forward) == (24, 10, 64, 20)
    (backward,) = products("attention_backward", query, query, key, key)
    assert sizes(backward) == (24, 10, 64, 20)


LSTM = {"mode": "lstm", "input_size": 16, "hidden_size": 32, "num_layers": 1, "bidirectional": False}


def test_a_recurrent_layer_multiplies_all_inputs_at_once_and_its_states_step_by_step() -> None:
    attributes = {**LSTM, "batch_first": False}
    of_inputs, of_states = products_of(
        Call(op="rnn", inputs=(tensor(5, 3, 16),), outputs=(tensor(5, 3, 32),), attributes=attributes)
    )
    assert (of_inputs.m, of_inputs.n, of_inputs.k) == (5 * 3, 4 * 32, 16)  # a column for every gate's features
    assert (of_states.m, of_states.n, of_states.k) == (3, 4 * 32, 32)


def test_a_projected_state_is_what_the_next_step_multiplies() -> None:
    attributes = {**LSTM, "proj_size": 8, "batch_first": True}
    _, of_states = products_of(
        Call(op="rnn", inputs=(tensor(3, 5, 16),), outputs=(tensor(3, 5, 8),), attributes=attributes)
    )
    assert (of_states.m, of_states.k) == (3, 8)


def test_the_products_of_recurrent_layers_have_the_share_of_their_weights() -> None:
    # Three layers both ways: 16 inputs in the first, 2 x 32 in the other two, 32 of the state in each of the three.
    attributes = {**LSTM, "num_layers": 3, "bidirectional": True, "batch_first": False}
    found = products_of(Call(op="rnn", inputs=(tensor(5, 3, 16),), outputs=(tensor(5, 3, 64),), attributes=attributes))
    assert [(one.m, one.k, one.share) for one in found] == [(15, 16, 16), (15, 64, 128), (3, 32, 96)]


def encoder_layer() -> tuple[Product, ...]:
    """8 sequences of 10 tokens, width 16, hidden layer 64."""
    x, w = tensor(8, 10, 16), tensor
    weights = (w(48, 16), w(48), w(16, 16), w(16), w(16), w(16), w(16), w(16), w(64, 16), w(64), w(16, 64), w(16))
    return products_of(Call(op="encoder_layer", inputs=(x, *weights), outputs=(x,), attributes={}))


def test_the_linear_layers_of_an_encoder_run_as_products_and_only_its_attention_as_attention() -> None:
    *layers, attention = encoder_layer()
    assert [(one.family, one.m, one.n, one.k) for one in layers] == [
        ("matmul", 80, 48, 16), ("matmul", 80, 16, 16), ("matmul", 80, 64, 16), ("matmul", 80, 16, 64),
    ]  # fmt: skip
    # 2 x 80 x (768 + 256 + 1,024 + 1,024) FLOP of products, 4 x 80 x 10 x 16 of attention.
    assert sum(one.share for one in layers) == 491_520
    assert (attention.family, attention.share) == ("", 51_200)


def test_the_projections_around_attention_run_as_products() -> None:
    x, w = tensor(8, 10, 16), tensor
    inputs = (x, x, x, w(48, 16), w(48), w(16, 16), w(16))
    *layers, attention = products_of(Call(op="native_multi_head_attention", inputs=inputs, outputs=(x,), attributes={}))
    assert [one.share for one in layers] == [2 * 80 * 256] * 4
    assert attention.share == 51_200


@pytest.mark.parametrize(
    ("a", "b", "result", "expected"),
    [
        ((40, 16), (4, 16, 32), (40, 32), (4, 10, 32, 16)),  # 10 rows for each of 4
        ((4, 10, 16), (16, 32), (10, 32), (4, 10, 8, 16)),  # 8 columns for each
        ((10, 64), (64, 32), (4, 10, 32), (4, 10, 32, 16)),  # a depth of 16 for each
        ((4, 10, 16), (4, 16, 32), (4, 10, 32), (4, 10, 32, 16)),
    ],
)
def test_groups_divide_the_rows_the_columns_or_the_depth(
    a: tuple[int, ...], b: tuple[int, ...], result: tuple[int, ...], expected: tuple[float, ...]
) -> None:
    for op in ("aten._grouped_mm", "aten._scaled_grouped_mm"):
        (found,) = products_of(Call(op=op, inputs=(tensor(*a), tensor(*b)), outputs=(tensor(*result),), attributes={}))
        assert sizes(found) == expected


def test_experts_that_no_token_chose_have_no_product() -> None:
    # One token that goes to 2 of 8 experts: 8 x (1 - 6/8) = 2 of them, with one row each.
    call = Call(
        op="aten._grouped_mm",
        inputs=(tensor(2, 16), tensor(8, 16, 32)),
        outputs=(tensor(2, 32),),
        attributes={"experts_per_token": 2},
    )
    (found,) = products_of(call)
    assert sizes(found) == (2, 1, 32, 16)


NO_TILES = {
    *aten("mv dot vdot addmv addr"),  # vectors
    *aten("bilinear _trilinear conv_tbc conv_tbc_backward matmul_backward"),  # products by steps of their own
    *aten("_flash_attention_forward _flash_attention_backward _cudnn_attention_forward _cudnn_attention_backward"),
    *aten("mkldnn_rnn_layer mkldnn_rnn_layer_backward"),
    "torchvision.deform_conv2d",
}


def test_every_operator_of_a_matrix_family_has_its_products() -> None:
    """A kernel that is no product counts as filling every tile."""
    names = {one.op for one in formulas() if one.family in MATRIX_FAMILIES}
    without = {op for op in names if op not in _BY_OP}
    fused = {op for op in without if "scaled_dot_product" in op}
    assert without - fused == NO_TILES, (
        f"{sorted(without - fused - NO_TILES)}: add the shape of each product to advisor/predict/products.py, or to "
        "NO_TILES here if it is no product of tiles"
    )


def test_what_is_no_product_has_none() -> None:
    assert products("aten.relu", tensor(4), output=tensor(4)) == ()
    assert products("aten.linalg_cholesky_ex", tensor(4, 4), output=tensor(4, 4)) == ()


@pytest.mark.parametrize(
    ("inputs", "outputs", "ratios"),
    [(24, 56, (32 / 24, 64 / 56)), (16, 24, (1, 32 / 24)), (64, 112, (1, 1)), (120, 120, (1, 1))],
)
def test_narrow_groups_of_images_are_padded_to_a_power_of_two(
    inputs: int, outputs: int, ratios: tuple[float, float]
) -> None:
    image, result, weight = tensor(2, 4 * inputs, 8, 8), tensor(2, 4 * outputs, 8, 8), tensor(4 * outputs, inputs, 3, 3)
    found = convolution(image, weight, result)
    assert (found.padded_inputs_ratio, found.padded_outputs_ratio) == pytest.approx(ratios)


@pytest.mark.parametrize(
    ("inputs", "outputs", "dtype", "ratios"),
    [
        (3, 32, "float16", (1, 1)),
        (30, 8, "float16", (32 / 30, 1)),
        (64, 12, "float16", (1, 16 / 12)),
        (64, 12, "float32", (1, 1)),  # 4 elements of TF32
        (30, 8, "float32", (32 / 30, 1)),
    ],
)
def test_images_are_padded_to_channels_of_sixteen_bytes(
    inputs: int, outputs: int, dtype: str, ratios: tuple[float, float]
) -> None:
    def images(channels: int) -> Tensor:
        return tensor(2, channels, 8, 8, dtype=dtype)

    found = convolution(images(inputs), tensor(outputs, inputs, 1, 1, dtype=dtype), images(outputs))
    assert (found.padded_inputs_ratio, found.padded_outputs_ratio) == pytest.approx(ratios)
    weight = tensor(inputs, outputs, 1, 1, dtype=dtype)
    found = convolution(images(inputs), weight, images(outputs), transposed=True)
    assert (found.padded_inputs_ratio, found.padded_outputs_ratio) == pytest.approx(ratios)
    depthwise = convolution(images(30), tensor(30, 1, 3, 3, dtype=dtype), images(30))
    assert (depthwise.padded_inputs_ratio, depthwise.padded_outputs_ratio) == (1, 1)
