"""Runs as the child process that times operators, on request."""

import gc
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, NoReturn

import torch

from advisor.calibrate.design import Probe, probes
from advisor.calibrate.noise import OthersLoad
from advisor.calibrate.operator_process import TimingRequest
from advisor.calibrate.repeat_timing import time_step
from advisor.calibrate.run_step import step_of
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import UsageError
from advisor.records.device import Precision
from advisor.workload.fakes import fake_tensor_log_silenced
from advisor.workload.file import workload_to_json
from advisor.workload.loaded import LoadedModel
from advisor.workload.torch_devices import (
    device_problem,
    float32_products,
    keep_freed_memory,
    synchronizer,
    whole_dtype,
)
from advisor.workload.trace import trace
from advisor.workload.trace_child import serve

_SIZE_FACTOR: Mapping[str, int] = {"cpu": 1, "cuda": 16, "mps": 4}
"""How many times larger the batch is than on a CPU, to fill the device."""
_LEAST_BUDGET_S, _MOST_BUDGET_S = 0.015, 0.15
"""Limits of the time for one operator."""
_TURN_S = 0.5
"""Time for the operators of one request, long compared with the overhead of a request."""
_COPIED_BYTES = 2**26
"""64 MiB take about 5 ms, which makes the overhead of starting a copy negligible."""
_PACE_ROWS, _PACE_WIDTH = 128, 512
"""Size of the matmul that measures the pace: some tenths of a millisecond on two cores. A GPU gets `_SIZE_FACTOR`
times the rows."""
_PACE_CALLS = 100
_PACE_REPEATS = 5

_Pace = Mapping[str, float]
"""Time of a fixed short task now: a matmul on all threads, and single calls on one thread."""


def main() -> NoReturn:
    """Serve requests to time an operator; what libraries print is not shown."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    gc.freeze()  # torch's modules, which each collection would search
    serve(_timed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A device that is set up to time operators."""

    device: torch.device
    planned: Sequence[Probe]
    host_to_device_bytes_per_s: float | None
    pace: Callable[[], _Pace]
    others: OthersLoad


@cache
def _run(name: str, thread_count: int | None, precisions: tuple[Precision, ...]) -> _Run:
    device = torch.device(name)
    if problem := device_problem(device):
        raise UsageError(f"{name} cannot be timed: {problem}", hint="choose another device with --on")
    torch.manual_seed(0)
    if thread_count is not None:
        torch.set_num_threads(thread_count)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    keep_freed_memory()
    planned = probes(precisions, size_factor=_SIZE_FACTOR[device.type])
    trace_probe(planned[0])  # the first trace does the imports for all
    return _Run(
        device=device,
        planned=planned,
        host_to_device_bytes_per_s=_copied_bytes_per_s(device) if device.type == "cuda" else None,
        pace=_pace_of(device),
        others=OthersLoad(),
    )


def _timed(request: TimingRequest) -> dict[str, Any]:
    """Time operators until the turn is over, at least one; measure the load of other processes so far."""
    run = _run(request.device, request.thread_count, request.precisions)
    end_s = min(time.time() + _TURN_S, request.deadline_s)
    timed = []
    for index in range(request.first, len(run.planned)):
        left_s = request.deadline_s - time.time()
        budget_s = min(max(left_s / (len(run.planned) - index) / 2, _LEAST_BUDGET_S), _MOST_BUDGET_S)
        timed.append(_timed_probe(run.planned[index], run, budget_s=budget_s))
        if time.time() >= end_s:
            break
    return {
        "timed": timed,
        "planned_count": len(run.planned),
        "others_cpu_count": run.others.cpu_count(),
        "host_to_device_bytes_per_s": run.host_to_device_bytes_per_s,
    }


def _timed_probe(probe: Probe, run: _Run, *, budget_s: float) -> dict[str, Any]:
    """Return the timed operator, and the machine's pace at that moment."""
    workload, loaded = trace_probe(probe), _loaded(probe)
    loaded.model.to(run.device, whole_dtype(probe.precision))
    request = MeasureRequest(source=probe.name, mode=probe.mode, precision=probe.precision)
    step = step_of(loaded, request, device=run.device)
    before = run.pace()
    with float32_products(probe.precision):
        timing = time_step(step, budget_s=budget_s)
    after = run.pace()
    operator = {
        "name": probe.name,
        "precision": probe.precision,
        "batch": probe.batch,
        "workload": workload,
        "step_s": timing.step_s,
        "iqr_ratio": timing.iqr_ratio,
    }
    return {"operator": operator, "pace": {name: (before[name] + after[name]) / 2 for name in before}}


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
            return {"product_s": median_s(lambda: product(rows)), "calls_s": median_s(call)}

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
        loaded = _loaded(probe)
    with fake_tensor_log_silenced():
        return workload_to_json(trace(loaded, mode=probe.mode, batch=probe.batch, isolated=True))


def _loaded(probe: Probe) -> LoadedModel:
    return LoadedModel(
        name=probe.name,
        model=probe.make(),
        make_inputs=lambda batch: (probe.inputs(batch), {}),
        batch=probe.batch,
        batch_is_fixed=True,
        loss=lambda output, _: output.float().mean(),
        optimizer=torch.optim.AdamW,
    )
