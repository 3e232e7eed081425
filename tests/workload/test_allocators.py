"""Allocators worked out by hand; MiB are of 2**20 bytes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from advisor.workload.allocators import Allocations, Allocator, CachingAllocator, GlibcHeap
from tests.workload.tracing import Calls, mlp, sequences, traced, vectors

MIB = 2**20
BLOCK = 16 * MIB
"""On the heap, it takes 16 MiB, 16 bytes for malloc's header, 48 before it that align it, which the smaller of its two
objects takes, and 64 behind it for the other: 16 MiB and 128 bytes."""


def test_the_heap_takes_a_freed_block_again() -> None:
    heap = GlibcHeap()
    heap.free(heap.allocate(BLOCK))
    heap.allocate(BLOCK)
    assert heap.peak_bytes == 16 * MIB + 128


def test_a_gap_between_blocks_in_use_is_lost_to_larger_ones() -> None:
    heap = GlibcHeap()
    first, _ = heap.allocate(BLOCK), heap.allocate(64)
    heap.free(first)
    heap.allocate(BLOCK + 4096)
    # 16 MiB and 128 that nobody uses; 64 with a header, rounded up to 80, and 112 around; then 16 MiB, 4096 and 16, and
    # the 96 that malloc asks for to align it.
    assert heap.peak_bytes == 16 * MIB + 128 + 192 + 16 * MIB + 4096 + 16 + 96


def test_neighbours_that_are_free_become_one() -> None:
    heap = GlibcHeap()
    blocks = [heap.allocate(BLOCK) for _ in range(3)]
    heap.allocate(64)
    for block in (blocks[0], blocks[2], blocks[1]):
        heap.free(block)
    heap.allocate(30 * MIB)
    assert heap.peak_bytes == 3 * (16 * MIB + 128) + 192


def test_large_blocks_are_mapped_alone_and_given_back() -> None:
    heap = GlibcHeap()
    large = heap.allocate(40 * MIB)
    assert heap.peak_bytes == 40 * MIB + 16 + 32 + 64  # its two objects lie in the heap
    heap.free(large)
    heap.allocate(BLOCK)
    assert heap.peak_bytes == 40 * MIB + 16 + 32 + 64
    heap.allocate(40 * MIB)
    assert heap.peak_bytes == 40 * MIB + 16 + 32 + 64 + 16 * MIB + 128


def test_a_heap_that_once_was_larger_stays() -> None:
    heap = GlibcHeap()
    for block in [heap.allocate(BLOCK) for _ in range(2)]:
        heap.free(block)
    heap.allocate(40 * MIB)
    assert heap.peak_bytes == 2 * (16 * MIB + 128) + 40 * MIB + 16


def test_cuda_takes_segments_of_2_and_20_mib_and_larger_ones_alone() -> None:
    cuda = CachingAllocator()
    cuda.allocate(1)
    assert cuda.peak_bytes == 2 * MIB
    cuda.allocate(MIB)  # beside the first, in what is left of the segment
    assert cuda.peak_bytes == 2 * MIB
    cuda.allocate(3 * MIB)
    assert cuda.peak_bytes == 22 * MIB
    cuda.allocate(11 * MIB)  # 17 MiB are left of the 20
    assert cuda.peak_bytes == 22 * MIB
    cuda.allocate(11 * MIB)  # by itself, rounded up to 12
    assert cuda.peak_bytes == 34 * MIB


def test_cuda_keeps_what_is_freed_and_splits_it() -> None:
    cuda = CachingAllocator()
    cuda.free(cuda.allocate(64 * MIB))
    cuda.allocate(32 * MIB)
    cuda.allocate(32 * MIB)
    assert cuda.peak_bytes == 64 * MIB


def test_cuda_does_not_split_a_rest_of_a_mib() -> None:
    cuda = CachingAllocator()
    block = cuda.allocate(20 * MIB)
    cuda.free(block)
    cuda.allocate(19 * MIB)
    cuda.allocate(MIB)  # a small one, which has a pool of its own in any case
    cuda.allocate(2 * MIB)
    assert cuda.peak_bytes == 20 * MIB + 2 * MIB + 20 * MIB


SIZES = st.lists(st.integers(1, 80 * MIB), min_size=1, max_size=30)


@given(sizes=SIZES, kept=st.integers(0, 30))
def test_nobody_takes_less_than_is_in_use(sizes: list[int], kept: int) -> None:
    for allocator in (GlibcHeap(), CachingAllocator()):
        assert holds_enough(allocator, sizes, kept=kept)


def holds_enough(allocator: Allocator, sizes: list[int], *, kept: int) -> bool:
    """Allocates all, then frees all but the first `kept` and allocates all again."""
    addresses = [allocator.allocate(size) for size in sizes]
    for address in addresses[kept:]:
        allocator.free(address)
    again = [allocator.allocate(size) for size in sizes]
    is_apart = not {*addresses[:kept]} & {*again}
    return is_apart and allocator.peak_bytes >= sum(sizes) + sum(sizes[:kept])


MIB = 2**20


def test_a_step_without_gaps_takes_what_its_tensors_need() -> None:
    step = Allocations(events=((1, 64 * MIB), (2, 64 * MIB), (2, None)), model_count=1)
    # Both are mapped alone, but for some bytes of headers and objects.
    assert step.taken_ratio(GlibcHeap(), has_scratch=True) == pytest.approx(1, abs=1e-5)


def test_gradients_live_until_the_next_step_and_the_optimizer_keeps_its_state() -> None:
    step = Allocations(
        events=((1, 64 * MIB), (2, 64 * MIB)), model_count=1, gradients=frozenset({2}), state_bytes=128 * MIB
    )
    cuda = CachingAllocator()
    # Model 64, gradient 64, state 128: the second step's gradient takes the block of the first one's.
    assert step.taken_ratio(cuda, has_scratch=False) == 1
    assert cuda.peak_bytes == 256 * MIB


def test_scratch_is_what_cpus_take_beside_the_tensors() -> None:
    step = Allocations(
        events=((1, 64 * MIB), (2, 64 * MIB), (2, None)), model_count=1, scratch=frozenset({2})
    )  # fmt: skip
    assert step.taken_ratio(GlibcHeap(), has_scratch=True) == pytest.approx(2, abs=1e-5)
    assert step.taken_ratio(CachingAllocator(), has_scratch=False) == 1


def test_a_workload_says_what_allocators_take() -> None:
    taken = traced(mlp(), vectors, mode="training").taken
    # Some kilobytes: CUDA's first segment of 2 MiB is a thousand times as large.
    assert taken.cache > 100
    assert taken.heap >= 1


def test_an_lstm_needs_the_workspace_of_onednn_on_a_cpu() -> None:
    lstm, gru = (
        traced(Calls(lambda self, x: self.layer(x)[0], layer=kind(8, 512, batch_first=True)), sequences, batch=64)
        for kind in (nn.LSTM, nn.GRU)
    )
    assert lstm.taken.heap > 1.5 > gru.taken.heap
