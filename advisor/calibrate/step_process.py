"""Times the real step of a source in a child process.

The child works like `advisor.workload.trace_child` and has the same protection against errors in a user's file.
"""

from contextlib import nullcontext
from dataclasses import asdict, dataclass
from typing import Any, NoReturn

from advisor.errors import UsageError
from advisor.machine.limits import free_memory_bytes
from advisor.records.device import CompileMode, Layout, Precision
from advisor.records.timing import StepTiming
from advisor.units import format_bytes
from advisor.workload.input_spec import parse_input_specs
from advisor.workload.no_network import network_refused
from advisor.workload.spawn import ProfileRequest, SourceProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest(ProfileRequest):
    """A request to time a step of `batch` samples (None: the source's own batch)."""

    device: str = "cpu"
    gpu_uuid: str | None = None
    """UUID of the GPU, if the device is one."""
    thread_count: int | None = None
    """Threads of a CPU; None: torch's default."""
    precision: Precision = "fp32"
    layout: Layout = "nchw"
    compile: CompileMode = "eager"
    needed_bytes: float = 0.0
    """Predicted memory of the step; the request is refused if less is free."""
    budget_s: float = 3.0
    """About how long blocks of steps are timed."""

    def check_memory(self, *, free_bytes: float | None) -> None:
        """Raise `UsageError` if the device has less free memory than the step needs; None: unknown."""
        if free_bytes is not None and self.needed_bytes > free_bytes:
            raise UsageError(
                f"the step needs {format_bytes(self.needed_bytes)} with a copy of the parameters, but only "
                f"{format_bytes(free_bytes)} are free",
                hint="choose a smaller batch",
            )


def measure_source(request: MeasureRequest) -> StepTiming:
    """Time the step of a source that can be built.

    The weights are those that the source's own code makes; none are downloaded. Nothing is left behind. Raises
    `UsageError` if memory is short, and the error in the child, such as `LoadError`.
    """
    request.check()
    if request.device == "cpu":  # check before its weights are made; for a GPU, torch checks in the child
        request.check_memory(free_bytes=free_memory_bytes())
    with SourceProcess.start(
        thread_count=request.thread_count, module=__name__, sees_gpus=request.device != "cpu"
    ) as child:
        child.ask(request)
        return StepTiming(**child.answer()["timing"])


def main() -> NoReturn:
    """Serve requests to time a step, in the child."""
    from advisor.workload.trace_child import serve

    serve(_timed)


def _timed(request: MeasureRequest) -> dict[str, Any]:
    # In the child; torch is imported here, not above, as in the child that traces.
    from advisor.calibrate.run_step import time_loaded
    from advisor.workload.cuda_redirect import cuda_redirected
    from advisor.workload.no_weights import weights_left_out
    from advisor.workload.sources import load
    from advisor.workload.sources.python_file import with_weights
    from advisor.workload.torch_devices import keep_freed_memory
    from advisor.workload.trace_child import limit_memory, user_errors_in_step

    keep_freed_memory()
    limit_memory(free_memory_bytes())  # so that other programs do not run out of it
    # A file that puts its model on a GPU is loaded onto the CPU, if the CPU is to be timed.
    redirected = cuda_redirected() if request.device == "cpu" else nullcontext()
    with network_refused(), with_weights(), redirected, weights_left_out():
        specs = parse_input_specs(request.inputs)
        loaded = load(request.source, mode=request.mode, specs=specs, attention=request.attention)
    with network_refused(), user_errors_in_step(loaded, request):
        return {"timing": asdict(time_loaded(loaded, request))}
