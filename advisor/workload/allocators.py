"""Models how much more memory two allocators take than a step's tensors need: glibc's heap, and torch's cache on CUDA.

Both keep freed blocks and reuse them, whole or split; gaps between blocks in use are lost to fragmentation.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from advisor.records.device import MAPPED_BLOCK_BYTES

_MIB = 2**20


class GlibcHeap:
    """glibc's malloc with default settings (malloc/malloc.c, 2.36), after its dynamic thresholds have grown.

    Blocks of 32 MiB and more are mapped separately and returned to the system when freed. All others come from the
    heap (best fit) and stay with the process. To align a tensor to 64 bytes, malloc searches for 96 bytes more than
    needed and frees the rest on both sides. Small objects that live as long as the tensor take that space, so the gap
    that the tensor leaves is too small for the next one of its size.
    """

    _ALIGNMENT = 64  # c10/core/alignment.h
    _SMALLEST = 32
    _OBJECTS = (32, 64)  # small enough for the space that alignment leaves

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._heap = _FreeBlocks()
        self._heap_bytes = 0
        self._heap_peak_bytes = 0
        self._size_at: dict[int, int] = {}
        self._objects_of: dict[int, list[int]] = {}
        self._mapped_bytes = 0
        self._next_map = -1

    def allocate(self, size_bytes: int) -> int:
        """Return the address of a new block, negative if it is mapped; also allocate the objects beside it."""
        size = max(self._SMALLEST, _rounded(size_bytes + 8, 16))
        if size + self._ALIGNMENT + self._SMALLEST >= MAPPED_BLOCK_BYTES:
            address, self._next_map = self._next_map, self._next_map - 1
            self._size_at[address] = size
            self._mapped_bytes += size
        else:
            address = self._aligned(size)
        self._objects_of[address] = [self._take(object_size) for object_size in self._OBJECTS]
        self.peak_bytes = max(self.peak_bytes, self._heap_peak_bytes + self._mapped_bytes)
        return address

    def free(self, address: int) -> None:
        """Return a mapped block to the system, or another block to the heap, and the objects to the heap."""
        size = self._size_at.pop(address)
        if address < 0:
            self._mapped_bytes -= size
        else:
            self._give(address, size)
        for object_address in self._objects_of.pop(address):
            self._give(object_address, self._size_at.pop(object_address))

    def _aligned(self, size: int) -> int:
        """Allocate an aligned block like `_int_memalign`."""
        start = self._take(size + self._ALIGNMENT + self._SMALLEST)
        end = start + self._size_at.pop(start)
        aligned = _rounded(start + 16, self._ALIGNMENT) - 16
        if aligned != start:
            if aligned - start < self._SMALLEST:
                aligned += self._ALIGNMENT
            self._give(start, aligned - start)
        if end - (aligned + size) > self._SMALLEST:
            self._give(aligned + size, end - (aligned + size))
            end = aligned + size
        self._size_at[aligned] = end - aligned
        return aligned

    def _take(self, size: int) -> int:
        address, found_size = self._heap.take_best(size) or (self._heap_bytes, size)
        if address == self._heap_bytes:
            self._heap_bytes += size
            self._heap_peak_bytes = max(self._heap_peak_bytes, self._heap_bytes)
        if found_size - size >= self._SMALLEST:
            self._heap.add(address + size, found_size - size)
            found_size = size
        self._size_at[address] = found_size
        return address

    def _give(self, address: int, size: int) -> None:
        start, size = self._heap.merged(address, size)
        if start + size == self._heap_bytes:
            self._heap_bytes = start
        else:
            self._heap.add(start, size)


class CachingAllocator:
    """torch's CUDA caching allocator with default settings (c10/cuda/CUDACachingAllocator.cpp).

    Blocks come from segments: 2 MiB for blocks up to 1 MiB, 20 MiB for blocks below 10 MiB, else the block's own size.
    A freed block is kept, merged with free neighbours in its segment, and split for smaller ones. Segments are
    returned to the system only when an allocation would fail, which is not modelled here.
    """

    _SMALL = _MIB
    _LARGE = 10 * _MIB

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._pools = {True: _FreeBlocks(), False: _FreeBlocks()}  # True: small blocks
        self._blocks: dict[int, tuple[int, bool]] = {}
        self._next_segment = 0

    def allocate(self, size_bytes: int) -> int:
        """Return the address of a new block."""
        size = _rounded(max(size_bytes, 1), 512)
        is_small = size <= self._SMALL
        pool = self._pools[is_small]
        address, found_size = pool.take_best(size) or self._segment(size)
        rest = found_size - size
        if rest >= 512 if is_small else rest > self._SMALL:
            pool.add(address + size, rest)
            found_size = size
        self._blocks[address] = (found_size, is_small)
        return address

    def free(self, address: int) -> None:
        """Keep the block for later allocations."""
        size, is_small = self._blocks.pop(address)
        pool = self._pools[is_small]
        pool.add(*pool.merged(address, size))

    def _segment(self, size: int) -> tuple[int, int]:
        if size <= self._SMALL:
            segment = 2 * _MIB
        elif size < self._LARGE:
            segment = 20 * _MIB
        else:
            segment = _rounded(size, 2 * _MIB)
        start = self._next_segment
        self._next_segment += segment + 1  # the gap keeps blocks of different segments from merging
        self.peak_bytes += segment
        return start, segment


class _FreeBlocks:
    """Free blocks, merged with their free neighbours."""

    def __init__(self) -> None:
        self._by_size: list[tuple[int, int]] = []
        self._size_at: dict[int, int] = {}
        self._start_of_end: dict[int, int] = {}

    def take_best(self, size: int) -> tuple[int, int] | None:
        """Remove and return (address, size) of the smallest block of at least `size`, the lowest address first."""
        index = bisect_left(self._by_size, (size, -1))
        if index == len(self._by_size):
            return None
        found_size, start = self._by_size[index]
        self._take(start, found_size)
        return start, found_size

    def merged(self, start: int, size: int) -> tuple[int, int]:
        """Return the block merged with its free neighbours, which are removed."""
        after = self._size_at.get(start + size)
        if after is not None:
            self._take(start + size, after)
            size += after
        before = self._start_of_end.get(start)
        if before is not None:
            before_size = self._size_at[before]
            self._take(before, before_size)
            start, size = before, size + before_size
        return start, size

    def add(self, start: int, size: int) -> None:
        """Add a block that has no free neighbour."""
        insort(self._by_size, (size, start))
        self._size_at[start] = size
        self._start_of_end[start + size] = start

    def _take(self, start: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, start))]
        del self._size_at[start]
        del self._start_of_end[start + size]


Allocator = GlibcHeap | CachingAllocator


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


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
    double_state_bytes: int = 0
    """The part of it in float64."""

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
