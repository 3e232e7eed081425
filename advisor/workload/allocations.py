"""Replays a step's allocations to see how much more memory an allocator reserves than the tensors need."""

from collections.abc import Iterable
from dataclasses import dataclass

from advisor.workload.allocators import Allocator

Event = tuple[int, int | None]
"""A storage's serial number, and its size in bytes if it is allocated, or None if it is freed."""

_STEP_COUNT = 2
"""The second step adds the optimizer's state, and reuses the gaps that the first step left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocations:
    """The allocations and frees of a step, in order."""

    events: tuple[Event, ...] = ()
    model_count: int = 0
    """The first so many events allocate the model's parameters and buffers, before the step."""
    gradients: frozenset[int] = frozenset()
    """Serial numbers of gradients, which live until the next step begins."""
    scratch: frozenset[int] = frozenset()
    """Serial numbers of blocks that only CPUs allocate."""
    state_bytes: int = 0
    """The optimizer's state, allocated in the first step and kept."""

    def taken_ratio(self, allocator: Allocator, *, has_scratch: bool) -> float:
        """Return the allocator's peak over two steps divided by the tensors' peak; at least 1."""
        replay = _Replay(self, allocator, has_scratch=has_scratch)
        for step in range(_STEP_COUNT):
            replay.step()
            if step == 0:
                replay.add_state()
        return max(1.0, allocator.peak_bytes / replay.most_bytes) if replay.most_bytes else 1.0


class _Replay:
    """Replays a step on an allocator; `most_bytes` is the most that its tensors need at once."""

    def __init__(self, allocations: Allocations, allocator: Allocator, *, has_scratch: bool) -> None:
        self.most_bytes = 0
        self._allocations = allocations
        self._allocator = allocator
        self._left_out = frozenset() if has_scratch else allocations.scratch
        self._live: dict[int, tuple[int, int]] = {}
        self._live_bytes = 0
        for serial, size_bytes in allocations.events[: allocations.model_count]:
            self._make(serial, size_bytes or 0)
        self._model = frozenset(self._live)

    def step(self) -> None:
        """Free the gradients, replay the step, and free what it leaves behind except new gradients."""
        gradients = self._allocations.gradients
        self._free_all(serial for serial in list(self._live) if serial in gradients)
        for serial, size_bytes in self._allocations.events[self._allocations.model_count :]:
            if size_bytes is None:
                self._free_all([serial])
            elif serial not in self._left_out:
                self._make(serial, size_bytes)
        self._free_all(serial for serial in list(self._live) if serial not in self._model and serial not in gradients)

    def add_state(self) -> None:
        """Allocate the optimizer's state, split in proportion to the gradients' sizes."""
        shares = {serial: self._live[serial][1] for serial in self._allocations.gradients if serial in self._live}
        gradient_bytes = sum(shares.values())
        for size_bytes in shares.values():
            share_bytes = self._allocations.state_bytes * size_bytes // max(1, gradient_bytes)
            self._allocator.allocate(share_bytes)
            self._live_bytes += share_bytes
        self.most_bytes = max(self.most_bytes, self._live_bytes)

    def _make(self, serial: int, size_bytes: int) -> None:
        if serial in self._live:
            return
        self._live[serial] = (self._allocator.allocate(size_bytes), size_bytes)
        if serial not in self._allocations.scratch:
            self._live_bytes += size_bytes
            self.most_bytes = max(self.most_bytes, self._live_bytes)

    def _free_all(self, serials: Iterable[int]) -> None:
        for serial in serials:
            found = self._live.pop(serial, None)
            if found is not None:
                self._allocator.free(found[0])
                self._live_bytes -= 0 if serial in self._allocations.scratch else found[1]
