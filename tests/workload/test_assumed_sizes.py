"""Numbers for sizes that depend on data: what is known of a mask decides how much of it is taken to be true."""

import pytest
import torch
from torch import nn

from advisor.workload.assumed_sizes import AssumedSizes
from tests.says import assert_says
from tests.workload.tracing import Calls, rows_of, traced


def selected(mask_of, *, batch=40, width=8):
    """The rows that reach a linear layer when those of (batch, width) are selected by `mask_of(x)`."""
    model = Calls(lambda self, x: self.inner(x[mask_of(x)]), inner=nn.Linear(width, 4))
    workload = traced(model, lambda size: torch.randn(size, width), batch=batch)
    assert workload.method == "symbolic"
    [row] = rows_of(workload, "aten.addmm")
    constant, per_sample = row.inputs[1].shape[0]
    return constant + per_sample * batch


def test_of_a_mask_half_is_taken_to_be_true():
    assert selected(lambda x: x[:, 0] > 0) == 20


def test_of_a_choice_among_n_one_in_n_is():
    assert selected(lambda x: x.argmax(1) == 3) == 40 / 8
    assert selected(lambda x: x.max(1)[1] == 3) == 40 / 8
    assert selected(lambda x: x.argsort(1)[:, 0] == 0) == 40 / 8


def test_a_limit_on_the_running_count_of_a_choice_cuts_its_share():
    """As an expert's capacity: of 40 rows 5 are the third's, and the first 2 of them are kept."""

    def forward(self, x):
        mine = (x.argmax(1) == 3).to(torch.int64)
        return self.inner(x[(mine * (mine.cumsum(0) <= 2)).bool()])

    workload = traced(Calls(forward, inner=nn.Linear(8, 4)), lambda size: torch.randn(size, 8), batch=40)
    [row] = rows_of(workload, "aten.addmm")
    assert row.inputs[1].shape == (2, 8)


def test_a_loop_over_the_chosen_experts_visits_each_with_its_share_of_the_tokens():
    """As transformers loops: by `nonzero`, with the number of an expert in its name or as an index."""

    class Experts(nn.ModuleDict):
        def forward(self, x):
            chosen = nn.functional.one_hot(x.argmax(-1), 4).T
            result = torch.zeros_like(x)
            for expert in (chosen.sum(-1) > 0).nonzero():
                (tokens,) = torch.where(chosen[expert].squeeze(0))
                result.index_add_(0, tokens, self[f"expert_{expert[0]}"](x[tokens]))
            return result

    experts = Experts({f"expert_{place}": nn.Linear(4, 4) for place in range(4)})
    workload = traced(experts, lambda size: torch.randn(size, 4), batch=40)
    rows = rows_of(workload, "aten.addmm")
    assert {row.module for row in rows} == {f"expert_{place}" for place in range(4)}
    assert {row.inputs[1].shape[0][0] + row.inputs[1].shape[0][1] * 40 for row in rows} == {40 / 4}
    assert any("experts" in note for note in workload.assumptions)


def test_of_its_opposite_the_rest_is():
    assert selected(lambda x: ~(x.argmax(1) == 3)) == 40 * 7 / 8
    assert selected(lambda x: (x.argmax(1) == 3).logical_not()) == 40 * 7 / 8


def test_of_k_choices_among_n_any_is_k_in_n():
    assert selected(lambda x: (x.topk(2, 1)[1] == 3).any(1)) == 40 * 2 / 8


def test_a_choice_stays_one_through_views_and_copies():
    assert selected(lambda x: x.argmax(1).clone().view(-1, 1).squeeze(1).to(torch.int32) == 3) == 40 / 8


def test_the_least_of_a_row_is_a_choice_too():
    assert selected(lambda x: x.argmin(1) == 0, width=4) == 10


def test_a_plain_size_is_itself():
    sizes = AssumedSizes()
    assert sizes(7) == 7
    assert sizes.notes() == ()


def symbols(count):
    """Sizes that only data would tell, of masks over 100 elements."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    mode = FakeTensorMode(shape_env=ShapeEnv(allow_dynamic_output_shape_ops=True))
    with mode:
        return [torch.zeros(100).nonzero().shape[0] for _ in range(count)]


def test_a_symbol_has_one_number_wherever_it_is_used():
    [size] = symbols(1)
    sizes = AssumedSizes()
    assert sizes(size) == 50
    assert sizes(size * 3 + 1) == 151
    assert sizes(size - 60) == 0  # no size is negative


def test_what_was_assumed_is_said_in_short():
    sizes = AssumedSizes()
    for size in symbols(8):
        sizes(size)
    [note] = sizes.notes()
    assert_says(note, "8 sizes", "50, 50, 50, 50, 50, 50, ...")
    assert "50 % true" in note


def test_every_batch_is_assumed_alike():
    model = Calls(lambda self, x: self.inner(x[x[:, 0] > 0]), inner=nn.Linear(8, 4))
    workload = traced(model, lambda size: torch.randn(size, 8), batch=10, mode="training")
    shapes = {row.inputs[1].shape for row in rows_of(workload, "aten.addmm")}
    assert shapes == {((0.0, 0.5), 8)}


@pytest.mark.parametrize("count", [1, 7])
def test_an_odd_batch_still_gives_a_size(count):
    model = Calls(lambda self, x: self.inner(x[x[:, 0] > 0]), inner=nn.Linear(8, 4))
    workload = traced(model, lambda size: torch.randn(size, 8), batch=count, batch_is_fixed=True)
    [row] = rows_of(workload, "aten.addmm")
    assert row.inputs[1].shape[0] == round(count * 0.5)


@pytest.mark.parametrize(
    "is_bad",
    [
        lambda x: torch.isnan(x.sum()) or torch.isinf(x.sum()),
        lambda x: x.isnan().any(),
        lambda x: not torch.isfinite(x).all(),
        lambda x: torch.isnan(x).any().item(),
    ],
)
def test_values_are_taken_to_be_finite(is_bad):
    def forward(self, x):
        if is_bad(x):
            raise AssertionError("a value is not finite")
        return self.inner(x)

    workload = traced(Calls(forward, inner=nn.Linear(8, 4)), lambda size: torch.randn(size, 8))
    assert workload.method in ("fake", "symbolic")


def test_of_a_mask_some_are_true_but_their_number_is_not_one():
    def forward(self, x):
        count = (x[:, 0] > 0).sum()
        if not count > 0:
            raise AssertionError("the mask selects nothing")
        return self.inner(x[: int(count)])

    workload = traced(Calls(forward, inner=nn.Linear(8, 4)), lambda size: torch.randn(size, 8), batch=40)
    assert workload.method == "cpu_step"  # which knows the number
