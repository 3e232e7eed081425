"""The part of the timing process that needs a GPU, with a recorded timer in its place."""

from typing import Any

import pytest
import torch

from advisor.calibrate import worker
from advisor.calibrate.timing import Timing


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
