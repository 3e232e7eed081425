"""Programs of a few operators, and what torch.compile keeps out of memory of each."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from tests.workload.tracing import Calls, images, rows_of, sequences, traced, vectors


def mean(output, batch):
    return output.mean()


def two(make):
    return lambda batch: (make(batch), make(batch))


def flagged(workload, op, flag):
    """For every row of `op`, the flag of its inputs and of its outputs."""
    return [
        ([getattr(one, flag) for one in row.inputs], [getattr(one, flag) for one in row.outputs])
        for row in rows_of(workload, op)
    ]


def test_what_passes_between_pointwise_operators_stays_out_of_memory():
    workload = traced(
        Calls(lambda self, x: (x * 2).exp() @ self.weight, weight=nn.Parameter(torch.zeros(8, 4))), vectors
    )
    assert flagged(workload, "aten.mul", "fused") == [([False], [True])]
    assert flagged(workload, "aten.mul", "joined") == [([False], [True])]
    assert flagged(workload, "aten.exp", "fused") == [([True], [False])]  # the product reads it from memory
    assert flagged(workload, "aten.exp", "joined") == [([False], [False])]
    assert flagged(workload, "aten.mm", "fused") == [([False, False], [False])]


def test_what_backward_needs_is_written():
    model = Calls(lambda self, x: (self.inner(x) * 2).exp(), inner=nn.Linear(8, 4))
    workload = traced(model, vectors, mode="training", loss=mean)
    assert flagged(workload, "aten.exp", "fused")[0][1] == [False]  # its backward multiplies by the result


def test_results_of_the_step_are_written():
    assert flagged(traced(Calls(lambda self, x: x.exp()), vectors), "aten.exp", "fused") == [([False], [False])]


def test_a_residual_is_written_once_and_read_again_after_the_branch():
    """x + f(norm(x)): the norm joins the kernel that makes x, the addition comes two kernels later."""

    def run(self, x, y):
        stream = x * y
        return stream + self.inner(functional.layer_norm(stream, (8,))).relu()

    workload = traced(Calls(run, inner=nn.Linear(8, 8)), two(vectors))
    assert flagged(workload, "aten.mul", "fused") == [([False, False], [False])]
    assert flagged(workload, "aten.mul", "joined") == [([False, False], [True])]
    assert flagged(workload, "aten.native_layer_norm", "fused")[0][0] == [True]
    assert flagged(workload, "aten.add", "fused") == [([False, True], [False])]


def test_a_branch_through_a_layer_without_a_bias_ends_before_the_addition():
    """For sequences, torch reshapes the result of such a layer with `_unsafe_view`; it is the same value."""

    def run(self, x, y):
        stream = x * y
        return stream + self.inner(functional.layer_norm(stream, (8,)))

    workload = traced(Calls(run, inner=nn.Linear(8, 8, bias=False)), two(sequences))
    assert flagged(workload, "aten.mul", "fused") == [([False, False], [False])]
    assert flagged(workload, "aten.add", "fused") == [([False, False], [False])]


def test_a_branch_is_computed_where_it_is_added():
    """Both products end before the addition's kernel, which goes on with either result."""

    def run(self, x):
        short = self.short(x).sigmoid()
        return short + self.second(self.first(x)).tanh()

    layers = {name: nn.Linear(8, 8) for name in ("short", "first", "second")}
    workload = traced(Calls(run, **layers), vectors)
    assert flagged(workload, "aten.add", "fused") == [([True, True], [False])]


def test_what_is_averaged_and_then_scaled_is_written_first():
    """Squeeze and excite: the mean needs all of the product before the scaling starts."""

    def squeeze_and_excite(self, x, y):
        excited = x * y
        return excited * excited.mean(dim=1, keepdim=True)

    assert flagged(traced(Calls(squeeze_and_excite), two(vectors)), "aten.mean", "fused")[0][0] == [False]
    averaged = traced(Calls(lambda self, x: (x * 2.0).mean(dim=1)), vectors)
    assert flagged(averaged, "aten.mean", "fused")[0][0] == [True]


def test_a_function_of_one_tensor_is_computed_again_by_every_kernel_that_needs_it():
    """Global response normalization: the norm, and the scaling after it, both read what the activation is of."""

    def response_norm(self, x):
        active = self.first(x).relu()
        return self.second(active * active.norm(dim=0, keepdim=True) + active)

    workload = traced(Calls(response_norm, first=nn.Linear(8, 8), second=nn.Linear(8, 8)), vectors)
    assert flagged(workload, "aten.relu", "fused") == [([True], [True])]
    assert flagged(workload, "aten.relu", "joined") == [([False], [True])]
    assert flagged(workload, "aten.linalg_vector_norm", "fused") == [([False], [False])]
    # The product and the sum are one kernel, which reads it once.
    assert flagged(workload, "aten.mul", "fused") == [([False, False], [True])]
    assert flagged(workload, "aten.add", "fused") == [([True, True], [False])]


def test_what_a_layer_reads_too_is_written():
    def run(self, x):
        active = x.exp()
        return self.layer(active) + active.mean()

    workload = traced(Calls(run, layer=nn.Linear(8, 8)), vectors)
    assert flagged(workload, "aten.exp", "fused") == [([False], [False])]


