from calls import cost, cost_of, tensor


def test_a_step_is_its_elements_times_what_each_needs():
    # 1000 parameters of Adam: 16 FLOP, parameter, gradient and two moments read (16), three written (12).
    attributes = {
        "name": "Adam",
        "element_count": 1000,
        "tensor_count": 4,
        "flops_per_element": 16.0,
        "read_bytes_per_element": 16.0,
        "write_bytes_per_element": 12.0,
    }
    assert cost_of("optimizer", [], [], **attributes) == cost(flops=16000, read_bytes=16000, write_bytes=12000)


def test_torchs_fused_steps_are_counted_from_their_lists():
    # Two parameters of 6 and 4 elements. Adam: 16 * 10; read four lists, write all but the gradients.
    parameters = [tensor(6), tensor(4)]
    assert cost_of("aten._fused_adamw_", parameters * 4, parameters * 3) == cost(
        flops=160, read_bytes=160, write_bytes=120
    )
    # SGD with momentum: decay, momentum and update, 6 * 10. Adagrad: 9 * 10.
    assert cost_of("aten._fused_sgd_", parameters * 3, parameters * 2).flops == 60
    assert cost_of("aten._fused_adagrad_", parameters * 3, parameters * 2).flops == 90
