from calls import cost, cost_of, tensor


def test_a_matrix_product_is_two_flop_per_multiply_add():
    # (2, 3) x (3, 4): 2 * 2 * 3 * 4 = 48. Read (6 + 12) * 4 = 72, write 8 * 4 = 32.
    assert cost_of("aten.mm", [tensor(2, 3), tensor(3, 4)], [tensor(2, 4)]) == cost(
        flops=48, read_bytes=72, write_bytes=32
    )


def test_an_einsum_runs_as_a_batched_product():
    # "bij,bjk->bik" with b=5, i=2, j=3, k=4: 5 * 48 = 240. Read 5 * 72, write 5 * 32.
    assert cost_of("aten.bmm", [tensor(5, 2, 3), tensor(5, 3, 4)], [tensor(5, 2, 4)]) == cost(
        flops=240, read_bytes=360, write_bytes=160
    )


def test_a_linear_layer_reads_its_bias_but_adds_it_for_free():
    # As torch counts: 2 * 2 * 3 * 4 = 48. Read (4 + 6 + 12) * 4 = 88, write 32.
    assert cost_of("aten.addmm", [tensor(4), tensor(2, 3), tensor(3, 4)], [tensor(2, 4)]) == cost(
        flops=48, read_bytes=88, write_bytes=32
    )


def test_a_linear_layer_keeps_its_leading_dimensions():
    # (5, 2, 3) with weight (4, 3): 40 outputs of 3 multiply-adds, 240. Read (30 + 12 + 4) * 4 = 184, write 160.
    assert cost_of("aten.linear", [tensor(5, 2, 3), tensor(4, 3), tensor(4)], [tensor(5, 2, 4)]) == cost(
        flops=240, read_bytes=184, write_bytes=160
    )


def test_a_sum_over_a_batch_of_products_is_counted_for_every_sample():
    # addbmm: 5 products of (2, 3) x (3, 4): 240, into one (2, 4). Read (8 + 30 + 60) * 4 = 392.
    inputs = [tensor(2, 4), tensor(5, 2, 3), tensor(5, 3, 4)]
    assert cost_of("aten.addbmm", inputs, [tensor(2, 4)]) == cost(flops=240, read_bytes=392, write_bytes=32)


def test_vector_products_are_two_flop_per_element_of_the_matrix():
    # mv (2, 3) x (3): 12. dot of 3: 6. addmv the same as mv. addr (2) x (3): a product and a sum for 6 elements, 12.
    assert cost_of("aten.mv", [tensor(2, 3), tensor(3)], [tensor(2)]).flops == 12
    assert cost_of("aten.dot", [tensor(3), tensor(3)], [tensor()]).flops == 6
    assert cost_of("aten.addmv", [tensor(2), tensor(2, 3), tensor(3)], [tensor(2)]).flops == 12
    assert cost_of("aten.addr", [tensor(2, 3), tensor(2), tensor(3)], [tensor(2, 3)]).flops == 12


def test_half_precision_moves_half_the_bytes():
    a, b, out = (tensor(*shape, dtype="bfloat16") for shape in ((2, 3), (3, 4), (2, 4)))
    assert cost_of("aten.mm", [a, b], [out]) == cost(flops=48, read_bytes=36, write_bytes=16)


def test_a_routed_product_counts_each_token_once():
    # 10 tokens of 3 features, split among 2 experts with weights (3, 4): 2 * 10 * 3 * 4 = 240, whatever the split.
    tokens, experts = tensor(10, 3), tensor(2, 3, 4)
    assert cost_of("aten._grouped_mm", [tokens, experts, tensor(2, dtype="int32")], [tensor(10, 4)]).flops == 240


def test_the_gradient_of_a_routed_product_splits_the_tokens_too():
    # Weights' gradient: (3, 10) x (10, 4), each token in one group: 240 and not 2 * 240.
    offsets = tensor(2, dtype="int32")
    assert cost_of("aten._grouped_mm", [tensor(3, 10), tensor(10, 4), offsets], [tensor(2, 3, 4)]).flops == 240
    # (2, 4, 3) x (3, 10): each of the 10 columns is multiplied by one of the two matrices, 2 * 4 * 3 * 10.
    assert cost_of("aten._grouped_mm", [tensor(2, 4, 3), tensor(3, 10), offsets], [tensor(4, 10)]).flops == 240


def test_a_bilinear_layer_is_a_product_with_the_weight_and_one_with_the_second_input():
    # 2 samples, W (5, 3, 4): x1 W is 5 * 3 * 4 multiply-adds, times x2 is 5 * 4: 2 * 2 * (60 + 20) = 320.
    inputs = [tensor(2, 3), tensor(2, 4), tensor(5, 3, 4)]
    assert cost_of("aten.bilinear", inputs, [tensor(2, 5)]).flops == 320


def test_a_trilinear_product_spans_every_extent():
    # Bilinear of batch 2, in 3 and 4, out 5, as torch calls it: all of 2 * 5 * 3 * 4 = 120 points, 3 FLOP each.
    inputs = [tensor(2, 3), tensor(5, 3, 4), tensor(2, 4)]
    attributes = {"expand1": (1, 3), "expand2": (0,), "expand3": (1, 2), "sumdim": (2, 3)}
    assert cost_of("aten._trilinear", inputs, [tensor(2, 5)], **attributes).flops == 360


def test_a_linear_layers_backward_has_a_product_for_each_gradient_asked_for():
    # input (2, 3), weight (4, 3), grad (2, 4): 48 for the input, 48 for the weight, 8 additions for the bias.
    inputs = [tensor(2, 3), tensor(2, 4), tensor(4, 3)]
    outputs = [tensor(2, 3), tensor(4, 3), tensor(4)]
    assert cost_of("aten.linear_backward", inputs, outputs, output_mask=(True, True, True)).flops == 104
    assert cost_of("aten.linear_backward", inputs, outputs[1:2], output_mask=(False, True, False)).flops == 48


def test_euclidean_distances_are_a_product_with_two_more_features():
    # 5 x 6 pairs of 3 features: 2 * 30 * (3 + 2) = 300.
    assert cost_of("aten._euclidean_dist", [tensor(5, 3), tensor(6, 3)], [tensor(5, 6)]).flops == 300


def test_each_gradient_of_a_product_costs_as_much_as_the_product():
    # (2, 3) x (3, 4) takes 48 FLOP; read (8 + 6 + 12) * 4 = 104, write (6 + 12) * 4 = 72.
    inputs, outputs = [tensor(2, 4), tensor(2, 3), tensor(3, 4)], [tensor(2, 3), tensor(3, 4)]
    both = cost_of("aten.matmul_backward", inputs, outputs, mask=(True, True))
    assert both == cost(flops=96, read_bytes=104, write_bytes=72)
    assert cost_of("aten.matmul_backward", inputs, outputs[:1], mask=(True, False)).flops == 48


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