def test_what_is_made_of_two_tensors_is_written_once():
    def run(self, x, y):
        both = x + y
        return both * both.sum()

    assert flagged(traced(Calls(run), two(vectors)), "aten.add", "fused") == [([False, False], [False])]


def test_what_a_pool_reads_is_written_first():
    workload = traced(Calls(lambda self, x: functional.avg_pool2d(x.relu(), 3)), images)
    assert flagged(workload, "aten.avg_pool2d", "fused") == [([False], [False])]


def test_statistics_of_a_batch_are_a_pass_of_their_own():
    def norm_of(model, **how):
        return next(row for row in traced(model, images, **how).rows if row.family == "norm")

    model = Calls(lambda self, x: self.norm(x.relu()), norm=nn.BatchNorm2d(3))
    assert norm_of(model.train(), mode="training", loss=mean).inputs[0].fused is False
    assert norm_of(model.eval()).inputs[0].fused is True


def test_what_only_products_read_is_written_in_half():
    def run(self, x):
        return self.inner(functional.layer_norm(x, (8,)))

    workload = traced(Calls(run, inner=nn.Linear(8, 8)), vectors)
    assert flagged(workload, "aten.native_layer_norm", "narrowed")[0][1][0] is True
    assert [True] in [inputs[1:2] for inputs, _ in flagged(workload, "aten.addmm", "narrowed")]

    def keep(self, x):
        normed = functional.layer_norm(x, (8,))
        return self.inner(normed), normed.sum()

    both = traced(Calls(keep, inner=nn.Linear(8, 8)), vectors)
    assert flagged(both, "aten.native_layer_norm", "narrowed")[0][1][0] is False


class Gated(nn.Module):
    """Squeeze and excitation: the mean of an activation decides how much of it goes on."""

    def __init__(self, activation, *, norm=None):
        super().__init__()
        self.before, self.norm = nn.Conv2d(3, 8, 3), norm or nn.BatchNorm2d(8)
        self.activation, self.gate, self.after = activation, nn.Conv2d(8, 8, 1), nn.Conv2d(8, 4, 1)

    def forward(self, x):
        x = self.activation(self.norm(self.before(x)))
        return self.after(x * self.gate(x.mean((2, 3), keepdim=True)).sigmoid())


@pytest.mark.parametrize(
    ("activation", "op"),
    [(nn.SiLU(), "aten.silu"), (nn.SiLU(inplace=True), "aten.silu_"), (nn.Hardswish(), "aten.hardswish")],
)
def test_an_activation_that_takes_a_norm_twice_leaves_it_in_fp32_for_its_readers(activation, op):
    workload = traced(Gated(activation).eval(), images)
    assert flagged(workload, op, "widened") == [([False], [True])]
    assert flagged(workload, "aten.mean", "widened") == [([True], [False])]
    assert flagged(workload, "aten.mul", "widened")[0][0][0] is True


def test_an_activation_stays_in_half_if_it_takes_its_operand_once_or_a_convolution_made_that():
    for model in (Gated(nn.ReLU()), Gated(nn.SiLU(), norm=nn.Identity())):
        rows = traced(model.eval(), images).rows
        assert not any(one.widened for row in rows for one in (*row.inputs, *row.outputs))


def test_an_activation_that_a_convolution_reads_too_is_written_itself():
    model = Gated(nn.SiLU())
    model.gate = nn.Sequential(nn.Conv2d(8, 8, 1))
    model.forward = lambda x: model.after(active := model.activation(model.norm(model.before(x)))) * active.mean()
    assert not any(one.widened for row in traced(model.eval(), images).rows for one in row.outputs)


def test_parts_of_a_concatenation_are_computed_in_their_place():
    def run(self, x):
        return torch.cat([x.exp(), self.first(x), x[:, :4].sin()], dim=1) @ self.weight

    model = Calls(run, first=nn.Linear(8, 8), weight=nn.Parameter(torch.zeros(20, 4)))
    workload = traced(model, vectors)
    assert flagged(workload, "aten.cat", "fused") == [([True, False, True], [False])]  # a product's result is copied


def test_a_part_of_a_value_has_no_place_of_its_own():
    def run(self, x):
        left, right = x.exp().split(4, dim=1)
        return torch.cat([left, self.inner(right)], dim=1) @ self.weight

    model = Calls(run, inner=nn.Linear(4, 4), weight=nn.Parameter(torch.zeros(8, 4)))
    assert flagged(traced(model, vectors), "aten.cat", "fused") == [([False, False], [False])]


def test_a_few_parts_are_concatenated_by_what_reads_them():
    def run(self, x):
        return torch.cat([x.exp(), x.sin()], dim=1).relu()

    assert flagged(traced(Calls(run), vectors), "aten.cat", "fused") == [([True, True], [True])]


def test_backward_finds_the_halves_that_forward_made():
    model = Calls(lambda self, x: self.inner(functional.layer_norm(x, (8,))), inner=nn.Linear(8, 4))
    workload = traced(model, vectors, mode="training", loss=mean)
    backward = [row for row in rows_of(workload, "aten.mm") if row.phase == "backward"]
    assert all(one.low for row in backward for one in row.inputs if one.shape[-1] == 8)
