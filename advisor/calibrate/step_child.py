"""Runs as the child process that times a source's real step, on request."""

from contextlib import nullcontext, suppress
from dataclasses import asdict
from typing import Any, NoReturn

from advisor.calibrate.step_process import MeasureRequest
from advisor.machine.limits import free_memory_bytes
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.trace_child import serve, user_errors_in_step


def main() -> NoReturn:
    """Serve requests to time a step."""
    serve(MeasureRequest, _timed)


def _timed(request: MeasureRequest) -> dict[str, Any]:
    # torch is imported here, not above, as in the child that traces.
    from advisor.calibrate.run_step import time_loaded
    from advisor.workload.cuda_redirect import cuda_redirected
    from advisor.workload.execution import keep_freed_memory
    from advisor.workload.sources import load
    from advisor.workload.sources.python_file import with_weights

    keep_freed_memory()
    _limit_memory()
    # A file that puts its model on a GPU is loaded onto the CPU, if the CPU is to be timed.
    with with_weights(), cuda_redirected() if request.device == "cpu" else nullcontext():
        specs = parse_input_specs(request.inputs)
        loaded = load(request.source, mode=request.mode, specs=specs, attention=request.attention)
    with user_errors_in_step(loaded, request):
        return {"timing": asdict(time_loaded(loaded, request))}


def _limit_memory() -> None:
    """Limit this process to the memory that is free now, so that other programs do not run out of it."""
    import resource

    free_bytes = free_memory_bytes()
    if free_bytes is not None:
        with suppress(ValueError, OSError):  # a lower limit is already set
            resource.setrlimit(resource.RLIMIT_DATA, (int(free_bytes), int(free_bytes)))
