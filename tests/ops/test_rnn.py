from typing import Any

from calls import cost, cost_of, tensor

LSTM: dict[str, Any] = {
    "mode": "lstm",
    "input_size": 3,
    "hidden_size": 4,
    "proj_size": 0,
    "num_layers": 1,
    "bidirectional": False,
    "batch_first": False,
}
# 5 steps of 2 samples: 10 tokens.
SOURCE, OUTPUT, STATE = tensor(5, 2, 3), tensor(5, 2, 4), tensor(1, 2, 4)
WEIGHTS = [tensor(16, 3), tensor(16, 4), tensor(16), tensor(16)]


def test_an_lstm_is_its_gates_products_at_every_step():
    # 4 gates x 4 x (3 + 4) = 112 multiply-adds per token: 2 * 10 * 112 = 2240.
    # Read 30 + 8 + 8 + 48 + 64 + 32 = 190: 760. Write 40 + 8 + 8 = 56: 224.
    assert cost_of("rnn", [SOURCE, STATE, STATE, *WEIGHTS], [OUTPUT, STATE, STATE], **LSTM) == cost(
        flops=2240, read_bytes=760, write_bytes=224
    )


def test_batch_first_is_the_same_work():
    source, output = tensor(2, 5, 3), tensor(2, 5, 4)
    attributes = LSTM | {"batch_first": True}
    assert cost_of("rnn", [source, STATE, STATE, *WEIGHTS], [output, STATE, STATE], **attributes).flops == 2240


def test_a_gru_has_three_gates_and_a_plain_rnn_one():
    # 3 * 4 * 7 = 84 and 4 * 7 = 28 multiply-adds per token.
    assert cost_of("rnn", [SOURCE], [OUTPUT], **LSTM | {"mode": "gru"}).flops == 1680
    assert cost_of("rnn", [SOURCE], [OUTPUT], **LSTM | {"mode": "rnn_tanh"}).flops == 560


def test_later_layers_read_both_directions_of_the_one_before():
    # Two layers, two directions: 16 * (3 + 4) + 16 * (8 + 4) = 304 per direction and token: 2 * 10 * 2 * 304 = 12160.
    # The first layer's output (5, 2, 8) goes out and in again: 80 * 4 = 320 bytes.
    output = tensor(5, 2, 8)
    attributes = LSTM | {"num_layers": 2, "bidirectional": True}
    assert cost_of("rnn", [SOURCE], [output], **attributes) == cost(
        flops=12160, read_bytes=120 + 320, write_bytes=320 + 320
    )


def test_a_projection_shrinks_what_recurs():
    # proj 2: 16 * (3 + 2) + 4 * 2 = 88 multiply-adds per token.
    assert cost_of("rnn", [SOURCE], [tensor(5, 2, 2)], **LSTM | {"proj_size": 2}).flops == 1760


def test_packed_sequences_count_their_own_tokens():
    # 7 tokens instead of 10: 2 * 7 * 112.
    assert cost_of("rnn", [tensor(7, 3)], [tensor(7, 4)], **LSTM).flops == 1568


def test_backward_is_twice_the_forward():
    # Inputs: the output's gradient first.
    inputs = [OUTPUT, SOURCE, STATE, STATE, *WEIGHTS]
    assert cost_of("rnn_backward", inputs, [SOURCE, *WEIGHTS], **LSTM).flops == 4480


def test_the_cpus_single_layer_is_counted_from_its_weights():
    # 10 tokens x (48 + 64) weights: 2240, backward 4480.
    assert cost_of("aten.mkldnn_rnn_layer", [SOURCE, *WEIGHTS], [OUTPUT]).flops == 2240
    assert cost_of("aten.mkldnn_rnn_layer_backward", [SOURCE, *WEIGHTS], [SOURCE]).flops == 4480


def test_a_quantised_lstm_reads_a_byte_per_weight():
    # 112 weights: FLOP as in float. Read 30 * 4 + 8 * 4 + 8 * 4 + 112 = 296. Write 56 * 4 = 224.
    inputs, outputs = [SOURCE, STATE, STATE], [OUTPUT, STATE, STATE]
    assert cost_of("aten.quantized_lstm", inputs, outputs, num_layers=1, bidirectional=False) == cost(
        flops=2240, read_bytes=296, write_bytes=224
    )
