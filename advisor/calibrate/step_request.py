"""What is to be timed: a source's step, on which device and how."""

from dataclasses import dataclass

from advisor.records.device import CompileMode, Layout, Precision
from advisor.workload.spawn import ProfileRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureRequest(ProfileRequest):
    """A step of `batch` samples (None: the source's own) on `device`, of a GPU that of `gpu_uuid`.

    Of a CPU with as many threads as it has cores here; None: as torch has it. `needed_bytes` is what the step is
    predicted to need: it is refused where so much is not free. Blocks of steps are timed for about `budget_s`.
    """

    device: str = "cpu"
    gpu_uuid: str | None = None
    thread_count: int | None = None
    precision: Precision = "fp32"
    layout: Layout = "nchw"
    compile: CompileMode = "eager"
    needed_bytes: float = 0.0
    budget_s: float = 3.0
