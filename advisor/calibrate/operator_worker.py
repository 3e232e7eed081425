"""Runs as the child process that times operators: reads a JSON request from `sys.argv`, writes a JSON line for each.

A line is written as soon as its operator is timed, so nothing is lost if the process is ended early.
"""

import gc
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NoReturn

import torch

from advisor.calibrate.cpu_load import others_cpu_s
from advisor.calibrate.design import Probe, probes
from advisor.calibrate.repeat_timing import Timing, time_step
from advisor.workload.execution import (
    autocast,
    device_problem,
    float32_products,
    keep_freed_memory,
    synchronizer,
    whole_dtype,
)
from advisor.workload.file import workload_to_json
from advisor.workload.loaded import LoadedModel
from advisor.workload.trace import trace

_SIZE_FACTOR: Mapping[str, int] = {"cpu": 1, "cuda": 16, "mps": 4}
"""How many times larger the batch is than on a CPU, to fill the device."""
_LEAST_BUDGET_S, _MOST_BUDGET_S = 0.015, 0.15
"""Limits of the time for one operator."""
_COPIED_BYTES = 2**26
"""64 MiB take about 5 ms, which makes the overhead of starting a copy negligible."""
_PACE_ROWS, _PACE_WIDTH = 128, 512
"""Size of the matmul that measures the pace: some tenths of a millisecond on two cores. A GPU gets `_SIZE_FACTOR`
times the rows."""
_PACE_CALLS = 100
_PACE_REPEATS = 5


def main() -> NoReturn:
    """Time operators until the deadline; the request names device, thread count, precisions and deadline."""
    request = json.loads(sys.argv[1])
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # keep the output of libraries out of the answer
    device = torch.device(request["device"])
    if problem := device_problem(device):
        _end(problem)
    _set_up(device, thread_count=request["thread_count"])
    for line in _timed(request, device):
        channel.write(json.dumps(line) + "\n")
        channel.flush()
    os._exit(0)


def _end(last_word: str) -> NoReturn:
    sys.stderr.write(f"{last_word}\n")
    sys.stderr.flush()
    os._exit(1)  # a normal exit of torch takes a tenth of a second, and more on a busy machine


def _set_up(device: torch.device, *, thread_count: int | None) -> None:
    torch.manual_seed(0)
    gc.disable()  # a garbage collection during a step would be timed
    if thread_count is not None:
        torch.set_num_threads(thread_count)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    keep_freed_memory()


def _timed(request: Mapping[str, Any], device: torch.device) -> Any:
    """Yield each timed operator with the machine's pace at that moment and the load of other processes so far."""
    deadline_s = request["deadline_s"]
    planned = probes(request["precisions"], size_factor=_SIZE_FACTOR[device.type])
    yield {"planned_count": len(planned)}
    if device.type == "cuda":
        yield {"host_to_device_bytes_per_s": _copied_bytes_per_s(device)}
    trace_probe(planned[0])  # the first trace does the imports for all
    pace = _pace_of(device)
    begin_s, others_begin_s = time.monotonic(), others_cpu_s()
    for index, probe in enumerate(planned):
        left_s = deadline_s - time.time()
        if left_s <= 0:
            break
        budget_s = min(max(left_s / (len(planned) - index) / 2, _LEAST_BUDGET_S), _MOST_BUDGET_S)
        document = trace_probe(probe)
        timing, before, after = _time(probe, device, budget_s=budget_s, pace=pace)
        passed_s = max(time.monotonic() - begin_s, 1e-3)
        yield {
            "name": probe.name,
            "precision": probe.precision,
            "batch": probe.batch,
            "workload": document,
            "step_s": timing.step_s,
            "iqr_ratio": timing.iqr_ratio,
            "product_s": (before.product_s + after.product_s) / 2,
            "calls_s": (before.calls_s + after.calls_s) / 2,
            "others_cpu_count": max(0.0, (others_cpu_s() - others_begin_s) / passed_s),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pace:
    """Time of a fixed short task now: a matmul on all threads, and single calls on one thread."""

    product_s: float
    calls_s: float


def _pace_of(device: torch.device) -> Callable[[], _Pace]:
    """Return a function that measures the present pace, as the median of several tries."""
    product = torch.nn.Linear(_PACE_WIDTH, _PACE_WIDTH, device=device)
    row_count = _PACE_ROWS * _SIZE_FACTOR[device.type]
    rows, small = (torch.randn(size, device=device) for size in ((row_count, _PACE_WIDTH), (64,)))
    synchronize = synchronizer(device)

    def call() -> None:
        for _ in range(_PACE_CALLS):
            small.relu()

    def median_s(work: Callable[[], object]) -> float:
        found_s = []
        for _ in range(_PACE_REPEATS):
            begin_s = time.perf_counter()
            work()
            synchronize()
            found_s.append(time.perf_counter() - begin_s)
        return statistics.median(found_s)

    def now() -> _Pace:
        with torch.inference_mode():
            return _Pace(product_s=median_s(lambda: product(rows)), calls_s=median_s(call))

    now()  # warm up
    return now


def _copied_bytes_per_s(device: torch.device) -> float:
    """Return the rate of a long copy from pinned memory, as a data loader with `pin_memory` makes it."""
    source = torch.empty(_COPIED_BYTES, dtype=torch.uint8, pin_memory=True)
    target, synchronize = torch.empty_like(source, device=device), synchronizer(device)

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        synchronize()

    return _COPIED_BYTES / time_step(copy, budget_s=_LEAST_BUDGET_S).step_s


def trace_probe(probe: Probe) -> dict[str, Any]:
    """Trace the probe's step as `advise` traces a model's, at its one batch size; one trace serves every precision."""
    return _traced(replace(probe, precision="fp32"))


@cache
def _traced(probe: Probe) -> dict[str, Any]:
    with torch.device("meta"):  # spend no time on weights
        model = probe.make()
    loaded = LoadedModel(
        name=probe.name,
        model=model,
        make_inputs=lambda batch: (probe.inputs(batch), {}),
        batch=probe.batch,
        batch_is_fixed=True,
        loss=_loss,
        optimizer=_optimizer,
    )
    return workload_to_json(trace(loaded, mode=probe.mode, batch=probe.batch, isolated=True))


def _loss(output: torch.Tensor, batch: Any) -> torch.Tensor:
    return output.float().mean()


def _optimizer(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters)


def _time(
    probe: Probe, device: torch.device, *, budget_s: float, pace: Callable[[], _Pace]
) -> tuple[Timing, _Pace, _Pace]:
    """Return the timing of the probe, and the pace just before and after it."""
    step = _step(probe, device)
    before = pace()
    with float32_products(probe.precision):
        timing = time_step(step, budget_s=budget_s)
    return timing, before, pace()


def _step(probe: Probe, device: torch.device) -> Callable[[], None]:
    """Return a function that runs one step and returns when it is done."""
    dtype = whole_dtype(probe.precision)
    model = probe.make().train(probe.mode == "training").to(device, dtype)
    inputs = tuple(
        tensor.to(device, dtype if tensor.is_floating_point() else None) for tensor in probe.inputs(probe.batch)
    )
    synchronize = synchronizer(device)

    def infer() -> None:
        with torch.inference_mode(), autocast(probe.precision, device):
            model(*inputs)
        synchronize()

    if probe.mode == "inference":
        return infer
    optimizer = _optimizer(model.parameters())

    def train() -> None:
        model.zero_grad()
        with autocast(probe.precision, device):
            loss = _loss(model(*inputs), inputs[0])
        loss.backward()
        optimizer.step()
        synchronize()

    return train
