import torch
from calls import cost, cost_of, indices, tensor
from observe import rows_of_a_real_run
from torch.nn import functional

from advisor.ops.evaluate import row_cost

SCORES = tensor(6, 10)


def test_the_negative_log_likelihood_picks_one_score_per_target():
    # 6 picked floats and 6 targets: 24 + 48 = 72. Write loss and total weight: 8.
    assert cost_of("aten.nll_loss_forward", [SCORES, indices(6)], [tensor(), tensor()]) == cost(
        flops=6, read_bytes=72, write_bytes=8
    )


def test_weights_of_the_classes_are_read_too():
    # 10 more floats.
    inputs = [SCORES, indices(6), tensor(10)]
    assert cost_of("aten.nll_loss_forward", inputs, [tensor(), tensor()]).read_bytes == 112


def test_its_gradient_writes_every_score():
    # Read the gradient 4, targets 48, total weight 4; write 240. The scores themselves are not read.
    inputs = [tensor(), SCORES, indices(6), tensor()]
    assert cost_of("aten.nll_loss_backward", inputs, [SCORES]) == cost(flops=6, read_bytes=56, write_bytes=240)


def test_a_loss_per_element_is_difference_function_and_sum():
    # 3 * 60; its gradient 2 * 60.
    assert cost_of("aten.mse_loss", [SCORES, SCORES], [tensor()]) == cost(flops=180, read_bytes=480, write_bytes=4)
    assert cost_of("aten.mse_loss_backward", [tensor(), SCORES, SCORES], [SCORES]).flops == 120


def test_ctc_goes_over_its_states_once_forward_and_once_back():
    # 20 steps, 2 samples, 3 targets give 2 * 3 + 1 = 7 states: 280 states of 10 FLOP.
    # Backward as many, and 2 for each of the 20 * 2 * 10 log-probabilities' gradients: 2800 + 800.
    def run():
        scores = torch.rand(20, 2, 10, requires_grad=True)
        functional.ctc_loss(scores, torch.ones(2, 3, dtype=torch.int64), (20, 20), (3, 3)).backward()

    flops = {row.op: row_cost(row, batch=1).flops for row in rows_of_a_real_run(run)}
    assert (flops["aten._ctc_loss"], flops["aten._ctc_loss_backward"]) == (2800, 3600)
