"""Defines the settings of a captured script, so that its job is priced as the script runs."""

from dataclasses import dataclass, field

from advisor.records.device import CompileMode, DeviceKind, Layout, Precision


@dataclass(frozen=True, slots=True, kw_only=True)
class ScriptReads:
    """Files and variables that a script reads and another machine may lack.

    - `outside`: folders outside the current one in which it reads files or lists names
    - `variables`: environment variables that are set
    """

    outside: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Settings that a script makes itself, observed in its first step.

    - `gpu_precision`, `cpu_precision`: autocast for CUDA is off on a CPU; a user's `--precision` sets both to None
    - `passes`: batches of data that one step takes, for accumulated gradients or for several steps of an optimizer
    - `worker_count`: processes of its `DataLoader`; None if it has none
    - `loader_s_per_sample`: time in which one thread of this machine loads a sample; None if it was not timed
    - `sample_count`: samples that it trains in all its epochs; None if it does not say
    - `unused_autocast`: a note that its code has autocast, which was off in this run; empty if there is nothing to note
    """

    gpu_precision: Precision | None
    cpu_precision: Precision | None
    compile: CompileMode = "eager"
    layout: Layout = "nchw"
    passes: int = 1
    worker_count: int | None = None
    loader_s_per_sample: float | None = None
    sample_count: int | None = None
    unused_autocast: str = ""
    reads: ScriptReads = field(default_factory=ScriptReads)

    def precision_on(self, kind: DeviceKind) -> Precision | None:
        """Return the precision in which the script runs on a device of this kind."""
        return self.gpu_precision if kind == "gpu" else self.cpu_precision
