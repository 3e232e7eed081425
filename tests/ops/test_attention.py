import numpy as np
import pytest
from calls import cost, cost_of, tensor

from advisor.ops.attention import pair_count

SOURCE = tensor(2, 3, 5, 8)  # 2 samples, 3 heads, 5 positions, width 8: 240 elements


def test_attention_is_the_two_products():
    # 2 * 3 heads x 5 * 5 pairs x (8 + 8): 2 * 6 * 25 * 16 = 4800. Read 3 * 240 * 4, write 240 * 4: no scores.
    assert cost_of("attention", [SOURCE, SOURCE, SOURCE], [SOURCE], causal=False, dropout_ratio=0.1) == cost(
        flops=4800, read_bytes=2880, write_bytes=960
    )


def test_a_mask_is_read_and_spares_no_work():
    # The mask (5, 5) of bytes adds 25.
    mask = tensor(5, 5, dtype="bool")
    assert cost_of("attention", [SOURCE, SOURCE, SOURCE, mask], [SOURCE], causal=False) == cost(
        flops=4800, read_bytes=2905, write_bytes=960
    )


def test_a_mask_of_blocks_spares_those_that_it_leaves_out():
    # 3 of 4 blocks: 0.75 * 4800, and of 2.5 times as many in backward.
    assert cost_of("attention", [SOURCE] * 3, [SOURCE], causal=False, block_ratio=0.75).flops == 3600
    assert cost_of("attention_backward", [SOURCE] * 4, [SOURCE] * 3, causal=False, block_ratio=0.75).flops == 9000


def test_causal_attention_does_the_lower_triangle():
    # 5 * 6 / 2 = 15 of 25 pairs: 2 * 6 * 15 * 16 = 2880.
    assert cost_of("attention", [SOURCE, SOURCE, SOURCE], [SOURCE], causal=True).flops == 2880


@pytest.mark.parametrize(
    ("q_len", "kv_len", "pairs"),
    [
        (3, 3, 6),  # 1 + 2 + 3
        (2, 5, 3),  # 1 + 2: is_causal aligns the mask at the top left
        (5, 2, 9),  # 1 + 2 + 2 + 2 + 2
        (1, 7, 1),
    ],
)
def test_a_causal_query_sees_the_keys_up_to_its_own_position(q_len, kv_len, pairs):
    assert pair_count(q_len=q_len, kv_len=kv_len, causal=True) == pairs


def test_grouped_query_attention_saves_bytes_and_no_flop():
    # 3 query heads share one key head: FLOP as above; read (240 + 80 + 80) * 4 = 1600.
    shared = tensor(2, 1, 5, 8)
    assert cost_of("attention", [SOURCE, shared, shared], [SOURCE], causal=False) == cost(
        flops=4800, read_bytes=1600, write_bytes=960
    )


def test_values_may_be_of_another_width_and_keys_of_another_length():
    # 6 heads x 5 * 7 pairs x (8 + 4): 2 * 6 * 35 * 12 = 5040.
    key, value, result = tensor(2, 3, 7, 8), tensor(2, 3, 7, 4), tensor(2, 3, 5, 4)
    assert cost_of("attention", [SOURCE, key, value], [result], causal=False).flops == 5040


def test_a_query_that_is_broadcast_over_samples_is_counted_for_each():
    # One query for 2 samples: the result has 2 samples, so 4800; it is read once.
    query = tensor(1, 3, 5, 8)
    assert cost_of("attention", [query, SOURCE, SOURCE], [SOURCE], causal=False) == cost(
        flops=4800, read_bytes=(120 + 480) * 4, write_bytes=960
    )


def test_backward_is_five_products():
    # 2.5 x 4800 = 12000. Read grad, q, k, v, out (5 * 240) and logsumexp (30): 1230 * 4. Write 3 * 960.
    inputs = [SOURCE, SOURCE, SOURCE, SOURCE, SOURCE, tensor(2, 3, 5)]
    assert cost_of("attention_backward", inputs, [SOURCE] * 3, causal=False, dropout_ratio=0.0) == cost(
        flops=12000, read_bytes=4920, write_bytes=2880
    )


def test_torchs_own_fused_operators_are_the_same():
    op = "aten._scaled_dot_product_flash_attention_for_cpu"
    assert cost_of(op, [SOURCE] * 3, [SOURCE, tensor(2, 3, 5)], is_causal=True).flops == 2880
    assert cost_of(op, [SOURCE] * 3, [SOURCE, tensor(2, 3, 5)]).flops == 4800
    backward = [SOURCE] * 5 + [tensor(2, 3, 5)]
    assert cost_of(f"{op}_backward", backward, [SOURCE] * 3, is_causal=True).flops == 7200


def test_the_length_comes_before_the_heads_in_flash_attentions_own_layout():
    # (2, 5, 3, 8) is the same attention.
    source = tensor(2, 5, 3, 8)
    assert cost_of("aten._flash_attention_forward", [source] * 3, [source], is_causal=False).flops == 4800
    assert cost_of("aten._flash_attention_backward", [source] * 6, [source] * 3, is_causal=False).flops == 12000


def test_lengths_may_be_arrays_over_the_batch():
    length = np.array([5.0, 1.0])
    source = tensor(2.0, 3.0, length, 8.0)
    # 2 * 6 * (15 and 1 pairs) * 16.
    found = cost_of("attention", [source] * 3, [source], causal=True)
    assert found.flops.tolist() == [2880, 192]


def _encoder_weights(width, hidden):
    return [
        *(tensor(3 * width, width), tensor(3 * width)),
        *(tensor(width, width), tensor(width)),
        *(tensor(width) for _ in range(4)),
        *(tensor(hidden, width), tensor(hidden)),
        *(tensor(width, hidden), tensor(width)),
    ]


def test_an_encoder_layer_is_its_four_weights_and_its_attention():
    # 2 x 5 tokens of width 8, hidden 16. Weights 192 + 64 + 128 + 128 = 512: 2 * 10 * 512 = 10240.
    # Attention 4 * 10 * 5 * 8 = 1600. Together 11840.
    # Between the kernels (7 * 8 + 16) * 10 = 720 elements, 2880 bytes each way.
    # Read: source 80, weights 512, biases 24 + 8 + 16 + 8 = 56, norms 32: 680 * 4 = 2720. Write 80 * 4 = 320.
    source = tensor(2, 5, 8)
    assert cost_of("encoder_layer", [source, *_encoder_weights(8, 16)], [source]) == cost(
        flops=11840, read_bytes=2720 + 2880, write_bytes=320 + 2880
    )


def test_fused_multi_head_attention_is_its_projections_and_its_attention():
    # 10 tokens of width 8: four projections 2 * 40 * 64 = 5120; attention 4 * 10 * 5 * 8 = 1600.
    # Between the kernels 40 * 8 elements, 1280 bytes. Read 3 * 80 + 192 + 24 + 64 + 8 = 528: 2112. Write 320.
    source = tensor(2, 5, 8)
    inputs = [source] * 3 + [tensor(24, 8), tensor(24), tensor(8, 8), tensor(8)]
    assert cost_of("native_multi_head_attention", inputs, [source]) == cost(
        flops=6720, read_bytes=2112 + 1280, write_bytes=320 + 1280
    )
