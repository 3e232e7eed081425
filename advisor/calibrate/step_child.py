"""The process that times a source's real step: requests on one descriptor in, timings on another out."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from typing import Any, NoReturn

from advisor.calibrate.step_request import MeasureRequest
from advisor.machine.free_memory import free_memory_bytes
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.trace_child import serve, user_errors_in_step


def main() -> NoReturn:
    """Serve requests for the time of a step."""
    serve(MeasureRequest, _timed)


def _timed(request: MeasureRequest) -> dict[str, Any]:
    # torch is imported here, not above, as in the child that traces.
    from advisor.calibrate.run_step import time_loaded
    from advisor.workload.execution import keep_freed_memory
    from advisor.workload.load_source import load
    from advisor.workload.sources.python_file import with_weights

    keep_freed_memory()
    _limit_memory()
    with with_weights(), _redirected(request):
        specs = parse_input_specs(request.inputs)
        loaded = load(request.source, mode=request.mode, specs=specs, attention=request.attention)
    with user_errors_in_step(loaded, request):
        return {"timing": asdict(time_loaded(loaded, request))}


@contextmanager
def _redirected(request: MeasureRequest) -> Iterator[None]:
    """A file that puts its model on a GPU is read all the same where the CPU is to be timed."""
    from advisor.workload.cuda_redirect import cuda_redirected

    if request.device != "cpu":
        yield
        return
    with cuda_redirected():
        yield


def _limit_memory() -> None:
    """Make an allocation fail that would take more than is free now, before other programs suffer."""
    import resource

    free_bytes = free_memory_bytes()
    if free_bytes is not None:
        with suppress(ValueError, OSError):  # a lower limit is in force already
            resource.setrlimit(resource.RLIMIT_DATA, (int(free_bytes), int(free_bytes)))
