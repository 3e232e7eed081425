from math import prod

import pytest
from calls import cost, cost_of, indices, tensor

from advisor.ops.pooling import window_numel
from advisor.ops.registry import Call

SOURCE, RESULT = tensor(1, 2, 6, 6), tensor(1, 2, 3, 3)  # 72 and 18 elements


def test_a_pooling_looks_at_its_window_for_each_output():
    # 18 windows of 3 * 3: 162. Every input is read once although the windows overlap: 288. Write 18 * 4 + 18 * 8.
    assert cost_of("aten.max_pool2d_with_indices", [SOURCE], [RESULT, indices(1, 2, 3, 3)], kernel_size=(3, 3)) == cost(
        flops=162, read_bytes=288, write_bytes=216
    )


def test_one_kernel_length_stands_for_all_dimensions():
    # avg_pool2d with (2,): 18 * 4. In one dimension 6 * 2.
    assert cost_of("aten.avg_pool2d", [SOURCE], [RESULT], kernel_size=(2,)).flops == 72
    assert cost_of("aten.avg_pool1d", [tensor(2, 6)], [tensor(2, 3)], kernel_size=(2,)).flops == 12


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("name", ["max_pool{}d_with_indices", "avg_pool{}d"])
def test_a_window_has_as_many_elements_however_its_lengths_are_written(name: str, dims: int) -> None:
    def numel(kernel_size: object) -> object:
        op = f"aten.{name.format(dims)}"
        return window_numel(Call(op=op, inputs=(), outputs=(), attributes={"kernel_size": kernel_size}))

    # Lengths of 3: 3, 9 and 27 elements; of 2, 3, 4: 2, 6 and 24.
    assert [numel(written) for written in (3, (3,), (3,) * dims)] == [3**dims] * 3
    assert numel((2, 3, 4)[:dims]) == prod((2, 3, 4)[:dims])


def test_an_adaptive_pooling_looks_at_each_input_once():
    assert cost_of("aten._adaptive_avg_pool2d", [SOURCE], [tensor(1, 2, 1, 1)]) == cost(
        flops=72, read_bytes=288, write_bytes=8
    )


def test_backward_of_a_maximum_goes_to_the_one_place_that_its_index_names():
    # 18 additions; read the gradient 72 and indices 144, not the input; write 288.
    inputs = [RESULT, SOURCE, indices(1, 2, 3, 3)]
    assert cost_of("aten.max_pool2d_with_indices_backward", inputs, [SOURCE]) == cost(
        flops=18, read_bytes=216, write_bytes=288
    )


def test_backward_of_an_average_goes_to_the_whole_window():
    # 18 * 4 additions; read 72, write 288.
    assert cost_of("aten.avg_pool2d_backward", [RESULT, SOURCE], [SOURCE], kernel_size=(2, 2)) == cost(
        flops=72, read_bytes=72, write_bytes=288
    )
    assert cost_of("aten._adaptive_avg_pool2d_backward", [tensor(1, 2, 1, 1), SOURCE], [SOURCE]) == cost(
        flops=72, read_bytes=8, write_bytes=288
    )


def test_unpooling_computes_nothing():
    assert cost_of("aten.max_unpool2d", [RESULT, indices(1, 2, 3, 3)], [SOURCE]).flops == 0
