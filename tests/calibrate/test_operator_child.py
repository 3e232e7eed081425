"""The part of the timing process that needs a GPU, with a recorded timer in its place."""

from typing import Any

import pytest
import torch

from advisor.calibrate import operator_child as child
from advisor.calibrate.design import probes
from advisor.calibrate.repeat_timing import step_timing
from advisor.records.timing import StepTiming


def test_a_copy_goes_from_pinned_memory_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    waits: list[str] = []
    empty = torch.empty

    def recorded_empty(*size: Any, pin_memory: bool = False, **settings: Any) -> torch.Tensor:
        made.append({"pin_memory": pin_memory, **settings})
        return empty(*size, **settings)

    def timed(step: Any, *, budget_s: float) -> StepTiming:
        step()
        return step_timing([0.004, 0.004], batch=1, step_count=2)

    monkeypatch.setattr(torch, "empty", recorded_empty)
    monkeypatch.setattr(child, "synchronizer", lambda device: lambda: waits.append(str(device)))
    monkeypatch.setattr(child, "time_step", timed)

    rate = child._copied_bytes_per_s(torch.device("cpu"))

    # 64 MiB in 4 ms
    assert rate == pytest.approx(2**26 / 0.004)
    assert made[0]["pin_memory"]
    assert waits == ["cpu"]


def test_a_trace_serves_every_precision() -> None:
    fp32, half = (
        [probe for probe in probes(("fp32", "amp-bf16"), size_factor=1) if probe.precision == precision]
        for precision in ("fp32", "amp-bf16")
    )
    same = next(probe for probe in fp32 if probe.name == half[0].name)

    assert child.trace_probe(half[0]) is child.trace_probe(same)


def test_the_pace_is_that_of_a_product_and_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s = [0.0]

    def takes(seconds: float) -> Any:
        def call(self: Any, *_: Any) -> None:
            passed_s[0] += seconds

        return call

    monkeypatch.setattr(torch.nn.Linear, "forward", takes(0.5))
    monkeypatch.setattr(torch.Tensor, "relu", takes(0.01))
    monkeypatch.setattr(child.time, "perf_counter", lambda: passed_s[0])

    pace = child._pace_of(torch.device("cpu"))()

    assert pace == pytest.approx({"product_s": 0.5, "calls_s": 100 * 0.01})
