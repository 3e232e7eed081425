import pytest
from torch import nn

from advisor.workload.allocations import Allocations
from advisor.workload.allocators import CachingAllocator, GlibcHeap
from tests.workload.tracing import Calls, mlp, sequences, traced, vectors

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
