import pytest
from calls import cost, cost_of, tensor

ALL_GRADIENTS = (True, True, True)


@pytest.mark.parametrize(
    ("source", "weight", "result", "flops"),
    [
        # 1d: 2 samples, 8 channels x 9 positions, each 4 * 3 multiply-adds: 2 * 144 * 12 = 3456.
        ((2, 4, 11), (8, 4, 3), (2, 8, 9), 3456),
        # 2d: 16 * 6 * 6 outputs, each 3 * 3 * 3 = 27 multiply-adds: 2 * 576 * 27 = 31104.
        ((1, 3, 8, 8), (16, 3, 3, 3), (1, 16, 6, 6), 31104),
        # 3d: 4 * 2 * 2 * 2 = 32 outputs, each 2 * 27 = 54: 2 * 32 * 54 = 3456.
        ((1, 2, 4, 4, 4), (4, 2, 3, 3, 3), (1, 4, 2, 2, 2), 3456),
        # Two groups: weight (8, 4 / 2, 3), half of the 1d case: 1728.
        ((2, 4, 11), (8, 2, 3), (2, 8, 9), 1728),
        # Depthwise: weight (3, 1, 3, 3), 3 * 6 * 6 outputs of 9 multiply-adds: 1944.
        ((1, 3, 8, 8), (3, 1, 3, 3), (1, 3, 6, 6), 1944),
    ],
)
def test_a_convolution_is_two_flop_per_tap_and_output(source, weight, result, flops):
    inputs = [tensor(*source), tensor(*weight)]
    assert cost_of("aten.convolution", inputs, [tensor(*result)], transposed=False).flops == flops


def test_a_strided_convolution_reads_its_input_once():
    # Input 1 * 3 * 8 * 8 = 192, weight 16 * 27 = 432, bias 16: 640 * 4 = 2560. Output 16 * 3 * 3 = 144: 576.
    # 2 * 144 * 27 = 7776 FLOP; the bias rides on the accumulator.
    inputs = [tensor(1, 3, 8, 8), tensor(16, 3, 3, 3), tensor(16)]
    assert cost_of("aten.convolution", inputs, [tensor(1, 16, 3, 3)], transposed=False) == cost(
        flops=7776, read_bytes=2560, write_bytes=576
    )


def test_a_transposed_convolution_scatters_every_input():
    # Input (1, 4, 5, 5), weight (4, 6, 2, 2): 100 inputs, each to 6 * 4 places: 2 * 100 * 24 = 4800.
    inputs = [tensor(1, 4, 5, 5), tensor(4, 6, 2, 2)]
    assert cost_of("aten.convolution", inputs, [tensor(1, 6, 10, 10)], transposed=True).flops == 4800
    assert cost_of("aten.conv_transpose2d", [*inputs, tensor(6)], [tensor(1, 6, 10, 10)]).flops == 4800


def test_a_grouped_transposed_convolution_scatters_within_its_group():
    # Two groups: weight (4, 6 / 2, 2, 2), half of the above.
    inputs = [tensor(1, 4, 5, 5), tensor(4, 3, 2, 2)]
    assert cost_of("aten.convolution", inputs, [tensor(1, 6, 10, 10)], transposed=True).flops == 2400


def test_backward_is_a_convolution_for_each_of_the_two_gradients():
    # The 2d case above: 2 * 31104 = 62208, and an addition into the bias's gradient per grad_output: 576.
    # Read grad 576, input 192, weight 432: 1200 * 4. Write 192 + 432 + 16 = 640: 2560.
    inputs = [tensor(1, 16, 6, 6), tensor(1, 3, 8, 8), tensor(16, 3, 3, 3)]
    outputs = [tensor(1, 3, 8, 8), tensor(16, 3, 3, 3), tensor(16)]
    assert cost_of("aten.convolution_backward", inputs, outputs, transposed=False, output_mask=ALL_GRADIENTS) == cost(
        flops=62784, read_bytes=4800, write_bytes=2560
    )


def test_backward_of_the_first_layer_does_not_read_the_weight():
    # No gradient of the input is asked for: one convolution, and grad 576 + input 192 are read.
    inputs = [tensor(1, 16, 6, 6), tensor(1, 3, 8, 8), tensor(16, 3, 3, 3)]
    assert cost_of(
        "aten.convolution_backward",
        inputs,
        [tensor(16, 3, 3, 3)],
        transposed=False,
        output_mask=(False, True, False),
    ) == cost(flops=31104, read_bytes=3072, write_bytes=1728)


def test_backward_of_a_transposed_convolution_is_counted_from_its_input():
    # The transposed case above: 4800 for each gradient.
    inputs = [tensor(1, 6, 10, 10), tensor(1, 4, 5, 5), tensor(4, 6, 2, 2)]
    outputs = [tensor(1, 4, 5, 5), tensor(4, 6, 2, 2)]
    assert (
        cost_of("aten.convolution_backward", inputs, outputs, transposed=True, output_mask=(True, True, False)).flops
        == 9600
    )


def test_a_convolution_over_time_first_sequences_has_its_weight_kernel_first():
    # Input (11, 2, 4), weight (3, 4, 8), output (9, 2, 8): 144 outputs of 12 multiply-adds: 3456. Backward twice that,
    # and 144 additions for the bias.
    inputs = [tensor(11, 2, 4), tensor(3, 4, 8), tensor(8)]
    assert cost_of("aten.conv_tbc", inputs, [tensor(9, 2, 8)]).flops == 3456
    outputs = [tensor(11, 2, 4), tensor(3, 4, 8), tensor(8)]
    assert cost_of("aten.conv_tbc_backward", [tensor(9, 2, 8), *inputs], outputs).flops == 7056


def test_a_deformable_convolution_interpolates_its_taps():
    # 36 positions x 3 channels x 9 taps of 4 multiply-adds: 8 * 36 * 27 = 7776, then the convolution's 31104.
    inputs = [tensor(1, 3, 8, 8), tensor(16, 3, 3, 3), tensor(1, 18, 6, 6)]
    assert cost_of("torchvision.deform_conv2d", inputs, [tensor(1, 16, 6, 6)]).flops == 38880
