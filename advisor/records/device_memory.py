"""Whether a step fits a device's memory: what it needs, part by part, and what would make it need less."""

from dataclasses import dataclass
from typing import Literal

from advisor.records.answer import QuotedDevice
from advisor.records.device import Precision
from advisor.records.generation import Generation
from advisor.records.workload import Mode, Phase

MEMORY_SCHEMA_VERSION = 1
Verdict = Literal["fits", "tight", "does not fit"]
"""tight: whether it fits lies within the spread of what is not known exactly."""
MemoryPart = Literal[
    "parameters", "buffers", "gradients", "optimizer state", "activations", "temporaries", "KV cache", "half copies",
    "workspaces", "allocator", "process",
]  # fmt: skip
RemedyName = Literal[
    "half precision", "narrow weights", "activation checkpointing", "gradient accumulation", "8-bit optimizer",
    "sharding",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTerm:
    """One part of the peak. `low_bytes` and `high_bytes` are equal where it is counted in the trace."""

    part: MemoryPart
    mid_bytes: float
    low_bytes: float
    high_bytes: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """What one change would do to the same step on the same device: its peak, and whether that fits.

    `change` is in words. `batch` is that of one device and one pass; `extra_flops_ratio` what is computed again, as a
    share of the step's FLOP.
    """

    name: RemedyName
    change: str
    batch: int
    peak_bytes: float
    saved_bytes: float
    verdict: Verdict
    largest_batch: int
    extra_flops_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """A step on one device: the peak with its spread, the verdict, and the largest batches.

    `largest_batch` is sure to fit, `largest_batch_at_most` may; 0: none. `phase` is where the peak is. None and nothing
    where the device has no `precision` for the step.
    """

    name: str
    device: QuotedDevice
    memory_bytes: float
    precision: Precision
    batch: int
    phase: Phase
    peak_bytes: float
    peak_low_bytes: float
    peak_high_bytes: float
    verdict: Verdict
    largest_batch: int
    largest_batch_at_most: int
    terms: tuple[MemoryTerm, ...]
    remedies: tuple[Remedy, ...]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryAnswer:
    """The step on every device asked for, the smallest memory first; in a terminal it shows itself as tables.

    Of a `generation` batches are requests in flight.
    """

    schema_version: int
    workload: str
    mode: Mode
    batch: int
    optimizer: str | None
    devices: tuple[DeviceMemory, ...]
    notes: tuple[str, ...]
    generation: Generation | None = None

    def __repr__(self) -> str:
        from shutil import get_terminal_size

        from advisor.report.memory_text import render_memory
        from advisor.report.view import View

        return render_memory(self, view=View(width=get_terminal_size().columns))
