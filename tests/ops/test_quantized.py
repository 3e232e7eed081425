from calls import cost, cost_of, tensor


def test_a_dynamically_quantised_linear_layer_reads_a_byte_per_weight():
    # (2, 3) to (2, 4): 48 FLOP. Read 24 of input, 12 of weight, 16 of bias; write 32.
    for op in ("quantized.linear_dynamic", "quantized.linear_relu_dynamic"):
        assert cost_of(op, [tensor(2, 3)], [tensor(2, 4)]) == cost(flops=48, read_bytes=52, write_bytes=32)


def test_one_packed_in_half_reads_two():
    assert cost_of("quantized.linear_dynamic_fp16", [tensor(2, 3)], [tensor(2, 4)]).read_bytes == 64


def test_a_product_with_packed_weights_is_counted_from_its_result():
    # Packed int4: 12 weights in 6 bytes.
    inputs = [tensor(2, 3), tensor(6, dtype="uint8"), tensor(4)]
    assert cost_of("aten._weight_int4pack_mm", inputs, [tensor(2, 4)]) == cost(flops=48, read_bytes=46, write_bytes=32)
