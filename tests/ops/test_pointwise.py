import pytest
from calls import cost, cost_of, tensor

from advisor.ops.registry import formula_of

SOURCE = tensor(3, 4)


@pytest.mark.parametrize("op", ["aten.add", "aten.tanh", "aten.gelu", "aten.where", "aten.pow", "aten.gelu_backward"])
def test_every_function_is_one_flop_per_output_element(op):
    assert cost_of(op, [SOURCE, SOURCE], [SOURCE]) == cost(flops=12, read_bytes=96, write_bytes=48)


def test_a_broadcast_operand_is_read_once():
    # A row of 4 added to 12 elements.
    assert cost_of("aten.add", [SOURCE, tensor(4)], [SOURCE]) == cost(flops=12, read_bytes=64, write_bytes=48)


def test_in_place_writes_what_it_read():
    assert formula_of("aten.add_") is formula_of("aten.add")
    assert cost_of("aten.add_", [SOURCE, SOURCE], [SOURCE]) == cost(flops=12, read_bytes=96, write_bytes=48)


def test_a_list_of_tensors_is_one_call_over_all_of_them():
    # 12 + 5 elements.
    tensors = [SOURCE, tensor(5)]
    expected = cost(flops=17, read_bytes=68, write_bytes=68)
    assert cost_of("aten._foreach_mul", tensors, tensors) == expected
    assert cost_of("aten._foreach_mul_", tensors, tensors) == expected


def test_comparisons_write_bytes():
    assert cost_of("aten.lt", [SOURCE], [tensor(3, 4, dtype="bool")]).write_bytes == 12


def test_operators_that_autocast_to_single_precision_say_so():
    # torch.amp, "CUDA Ops that can autocast to float32": exp and pow are in the list, tanh is not.
    policies = {op: formula_of(f"aten.{op}").autocast for op in ("exp", "pow", "tanh", "prelu")}
    assert policies == {"exp": "full on GPUs", "pow": "full on GPUs", "tanh": "widest", "prelu": "low"}


def test_unscaling_gradients_checks_and_multiplies_each():
    # 12 + 5 gradients, 2 FLOP each, read and written; the two scalars behind them are not gradients.
    gradients = [SOURCE, tensor(5)]
    inputs = [*gradients, tensor(), tensor()]
    assert cost_of("aten._amp_foreach_non_finite_check_and_unscale_", inputs, gradients) == cost(
        flops=34, read_bytes=68, write_bytes=68
    )
    scalars = [tensor(), tensor(dtype="int32"), tensor()]
    assert cost_of("aten._amp_update_scale_", scalars, scalars[:1]).flops == 1


def test_a_fused_cell_adds_its_gates_and_keeps_them():
    # Gates (2, 16) come in twice, the cell (2, 4); out: hidden, cell and the kept gates: 32 + 8 + 8 + 32 FLOP.
    gates, cell = tensor(2, 16), tensor(2, 4)
    assert cost_of("aten._thnn_fused_lstm_cell", [gates, gates, cell], [cell, cell, gates]).flops == 80
