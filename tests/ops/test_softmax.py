from calls import cost, cost_of, tensor

SCORES = tensor(3, 4)


def test_softmax_is_five_flop_per_element():
    # 5 * 12; 48 bytes in and out.
    assert cost_of("aten._softmax", [SCORES], [SCORES]) == cost(flops=60, read_bytes=48, write_bytes=48)
    assert cost_of("aten._log_softmax", [SCORES], [SCORES]).flops == 60


def test_its_gradient_is_four_and_reads_the_result():
    assert cost_of("aten._softmax_backward_data", [SCORES, SCORES], [SCORES]) == cost(
        flops=48, read_bytes=96, write_bytes=48
    )
