"""Sizes that are allocated and freed in, the memory that an allocator takes from the system for them out.

Two models of what stands between tensors and the system: glibc's heap under torch on CPUs, and torch's caching
allocator on CUDA. Both keep freed blocks for later ones, whole or in parts; what lies between those in use is lost
meanwhile.
"""

from bisect import bisect_left, insort
from typing import Protocol

_MIB = 2**20


class Allocator(Protocol):
    """Gives blocks and takes them back; `peak_bytes` is the most that it has held of the system's memory."""

    peak_bytes: int

    def allocate(self, size_bytes: int) -> int:
        """The address of a block."""

    def free(self, address: int) -> None:
        """Take back the block at an address that `allocate` gave."""


class GlibcHeap:
    """glibc's malloc as it is without settings (malloc/malloc.c, 2.36), once its thresholds have grown with use.

    Blocks of 32 MiB and more are mapped alone and go back to the system when freed. All others come from the heap, the
    smallest free one that is large enough, and stay with the process. To align a tensor to 64 bytes malloc looks for
    96 more than it needs, and frees what is left before and behind; small objects, which come and go with the tensor,
    take that, and keep the gap that the tensor leaves too small for the next one of its size.
    """

    _MAPPED = 32 * _MIB  # DEFAULT_MMAP_THRESHOLD_MAX, where the threshold goes with the first such blocks freed
    _ALIGNMENT = 64  # c10/core/alignment.h
    _SMALLEST = 32
    _OBJECTS = (32, 64)  # fit into what aligning leaves over

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._heap = _FreeBlocks()
        self._heap_bytes = 0
        self._heap_peak_bytes = 0
        self._size_at: dict[int, int] = {}
        self._objects_of: dict[int, list[int]] = {}
        self._mapped: dict[int, int] = {}
        self._mapped_bytes = 0
        self._next_map = -1

    def allocate(self, size_bytes: int) -> int:
        """The address of a block, with the objects beside it; those mapped alone have negative ones."""
        size = max(self._SMALLEST, _rounded(size_bytes + 8, 16))
        is_mapped = size + self._ALIGNMENT + self._SMALLEST >= self._MAPPED
        address = self._map(size) if is_mapped else self._aligned(size)
        self._objects_of[address] = [self._take(object_size) for object_size in self._OBJECTS]
        self.peak_bytes = max(self.peak_bytes, self._heap_peak_bytes + self._mapped_bytes)
        return address

    def free(self, address: int) -> None:
        """Give a mapped block back to the system, another and all objects to the heap."""
        if address < 0:
            self._mapped_bytes -= self._mapped.pop(address)
        else:
            self._give(address, self._size_at.pop(address))
        for object_address in self._objects_of.pop(address):
            self._give(object_address, self._size_at.pop(object_address))

    def _map(self, size: int) -> int:
        address, self._next_map = self._next_map, self._next_map - 1
        self._mapped[address] = size
        self._mapped_bytes += size
        return address

    def _aligned(self, size: int) -> int:
        """As `_int_memalign` has it."""
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
        address, found_size = self._heap.take_best(size) or self._from_top(size)
        if found_size - size >= self._SMALLEST:
            self._heap.add(address + size, found_size - size)
            found_size = size
        self._size_at[address] = found_size
        return address

    def _from_top(self, size: int) -> tuple[int, int]:
        start = self._heap_bytes
        self._heap_bytes += size
        self._heap_peak_bytes = max(self._heap_peak_bytes, self._heap_bytes)
        return start, size

    def _give(self, address: int, size: int) -> None:
        start, size = self._heap.merged(address, size)
        if start + size == self._heap_bytes:
            self._heap_bytes = start
        else:
            self._heap.add(start, size)


class CachingAllocator:
    """torch's allocator on CUDA as it is without settings (c10/cuda/CUDACachingAllocator.cpp).

    Blocks come from segments: of 2 MiB for those up to 1 MiB, of 20 MiB for those below 10 MiB, else of their own size.
    A freed block is kept, merged with free neighbours of its segment, and split for smaller ones. Segments go back to
    the system only where an allocation would fail, which is not followed here.
    """

    _SMALL = _MIB
    _LARGE = 10 * _MIB

    def __init__(self) -> None:
        self.peak_bytes = 0
        self._pools = {True: _FreeBlocks(), False: _FreeBlocks()}  # of small blocks, of others
        self._blocks: dict[int, tuple[int, bool]] = {}
        self._next_segment = 0

    def allocate(self, size_bytes: int) -> int:
        """The address of a block."""
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
        """Keep the block for later ones."""
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
        self._next_segment += segment + 1  # no segment is another's neighbour
        self.peak_bytes += segment
        return start, segment


class _FreeBlocks:
    """Free blocks; neighbours become one."""

    def __init__(self) -> None:
        self._by_size: list[tuple[int, int]] = []
        self._size_at: dict[int, int] = {}
        self._start_of_end: dict[int, int] = {}

    def take_best(self, size: int) -> tuple[int, int] | None:
        """Address and size of the smallest of at least `size`, the lowest of equals."""
        index = bisect_left(self._by_size, (size, -1))
        if index == len(self._by_size):
            return None
        found_size, start = self._by_size[index]
        self._take(start, found_size)
        return start, found_size

    def merged(self, start: int, size: int) -> tuple[int, int]:
        """The block with its free neighbours, which are taken out."""
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
        """Put a block in that has no free neighbour."""
        insort(self._by_size, (size, start))
        self._size_at[start] = size
        self._start_of_end[start + size] = start

    def _take(self, start: int, size: int) -> None:
        del self._by_size[bisect_left(self._by_size, (size, start))]
        del self._size_at[start]
        del self._start_of_end[start + size]


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit
