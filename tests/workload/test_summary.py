import pytest
import torch
from torch import nn

from advisor.workload.summary import coverage_ratio, group_rows, summarize, totals
from tests.workload.tracing import Calls, mlp, sequences, traced, vectors


def test_totals_of_a_step_by_hand():
    # Linear 8 -> 16 -> 4 with bias and ReLU between, 5 samples: 2 x 5 x (8 x 16 + 16 x 4) = 1920 in products, and one
    # FLOP for each of the 5 x 16 of the ReLU.
    result = totals(traced(mlp(), vectors), batch=5)
    assert result.flops == 1920 + 80
    # Each linear reads input, weight and bias and writes its output; the ReLU reads and writes 5 x 16.
    assert result.read_bytes == 4 * ((5 * 8 + 128 + 16) + 5 * 16 + (5 * 16 + 64 + 4))
    assert result.write_bytes == 4 * (5 * 16 + 5 * 16 + 5 * 4)
    assert result.op_count == 3
    assert (result.parameter_count, result.batch) == (212, 5)


def test_groups_add_up_to_the_totals():
    workload = traced(mlp(), vectors, mode="training")
    whole = totals(workload, batch=7)
    for by in ("family", "module", "phase"):
        groups = group_rows(workload, by=by, batch=7)
        assert sum(group.flops for group in groups) == pytest.approx(whole.flops)
        assert sum(group.read_bytes for group in groups) == pytest.approx(whole.read_bytes)
        assert sum(group.op_count for group in groups) == whole.op_count
        assert sum(group.flops_ratio for group in groups) == pytest.approx(1)
        assert [group.flops for group in groups] == sorted((group.flops for group in groups), reverse=True)


def test_the_phases_of_a_training_step_are_told_apart():
    workload = traced(mlp(), vectors, mode="training", loss=lambda output, batch: output.pow(2).mean())
    assert {group.name for group in group_rows(workload, by="phase", batch=4)} == {
        "forward", "loss", "backward", "optimizer",
    }  # fmt: skip


def test_the_blocks_of_a_list_are_one_group_and_the_layers_of_a_sequential_are_not():
    blocks = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.ReLU()) for _ in range(3)), nn.Linear(8, 2))
    names = {group.name for group in group_rows(traced(blocks, vectors), by="module", batch=4)}
    assert names == {"*.0", "*.1", "3"}


def test_the_shares_of_a_step_without_flop_are_zero():
    copying = Calls(lambda self, x: x.transpose(1, 2).contiguous())
    [group] = group_rows(traced(copying, sequences), by="family", batch=4)
    assert (group.flops, group.flops_ratio) == (0, 0)


@torch.library.custom_op("advisor_tests::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@triple.register_fake
def _(x):
    return torch.empty_like(x)


def test_an_operator_without_a_formula_is_listed_with_its_count():
    model = Calls(lambda self, x: triple(triple(self.inner(x))), inner=nn.Linear(8, 8))
    workload = traced(model, vectors)
    assert workload.unknown_ops == {"advisor_tests.triple": 2}
    assert coverage_ratio(workload) == pytest.approx(1 / 3)
    assert summarize(workload, batch=4).coverage_ratio == coverage_ratio(workload)
    # Its operands still move: 2 x (4 x 8 floats in and out).
    [group] = [group for group in group_rows(workload, by="family", batch=4) if group.name == "unknown"]
    assert (group.flops, group.read_bytes, group.write_bytes) == (0, 2 * 128, 2 * 128)


def test_views_cost_nothing():
    def run(self, x):
        return x.view(-1, 4).t()[None, 1:].expand(3, -1, -1).unsqueeze(0).permute(0, 2, 1, 3).chunk(2, -1)[0].detach()

    workload = traced(Calls(run), vectors)
    result = totals(workload, batch=4)
    assert (result.flops, result.read_bytes, result.write_bytes, result.op_count) == (0, 0, 0, 0)
    assert coverage_ratio(workload) == 1.0


def test_a_view_whose_bytes_are_copied_is_counted():
    result = totals(traced(Calls(lambda self, x: x.t().contiguous()), vectors), batch=4)
    assert (result.read_bytes, result.write_bytes) == (128, 128)


def test_an_expanded_operand_is_read_by_the_bytes_it_has():
    # (batch, 8) plus one row of 8 that is expanded to it.
    model = Calls(lambda self, x: x + self.row.expand_as(x), row=nn.Parameter(torch.zeros(8)))
    assert totals(traced(model, vectors), batch=4).read_bytes == 4 * (32 + 8)
