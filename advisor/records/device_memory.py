"""Defines the memory needs of a step on a device, part by part, and the changes that reduce them."""

from dataclasses import dataclass
from typing import Literal

from advisor.records.answer import QuotedDevice
from advisor.records.device import Precision
from advisor.records.displayed import Displayed
from advisor.records.generation import Generation
from advisor.records.scale import Plan
from advisor.records.workload import Mode, Phase

MEMORY_SCHEMA_VERSION = 1
Verdict = Literal["fits", "tight", "does not fit"]
"""tight: it may or may not fit, within the uncertainty of the peak."""
MemoryPart = Literal[
    "parameters", "buffers", "gradients", "optimizer state", "activations", "temporaries", "KV cache", "half copies",
    "draft model", "workspaces", "allocator", "process",
]  # fmt: skip
RemedyName = Literal[
    "half precision", "narrow weights", "chunked logits", "activation checkpointing", "gradient accumulation",
    "8-bit optimizer", "sharding",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryTerm:
    """One part of the peak; `low_bytes` and `high_bytes` are equal if it is counted exactly in the trace."""

    part: MemoryPart
    mid_bytes: float
    low_bytes: float
    high_bytes: float
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """One change that reduces the memory of the same step on the same device.

    - `change`: the change in words
    - `batch`: batch of one device in one pass
    - `largest_batch`: over all devices and passes
    - `extra_flops_ratio`: recomputed FLOP over the step's FLOP
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
    """The memory of a step on one device, or on each GPU of a machine under `plan`.

    - `batch`, `largest_batch`, `largest_batch_at_most`: over all devices and passes
    - `plan`: how the ranking would spread the step over the machine's GPUs; None if it runs on one
    - `phase`: the phase of the peak
    - `usable_bytes`: the device's memory, or the part of it that the engine of a served model takes
    - `peak_low_bytes`, `peak_high_bytes`: ends of the interval of the peak
    - `largest_batch`: largest batch that surely fits; 0 if none does
    - `largest_batch_at_most`: largest batch that may fit; 0 if none does
    """

    name: str
    device: QuotedDevice
    memory_bytes: float
    usable_bytes: float
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
    plan: Plan | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MemoryAnswer(Displayed, report="memory"):
    """The memory of a step on every requested device, smallest memory first.

    It is displayed as tables in a terminal and in a notebook. If `generation` is set, batches are requests in flight.
    """

    schema_version: int
    workload: str
    mode: Mode
    batch: int
    optimizer: str | None
    devices: tuple[DeviceMemory, ...]
    notes: tuple[str, ...]
    generation: Generation | None = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class FitAnswer(Displayed, report="fit"):
    """The answer whether a step fits one device: true if it surely does, displayed as one sentence.

    - `on`: the name of the device
    - `memory`: the memory of the step on the device; None if it is not known
    - `larger`: the smallest device on offer, of the same kind, that surely holds the step; None if the step fits `on`,
      or if there is none
    - `reason`: why the memory is not known, else empty
    """

    on: str
    memory: MemoryAnswer | None = None
    larger: DeviceMemory | None = None
    reason: str = ""

    @property
    def verdict(self) -> Verdict | Literal["unknown"]:
        """Return "fits", "tight" (it may fit, within the uncertainty of the peak), "does not fit" or "unknown"."""
        return "unknown" if self.memory is None else self.memory.devices[0].verdict

    @property
    def fits(self) -> bool:
        """Return True if the step surely fits."""
        return self.verdict == "fits"

    @property
    def is_tight(self) -> bool:
        """Return True if the step may or may not fit."""
        return self.verdict == "tight"

    def __bool__(self) -> bool:
        return self.fits

    @property
    def needed_bytes(self) -> float | None:
        """Return the point estimate of the peak."""
        return None if self.memory is None else self.memory.devices[0].peak_bytes

    @property
    def available_bytes(self) -> float | None:
        """Return the memory of the device, or the part of it that the engine of a served model takes."""
        return None if self.memory is None else self.memory.devices[0].usable_bytes

    @property
    def margin_bytes(self) -> float | None:
        """Return the available less the needed bytes; negative if memory is missing."""
        device = None if self.memory is None else self.memory.devices[0]
        return None if device is None else device.usable_bytes - device.peak_bytes

    @property
    def largest_batch(self) -> int | None:
        """Return the largest batch that surely fits; 0 if none does."""
        return None if self.memory is None else self.memory.devices[0].largest_batch

    @property
    def remedies(self) -> tuple[Remedy, ...]:
        """Return the changes with which the same step surely fits the same device, cheapest first; empty if it fits."""
        devices = () if self.memory is None or self.fits else self.memory.devices
        return tuple(remedy for device in devices for remedy in device.remedies if remedy.verdict == "fits")
