import numpy as np
import pytest

from advisor.predict.memory import peak_memory_bytes
from advisor.predict.precision import Width
from advisor.records.workload import StoredBytes, Workload
from tests.predict.toys import linear_row, memory_line, workload

BATCHES = np.array([1.0, 10.0])
CONTEXT = 666_632_192


def peaks(toy: Workload, *, width: Width = "full") -> list[float]:
    return peak_memory_bytes(toy, batches=BATCHES, width=width, kind="gpu").tolist()


def test_the_peak_is_the_worst_moment_at_each_batch() -> None:
    constant = memory_line(parameters=StoredBytes(full=(2e9, 0.0)))
    growing = memory_line(activations=StoredBytes(full=(0.0, 1e9)))
    # 2 GB at batch 1, 10 x 1 GB at batch 10; 5 % for the allocator, and the context.
    assert peaks(workload(memory=(constant, growing))) == pytest.approx([2e9 * 1.05 + CONTEXT, 10e9 * 1.05 + CONTEXT])


@pytest.mark.parametrize(("width", "expected"), [("full", 7e9), ("autocast", 6e9), ("half", 5e9)])
def test_autocast_halves_what_it_stores_low_and_pure_half_every_float(width: Width, expected: float) -> None:
    line = memory_line(activations=StoredBytes(low=(2e9, 0.0), full=(2e9, 0.0), other=(3e9, 0.0)))
    assert peaks(workload(memory=(line,)), width=width)[0] == pytest.approx(expected * 1.05 + CONTEXT)


def test_autocast_keeps_half_copies_of_the_weights_until_the_optimizer_runs() -> None:
    # The bias (16) and weight (8 x 16) of 2 layers in half: 2 x 144 x 2 bytes.
    during = workload(linear_row(count=2), memory=(memory_line(phase="backward"),))
    assert peaks(during, width="autocast")[0] == pytest.approx(576 * 1.05 + CONTEXT, abs=1e-3)
    after = workload(linear_row(count=2), memory=(memory_line(phase="optimizer"),))
    assert peaks(after, width="autocast")[0] == CONTEXT


def test_a_cpu_holds_no_cuda_context_but_the_process() -> None:
    assert peak_memory_bytes(workload(), batches=BATCHES, width="full", kind="cpu").tolist() == [1e9, 1e9]
