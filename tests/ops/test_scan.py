from calls import cost, cost_of, indices, tensor


def test_a_scan_is_one_flop_per_element():
    assert cost_of("aten.cumsum", [tensor(3, 4)], [tensor(3, 4)]) == cost(flops=12, read_bytes=48, write_bytes=48)
    assert cost_of("aten.cummax", [tensor(3, 4)], [tensor(3, 4), indices(3, 4)]).flops == 12


def test_a_scan_of_exponentials_is_four():
    assert cost_of("aten.logcumsumexp", [tensor(3, 4)], [tensor(3, 4)]).flops == 48
