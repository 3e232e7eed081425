import pytest
from calls import cost, cost_of, tensor

SOURCE = tensor(3, 4)


@pytest.mark.parametrize("op", ["rand", "randn_like", "uniform_", "normal_"])
def test_drawing_writes_and_reads_nothing(op):
    assert cost_of(f"aten.{op}", [SOURCE], [SOURCE]) == cost(flops=12, read_bytes=0, write_bytes=48)


def test_dropout_draws_a_mask_and_applies_it():
    # 12 elements and 12 of mask: 24 FLOP, 48 + 12 bytes written.
    outputs = [SOURCE, tensor(3, 4, dtype="bool")]
    assert cost_of("aten.native_dropout", [SOURCE], outputs) == cost(flops=24, read_bytes=48, write_bytes=60)
