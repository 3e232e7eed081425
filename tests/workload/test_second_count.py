"""fvcore's count and ours: two that share no code."""

import pytest
import torch
from torch import nn

from advisor.errors import LoadError
from advisor.workload.second_count import count_with_fvcore
from advisor.workload.summary import group_rows
from tests.workload.tracing import Calls, attention_block, loaded, mlp, sequences, traced, vectors


def residual_block(channels, out_channels, stride):
    def run(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))

    body = nn.Sequential(
        nn.Conv2d(channels, out_channels, 3, stride, 1, bias=False), nn.BatchNorm2d(out_channels), nn.ReLU(),
        nn.Conv2d(out_channels, out_channels, 3, 1, 1, groups=2, bias=False), nn.BatchNorm2d(out_channels),
    )  # fmt: skip
    return Calls(run, body=body, shortcut=nn.Conv2d(channels, out_channels, 1, stride, bias=False))


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1),
        residual_block(8, 16, 2), residual_block(16, 32, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
    )  # fmt: skip


def photos(batch):
    return torch.randn(batch, 3, 64, 64)


def our_flops(workload, *, batch, families=("conv", "matmul")):
    groups = group_rows(workload, by="family", batch=batch)
    return sum(group.flops for group in groups if group.name in families)


@pytest.mark.parametrize(("build", "make_inputs"), [(resnet, photos), (mlp, vectors)])
def test_convolutions_and_products_agree_within_2_percent(build, make_inputs):
    model = build()
    count = count_with_fvcore(loaded(model, make_inputs), batch=6)
    theirs = sum(flops for op, flops in count.flops_by_op.items() if op in ("conv", "linear", "addmm"))
    assert our_flops(traced(model, make_inputs), batch=6) == pytest.approx(theirs, rel=0.02)
    assert count.batch == 6


def test_a_multiply_add_is_two():
    # 2 x 5 samples x (8 x 16 + 16 x 4).
    assert count_with_fvcore(loaded(mlp(), vectors), batch=5).flops_by_op == {"linear": 1920}


def test_what_fvcore_does_not_know_is_listed():
    recurrent = Calls(lambda self, x: self.layer(x)[0], layer=nn.LSTM(8, 4, batch_first=True))
    assert count_with_fvcore(loaded(recurrent, sequences), batch=2).unsupported_ops.get("aten::lstm") == 1
    count = count_with_fvcore(loaded(attention_block(), sequences), batch=2)
    assert count.unsupported_ops.get("aten::scaled_dot_product_attention") == 1


def test_a_model_called_by_keyword_is_counted():
    model = Calls(lambda self, *, x: self.inner(x), inner=nn.Linear(8, 4))
    count = count_with_fvcore(loaded(model, lambda batch: {"x": vectors(batch)}), batch=3)
    assert count.flops == 2 * 3 * 32


def test_a_model_without_values_is_counted():
    with torch.device("meta"):
        model = mlp()
    assert count_with_fvcore(loaded(model, vectors), batch=5).flops == 1920
    assert all(parameter.is_meta for parameter in model.parameters())


def test_the_model_is_left_as_it_was():
    model = resnet().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    count_with_fvcore(loaded(model, photos), batch=2)
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


def test_what_cannot_be_traced_is_said():
    broken = Calls(lambda self, x: self.inner(x), inner=nn.Linear(3, 4))
    with pytest.raises(LoadError, match="fvcore cannot trace model"):
        count_with_fvcore(loaded(broken, vectors), batch=2)
