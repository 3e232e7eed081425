from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from advisor.ops.registry import Call, Tensor
from advisor.predict.products import AS_IT_IS, Product, products_of


def tensor(*shape: Any) -> Tensor:
    return Tensor(shape=shape, dtype="float32")


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
    return product.nchw.direct_ratio, product.nhwc.direct_ratio


def convolution(
    source: Tensor, weight: Tensor, result: Tensor, *, transposed: bool = False, dilation: int = 1
) -> Product:
    attributes = {"transposed": transposed, "dilation": (dilation, dilation)}
    (found,) = products("aten.convolution", source, weight, output=result, attributes=attributes)
    return found


def gradients(
    grad_output: Tensor, source: Tensor, weight: Tensor, *, output_mask: tuple[bool, bool, bool] = (True, True, False)
) -> tuple[Product, ...]:
    attributes = {"transposed": False, "output_mask": output_mask}
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


def test_a_transposed_convolution_runs_from_the_larger_image_to_the_smaller() -> None:
    # 16 channels of 4 x 4 to 3 of 8 x 8, weight (in, out, 3, 3): 2 x 4 x 4 pixels, to 16 channels of 3 x 9 terms.
    found = convolution(tensor(2, 16, 4, 4), tensor(16, 3, 3, 3), tensor(2, 3, 8, 8), transposed=True)
    assert sizes(found) == (1, 32, 16, 27)


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
        assert found.nchw.padded_ratio == pytest.approx(in_nchw)
        assert found.nhwc.padded_ratio == pytest.approx(channels_last)
    whole = convolution(tensor(2, inputs, 8, 8), tensor(outputs, inputs, 3, 3), tensor(2, outputs, 8, 8))
    assert whole.nchw == whole.nhwc == AS_IT_IS


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


def test_a_recurrent_layer_multiplies_all_inputs_at_once_and_its_states_step_by_step() -> None:
    attributes = {"mode": "lstm", "input_size": 16, "hidden_size": 32, "batch_first": False}
    of_inputs, of_states = products_of(
        Call(op="rnn", inputs=(tensor(5, 3, 16),), outputs=(tensor(5, 3, 32),), attributes=attributes)
    )
    assert (of_inputs.m, of_inputs.n, of_inputs.k) == (5 * 3, 4 * 32, 16)  # a column for every gate's features
    assert (of_states.m, of_states.n, of_states.k) == (3, 4 * 32, 32)


def test_a_projected_state_is_what_the_next_step_multiplies() -> None:
    attributes = {"mode": "lstm", "input_size": 16, "hidden_size": 32, "proj_size": 8, "batch_first": True}
    _, of_states = products_of(
        Call(op="rnn", inputs=(tensor(3, 5, 16),), outputs=(tensor(3, 5, 8),), attributes=attributes)
    )
    assert (of_states.m, of_states.k) == (3, 8)


def test_what_is_no_product_has_none() -> None:
    assert products("aten.relu", tensor(4), output=tensor(4)) == ()
    assert products("aten.linalg_cholesky_ex", tensor(4, 4), output=tensor(4, 4)) == ()
