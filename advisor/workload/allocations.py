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
        live: dict[int, tuple[int, int]] = {}
        live_bytes = most_bytes = 0
        left_out = frozenset() if has_scratch else self.scratch

        def hold(size_bytes: int) -> None:
            nonlocal live_bytes, most_bytes
            live_bytes += size_bytes
            most_bytes = max(most_bytes, live_bytes)

        def replay(events: Iterable[Event]) -> None:
            for serial, size_bytes in events:
                if size_bytes is None:
                    address, freed_bytes = live.pop(serial, (None, 0))
                    if address is not None:
                        allocator.free(address)
                        hold(0 if serial in self.scratch else -freed_bytes)
                elif serial not in live and serial not in left_out:
                    live[serial] = (allocator.allocate(size_bytes), size_bytes)
                    hold(0 if serial in self.scratch else size_bytes)

        replay(self.events[: self.model_count])
        model = frozenset(live)
        for step in range(_STEP_COUNT):
            replay([(serial, None) for serial in live if serial in self.gradients])
            replay(self.events[self.model_count :])
            replay([(serial, None) for serial in live if serial not in model and serial not in self.gradients])
            if step == 0:  # the optimizer makes its state, split in proportion to the gradients' sizes
                shares = [live[serial][1] for serial in self.gradients if serial in live]
                for size_bytes in shares:
                    share_bytes = self.state_bytes * size_bytes // max(1, sum(shares))
                    allocator.allocate(share_bytes)
                    hold(share_bytes)
        return max(1.0, allocator.peak_bytes / most_bytes) if most_bytes else 1.0
