"""Every call of an optimizer's step is counted as often as the step on all parameters makes it."""

from collections import Counter

import numpy as np
import torch
from torch import nn

from advisor.predict.row_work import count_rows
from tests.workload.tracing import rows_of, traced


class Updates(torch.optim.Optimizer):
    """Calls `update(parameter, gradient)` for each parameter, and `before(gradients)` once."""

    def __init__(self, parameters, update, before=lambda gradients: None):
        super().__init__(parameters, {})
        self.update, self.before = update, before

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            found = self.before([parameter.grad for parameter in group["params"]])
            for parameter in group["params"]:
                self.update(parameter, parameter.grad if found is None else parameter.grad * found)


def orthogonalized(parameter, gradient):
    if gradient.dim() == 2:
        parameter.sub_(gradient @ gradient.T @ gradient)


def one_wide_and_five_square():
    """Weights: (8, 32), five of (8, 8) and (4, 8); biases: six of 8 and one of 4."""
    return nn.Sequential(nn.Linear(32, 8), *(nn.Linear(8, 8) for _ in range(5)), nn.Linear(8, 4))


def wide_vectors(batch):
    return torch.randn(batch, 32)


def step_of(update, **options):
    workload = traced(
        one_wide_and_five_square(),
        wide_vectors,
        mode="training",
        optimizer=lambda parameters: Updates(parameters, update, **options),
    )
    [row] = rows_of(workload, "optimizer")
    return workload, row.attributes


def products_of(workload):
    return [row for row in workload.rows if row.phase == "optimizer" and row.family == "matmul"]


def test_an_optimizers_matmuls_are_rows_of_their_own():
    workload, attributes = step_of(orthogonalized)
    counts = Counter()
    for row in products_of(workload):
        counts[row.inputs[0].shape, row.inputs[1].shape] += row.count
    assert counts == {
        ((8, 32), (32, 8)): 1,
        ((8, 8), (8, 32)): 1,
        ((8, 8), (8, 8)): 2 * 5,
        ((4, 8), (8, 4)): 1,
        ((4, 4), (4, 8)): 1,
    }
    # What is left is one subtraction in each of the 7 weights of 14 tensors.
    assert (attributes["tensor_count"], attributes["calls_per_tensor"]) == (14, 1)
    weights, biases = 8 * 32 + 5 * 8 * 8 + 4 * 8, 6 * 8 + 4
    assert attributes["flops_per_element"] == weights / (weights + biases)
    assert attributes["loop_read_bytes_per_element"] == 8 * weights / (weights + biases)
    assert attributes["loop_write_bytes_per_element"] == 4 * weights / (weights + biases)


def test_an_optimizer_steps_outside_of_autocast():
    workload, _ = step_of(orthogonalized)
    counts = count_rows(workload, batches=np.array([4.0]), width="autocast")
    dtypes = {work.row.phase: work.dtype for work in counts.rows if work.row.family == "matmul"}
    assert dtypes == {"forward": "float16", "backward": "float16", "optimizer": "float32"}
    assert not any(work.cast_count for work in counts.rows if work.row.phase == "optimizer")


def test_matmuls_in_bf16_stay_in_bf16():
    def orthogonalized_in_half(parameter, gradient):
        if gradient.dim() == 2:
            parameter.sub_(gradient.bfloat16() @ gradient.bfloat16().T @ gradient.bfloat16())

    workload, _ = step_of(orthogonalized_in_half)
    assert {operand.dtype for row in products_of(workload) for operand in (*row.inputs, *row.outputs)} == {"bfloat16"}


def test_a_call_on_all_parameters_is_made_once_and_those_on_one_for_each():
    def global_norm(gradients):
        return torch.stack([gradient.norm() for gradient in gradients]).norm()

    # For each tensor: norm, product with the global norm, and subtraction; the stack and its norm are two calls more.
    _, attributes = step_of(lambda parameter, gradient: parameter.sub_(gradient), before=global_norm)
    assert attributes["calls_per_tensor"] == (3 * 14 + 2) / 14


def test_a_number_that_all_updates_share_belongs_to_none_of_them():
    rate = torch.tensor(0.1)
    workload, attributes = step_of(lambda parameter, gradient: parameter.sub_(gradient * rate))
    assert attributes["calls_per_tensor"] == 2
    assert not products_of(workload)
