import pytest
from calls import cost, cost_of, tensor

SOURCE = tensor(2, 4, 3)  # 24 elements
CHANNELS = tensor(4)


def test_batch_norm_in_training_takes_statistics():
    # 5 * 24. Read 24 + 4 * 4 = 40: 160 bytes; write 24 and the saved mean and deviation 8: 128.
    outputs = [SOURCE, CHANNELS, CHANNELS]
    assert cost_of("aten.native_batch_norm", [SOURCE, *[CHANNELS] * 4], outputs, training=True) == cost(
        flops=120, read_bytes=160, write_bytes=128
    )


def test_batch_norm_in_inference_scales_and_shifts():
    # 2 * 24.
    inputs = [SOURCE, *[CHANNELS] * 4]
    assert cost_of("aten.native_batch_norm", inputs, [SOURCE], training=False).flops == 48
    assert cost_of("aten._native_batch_norm_legit_no_training", inputs, [SOURCE]).flops == 48


@pytest.mark.parametrize("op", ["aten.native_layer_norm", "aten.native_group_norm", "aten._fused_rms_norm"])
def test_other_norms_always_take_statistics(op):
    assert cost_of(op, [SOURCE, CHANNELS, CHANNELS], [SOURCE]).flops == 120


def test_backward_is_twice_the_forward_even_for_an_expanded_gradient():
    # 2 * 5 * 24; the gradient of a mean is one element, seen as 24.
    expanded = tensor(1, 1, 1)
    inputs = [expanded, SOURCE, CHANNELS, CHANNELS]
    outputs = [SOURCE, CHANNELS, CHANNELS]
    assert cost_of("aten.native_layer_norm_backward", inputs, outputs).flops == 240
    assert cost_of("aten.native_batch_norm_backward", inputs, outputs, train=True).flops == 240
    assert cost_of("aten.native_batch_norm_backward", inputs, outputs, train=False).flops == 96


def test_weight_norm_squares_sums_and_scales():
    # 3 * 24, its backward twice that.
    assert cost_of("aten._weight_norm_interface", [SOURCE, tensor(2, 1, 1)], [SOURCE, tensor(2)]).flops == 72
    assert cost_of("aten._weight_norm_interface_backward", [SOURCE] * 2, [SOURCE]).flops == 144


def test_synchronised_batch_norm_goes_over_its_input_twice():
    # Each pass 2 * 24.
    assert cost_of("aten.batch_norm_stats", [SOURCE], [CHANNELS, CHANNELS]).flops == 48
    assert cost_of("aten.batch_norm_elemt", [SOURCE, *[CHANNELS] * 4], [SOURCE]).flops == 48
