"""The part of the timing process that needs a GPU, with a recorded timer in its place."""

from typing import Any

import pytest
import torch

from advisor.calibrate import operator_worker as worker
from advisor.calibrate.design import probes
from advisor.calibrate.repeat_timing import Timing


def test_a_copy_goes_from_pinned_memory_and_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    waits: list[str] = []
    empty = torch.empty

    def recorded_empty(*size: Any, pin_memory: bool = False, **settings: Any) -> torch.Tensor:
        made.append({"pin_memory": pin_memory, **settings})
        return empty(*size, **settings)

    def timed(step: Any, *, budget_s: float) -> Timing:
        step()
        return Timing(step_s=0.004, iqr_ratio=0.0, blocks_s=(0.004,), block_steps=1)

    monkeypatch.setattr(torch, "empty", recorded_empty)
    monkeypatch.setattr(worker, "synchronizer", lambda device: lambda: waits.append(str(device)))
    monkeypatch.setattr(worker, "time_step", timed)

    rate = worker._copied_bytes_per_s(torch.device("cpu"))

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

    assert worker.trace_probe(half[0]) is worker.trace_probe(same)


def test_the_pace_is_that_of_a_product_and_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    passed_s = [0.0]

    def takes(seconds: float) -> Any:
        def call(self: Any, *_: Any) -> None:
            passed_s[0] += seconds

        return call

    monkeypatch.setattr(torch.nn.Linear, "forward", takes(0.5))
    monkeypatch.setattr(torch.Tensor, "relu", takes(0.01))
    monkeypatch.setattr(worker.time, "perf_counter", lambda: passed_s[0])

    pace = worker._pace_of(torch.device("cpu"))()

    assert pace.product_s == pytest.approx(0.5)
    assert pace.calls_s == pytest.approx(100 * 0.01)
