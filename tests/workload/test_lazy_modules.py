"""Models whose parameters get their shapes from the first call."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parameter import is_lazy

from advisor.calibrate.run_step import time_loaded
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import TraceError
from advisor.records.workload import Mode
from advisor.workload.sources.live import load_live
from advisor.workload.trace import trace_live

IMAGES = torch.zeros(4, 3, 9, 9)


def lazy() -> nn.Module:
    return nn.Sequential(
        nn.LazyConv2d(8, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(5), nn.Linear(5, 2, bias=False)
    )


def eager() -> nn.Module:
    # 9 - 3 + 1 = 7 rows and columns of 8 channels
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 7 * 7, 5), nn.Linear(5, 2, bias=False)
    )


def traced(model: nn.Module, *, mode: Mode) -> Any:
    loaded = load_live(model, IMAGES, name="net", mode=mode, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
    return trace_live(loaded, mode=mode, batch=None, attention="auto")


@pytest.mark.parametrize("mode", ["inference", "training"])
def test_a_lazy_model_has_the_step_of_the_same_model_with_shapes(mode: Mode) -> None:
    assert traced(lazy(), mode=mode) == traced(eager(), mode=mode)


def test_the_callers_model_stays_lazy() -> None:
    model = lazy()
    generator = torch.get_rng_state()
    traced(model, mode="training")
    assert [type(module).__name__ for module in model] == [
        "LazyConv2d", "LazyBatchNorm2d", "Flatten", "LazyLinear", "Linear"
    ]  # fmt: skip
    assert all(map(is_lazy, (*model[0].parameters(), *model[1].parameters(), *model[3].parameters())))
    assert is_lazy(model[1].running_mean)
    assert model[1].num_batches_tracked == 0
    assert torch.equal(torch.get_rng_state(), generator)
    assert model(IMAGES).shape == (4, 2)


def test_a_lazy_model_is_timed() -> None:
    request = MeasureRequest(source="net", mode="training", batch=4, budget_s=0.01)
    assert time_loaded(load_live(lazy(), IMAGES), request).step_count > 0


@pytest.mark.parametrize("reads_values", [False, True])
def test_a_module_that_the_call_does_not_initialize_is_named(*, reads_values: bool) -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.other = nn.LazyLinear(4), nn.LazyLinear(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if reads_values and x.sum().item() > 0:
                return x
            y: torch.Tensor = self.first(x)
            return y

    loaded = load_live(Net(), torch.ones(2, 4))
    with pytest.raises(TraceError, match="first.weight" if reads_values else "other.weight") as caught:
        trace_live(loaded, mode="inference", batch=None, attention="auto")
    assert "call the model once" in caught.value.hint
