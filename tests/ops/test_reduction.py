from calls import cost, cost_of, indices, tensor

SOURCE = tensor(3, 4)


def test_a_sum_is_one_flop_per_input_element():
    assert cost_of("aten.sum", [SOURCE], [tensor(3)]) == cost(flops=12, read_bytes=48, write_bytes=12)
    assert cost_of("aten.mean", [SOURCE], [tensor()]).flops == 12
    assert cost_of("aten.max", [SOURCE], [tensor(3), indices(3)]).flops == 12


def test_a_variance_is_four_a_norm_two_and_a_sum_of_exponentials_four():
    assert cost_of("aten.var_mean", [SOURCE], [tensor(3), tensor(3)]).flops == 48
    assert cost_of("aten.linalg_vector_norm", [SOURCE], [tensor()]).flops == 24
    assert cost_of("aten.logsumexp", [SOURCE], [tensor(3)]).flops == 48


def test_the_norms_of_many_tensors_count_them_all():
    # Gradient clipping: 2 * (12 + 5).
    assert cost_of("aten._foreach_norm", [SOURCE, tensor(5)], [tensor(), tensor()]).flops == 34
    assert cost_of("aten._foreach_max", [SOURCE, tensor(5)], [tensor(), tensor()]).flops == 17


def test_distances_are_three_flop_per_pair_and_feature():
    # 5 x 6 pairs of 4 features: 360, as many for the gradient of one side.
    pairs = tensor(5, 6)
    assert cost_of("aten._cdist_forward", [tensor(5, 4), tensor(6, 4)], [pairs]).flops == 360
    inputs = [pairs, tensor(5, 4), tensor(6, 4), pairs]
    assert cost_of("aten._cdist_backward", inputs, [tensor(5, 4)]).flops == 360


def test_distances_among_one_set_count_each_pair_once():
    # 5 rows: 10 pairs of 4 features.
    assert cost_of("aten._pdist_forward", [tensor(5, 4)], [tensor(10)]).flops == 120
    assert cost_of("aten._pdist_backward", [tensor(10), tensor(5, 4), tensor(10)], [tensor(5, 4)]).flops == 120


def test_whether_a_mask_is_left_aligned_looks_at_the_mask_alone():
    # 3 rows of 4 booleans, one byte each; the padded tensor is not read.
    mask = tensor(3, 4, dtype="bool")
    padded = tensor(3, 4, 64)
    expected = cost(flops=12, read_bytes=12, write_bytes=0)
    assert cost_of("aten._nested_tensor_from_mask_left_aligned", [padded, mask], []) == expected


SCORES = tensor(3, 4)


def test_softmax_is_five_flop_per_element():
    # 5 * 12; 48 bytes in and out.
    assert cost_of("aten._softmax", [SCORES], [SCORES]) == cost(flops=60, read_bytes=48, write_bytes=48)
    assert cost_of("aten._log_softmax", [SCORES], [SCORES]).flops == 60


def test_its_gradient_is_four_and_reads_the_result():
    assert cost_of("aten._softmax_backward_data", [SCORES, SCORES], [SCORES]) == cost(
        flops=48, read_bytes=96, write_bytes=48
    )


def test_a_scan_is_one_flop_per_element():
    assert cost_of("aten.cumsum", [tensor(3, 4)], [tensor(3, 4)]) == cost(flops=12, read_bytes=48, write_bytes=48)
    assert cost_of("aten.cummax", [tensor(3, 4)], [tensor(3, 4), indices(3, 4)]).flops == 12


def test_a_scan_of_exponentials_is_four():
    assert cost_of("aten.logcumsumexp", [tensor(3, 4)], [tensor(3, 4)]).flops == 48


def test_sums_of_segments_are_one_flop_per_element_and_so_is_their_gradient():
    lengths = indices(3)
    assert cost_of("aten.segment_reduce", [tensor(12), lengths], [tensor(3)]).flops == 12
    inputs = [tensor(3), tensor(3), tensor(12), lengths]
    assert cost_of("aten._segment_reduce_backward", inputs, [tensor(12)]).flops == 12
