"""The step of a source in a process of its own."""

from pathlib import Path
from typing import Any

import pytest

from advisor.calibrate.step_process import MeasureRequest, measure_source
from advisor.errors import LoadError, TraceError, UsageError
from advisor.records.timing import StepTiming
from tests.model_files import Write

CONFIG = str(Path(__file__).parents[1] / "data/measured/own/configs/distilbert_128.json")
NET = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 2)

        def forward(self, x):
            assert not self.layer.weight.is_meta
            return self.layer(x)

    def example_inputs(batch=4):
        return torch.zeros(batch, 3)
"""


def timed(source: str, **request: Any) -> StepTiming:
    return measure_source(MeasureRequest(source=source, thread_count=1, **({"budget_s": 0.05} | request)))


def test_a_file_is_built_with_weights_and_its_step_timed(write: Write) -> None:
    timing = timed(write(NET), batch=5)

    assert timing.batch == 5
    assert 0 < timing.low_s <= timing.step_s <= timing.high_s
    assert timing.step_count >= 2


def test_a_file_that_puts_its_model_on_a_gpu_is_timed_on_the_cpu(write: Write) -> None:
    assert timed(write(NET + "\n    model = Net().cuda()\n"), mode="training").batch == 4


def test_what_the_models_code_raises_comes_back_with_its_line(write: Write) -> None:
    text = NET.replace("return self.layer(x)", "raise ValueError('no values, no step')")

    with pytest.raises(TraceError, match="ValueError: no values, no step") as caught:
        timed(write(text))
    assert "net.py:12 in forward" in caught.value.message
    assert "(4, 3) float32" in caught.value.hint


def test_a_step_without_end_is_stopped(write: Write) -> None:
    text = NET.replace("return self.layer(x)", "import time\n            time.sleep(600)")

    with pytest.raises(LoadError, match="was still running after 4 s"):
        timed(write(text), timeout_s=4.0)


def test_a_step_that_does_not_fit_is_refused_before_its_process_starts(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("advisor.workload.spawn.subprocess.Popen", None)

    with pytest.raises(UsageError, match=r"\b1 EiB\b"):
        timed(write(NET), needed_bytes=2.0**60)


def test_a_gpu_that_torch_does_not_see_is_said(write: Write) -> None:
    with pytest.raises(UsageError, match=r"sees [0-7] CUDA devices"):
        timed(write(NET), device="cuda:7")


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["inference", "training"])
@pytest.mark.parametrize("source", ["torchvision:resnet18", "timm:mobilenetv3_small_050", f"hf:{CONFIG}"])
def test_every_kind_of_source_that_can_be_built_can_be_timed(source: str, mode: Any) -> None:
    assert timed(source, mode=mode, batch=2).step_s > 0
