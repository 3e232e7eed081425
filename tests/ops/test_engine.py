from calls import cost, cost_of, tensor


def test_a_norm_reads_and_writes_its_tokens_once():
    # 4 x 24 FLOP. Read 24 elements and 3 weights of 4 bytes: 108; write 24: 96.
    tokens = tensor(8, 3)
    assert cost_of("engine.norm", [tokens, tensor(3)], [tokens]) == cost(flops=96, read_bytes=108, write_bytes=96)


def test_queries_and_keys_are_rotated_in_one_pass():
    # 3 x (24 + 8) FLOP; 32 elements of 4 bytes in and out.
    queries, keys = tensor(8, 3), tensor(8, 1)
    assert cost_of("engine.rotary", [queries, keys], [queries, keys]) == cost(flops=96, read_bytes=128, write_bytes=128)


def test_a_gate_reads_both_halves_and_writes_one():
    # An activation and a product for each of 24 elements; 48 of 4 bytes in, 24 out.
    states = tensor(8, 3)
    assert cost_of("engine.gate", [states, states], [states]) == cost(flops=48, read_bytes=192, write_bytes=96)
