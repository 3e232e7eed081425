"""Defines the request to time a source's step on a device."""

from dataclasses import dataclass

from advisor.records.device import CompileMode, Layout, Precision
from advisor.workload.spawn import ProfileRequest


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
