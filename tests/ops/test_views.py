import pytest
from calls import cost, cost_of, tensor

NOTHING = cost(flops=0, read_bytes=0, write_bytes=0)


@pytest.mark.parametrize("op", ["view", "t", "expand", "slice", "detach", "_unsafe_view", "squeeze_"])
def test_a_view_costs_nothing(op):
    assert cost_of(f"aten.{op}", [tensor(3, 4)], [tensor(12)]) == NOTHING


def test_asking_for_a_tensors_device_costs_nothing():
    assert cost_of("prim.device", [tensor(3, 4)], []) == NOTHING
