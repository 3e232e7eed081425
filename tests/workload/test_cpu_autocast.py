"""Autocast on CPUs computes fewer operators in fp32 than on GPUs."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from advisor.predict.precision import stored_dtype
from advisor.workload.file import workload_from_json, workload_to_json
from tests.workload.tracing import traced


class Then(nn.Module):
    """A linear layer, whose result autocast stores in half, then a function."""

    def __init__(self, function):
        super().__init__()
        self.linear, self.function = nn.Linear(8, 8), function
        self.group, self.layer = nn.GroupNorm(2, 4), nn.LayerNorm(8)

    def forward(self, images):
        return self.function(self, self.linear(images))


FULL_ON_GPUS = {
    "layer norm": lambda model, x: model.layer(x),
    "group norm": lambda model, x: model.group(x),
    "softmax": lambda model, x: x.softmax(-1),
    "exponential": lambda model, x: x.exp(),
    "power": lambda model, x: x.pow(1.5),
    "softplus": lambda model, x: functional.softplus(x),
    "sum": lambda model, x: x.sum(-1),
    "norm": lambda model, x: torch.linalg.vector_norm(x, dim=-1),
    "log-sum-exp": lambda model, x: x.logsumexp(-1),
    "cumulative sum": lambda model, x: x.cumsum(-1),
    "interpolation": lambda model, x: functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
}
FULL = {
    "product": lambda model, x: x.prod(-1),
    "mean square error": lambda model, x: functional.mse_loss(x, x, reduction="none"),
    "distance": lambda model, x: torch.cdist(x, x),
}
HALF = {"GELU": lambda model, x: functional.gelu(x), "mean": lambda model, x: x.mean(-1)}


@pytest.mark.parametrize("name", [*FULL_ON_GPUS, *FULL, *HALF])
def test_results_have_the_width_that_torch_gives_them(name):
    function = {**FULL_ON_GPUS, **FULL, **HALF}[name]
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        on_cpu = Then(function)(torch.randn(2, 4, 8, 8)).dtype
    workload = traced(Then(function), lambda batch: torch.randn(batch, 4, 8, 8))

    result = workload.rows[-1].outputs[0]

    assert stored_dtype(result, width="autocast on CPUs") == {torch.bfloat16: "float16"}.get(on_cpu, "float32")
    assert stored_dtype(result, width="autocast") == ("float16" if name in HALF else "float32")


def test_a_saved_workload_keeps_the_widths_of_both():
    workload = traced(Then(FULL_ON_GPUS["softmax"]), lambda batch: torch.randn(batch, 4, 8, 8))
    again = workload_from_json(workload_to_json(workload))
    assert again.rows == workload.rows
    assert again.rows[-1].outputs[0].other_on_cpus


def test_cross_entropy_is_a_loss_in_fp32_on_both():
    workload = traced(
        nn.Linear(8, 8),
        lambda batch: torch.randn(batch, 8),
        mode="training",
        loss=lambda output, inputs: functional.cross_entropy(output, torch.zeros(len(output), dtype=torch.int64)),
    )
    (softmax,) = (row for row in workload.rows if row.op == "aten._log_softmax")
    assert {stored_dtype(softmax.outputs[0], width=width) for width in ("autocast", "autocast on CPUs")} == {"float32"}
