from itertools import pairwise

import numpy as np
import pytest

from advisor.errors import UsageError
from advisor.predict.batches import batch_candidates, batches_of, concurrencies, predict_growing
from advisor.predict.step_time import predict
from advisor.records.device import DeviceKind
from advisor.records.options import Options
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.workload import Row
from tests.predict.toys import device, efficiency, linear_row, operand, row, workload
from tests.scale.test_served import generation


def candidates(text: str, mode: str = "inference", source_batch: int = 24) -> list[int]:
    return batch_candidates(text, mode=mode, source_batch=source_batch).tolist()  # type: ignore[arg-type]


def test_auto_is_the_powers_of_two_and_the_sources_own() -> None:
    assert candidates("auto") == [1, 2, 4, 8, 16, 24, 32, 64, 128, 256, 512, 1024, 2048, 4096]


def test_nothing_asked_is_auto_for_inference_and_the_sources_own_for_training() -> None:
    assert candidates("") == candidates("auto")
    assert candidates("", mode="training") == [24]


def test_one_several_and_a_range() -> None:
    assert candidates("48") == [48]
    assert candidates("64, 16,32") == [16, 32, 64]
    assert candidates("12..100") == [12, 16, 32, 64, 100]


@pytest.mark.parametrize("text", ["0", "-4", "many", "8..", "3.5", "1,,2", "²", "64..32"])
def test_anything_else_is_refused_with_the_text(text: str) -> None:
    with pytest.raises(UsageError, match="--batch") as caught:
        candidates(text)
    assert text in caught.value.message
    assert caught.value.hint


def test_more_than_twenty_are_refused() -> None:
    with pytest.raises(UsageError, match="21 sizes"):
        candidates(",".join(str(size) for size in range(1, 22)))


def test_requests_in_flight_grow_by_a_quarter_at_most_from_four_on() -> None:
    sizes = concurrencies().tolist()
    # Four steps of 2 from 8 to 16, of 4 from 16 to 32.
    assert sizes[:14] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24]
    assert sizes[-1] == 4096
    assert all(larger <= 1.25 * size for size, larger in pairwise(sizes[3:]))
    assert set(candidates("auto", source_batch=1)) <= set(sizes)


def test_a_language_model_in_service_has_its_own_sizes_unless_some_are_asked_for() -> None:
    def asked(text: str) -> list[int]:
        return batches_of(generation(), Options(batch=text)).tolist()  # type: ignore[no-any-return]

    assert asked("") == asked("auto") == concurrencies().tolist()
    assert asked("5..20") == [5, 8, 16, 20]
    plain = workload(linear_row())
    assert batches_of(plain, Options()).tolist() == candidates("auto", source_batch=plain.batch)


def grown(
    *, most: int = 1 << 20, rows: tuple[Row, ...] = (linear_row(),), kind: DeviceKind = "gpu", **device_fields: float
) -> list[int]:
    """A sample moves 96 bytes at 100 GB/s, in 0.96 ns, and the host dispatches the step in 10 us."""

    def predict_at(batches: IndexArray) -> Predictions:
        return predict(
            workload(*rows),
            devices=[device(kind=kind, host_to_device_bytes_per_s=None, **device_fields)],
            efficiencies=[efficiency(kind=kind, dispatch_s=10e-6)],
            batches=batches,
            precision="fp32",
        )

    return predict_growing(predict_at, np.array([1, 4096]), most=most).batches.tolist()  # type: ignore[no-any-return]


def test_batches_grow_while_the_host_is_slower_than_the_device() -> None:
    # Dispatching takes longer up to batch 5,208 (half of it passes before the first kernel), so 8,192 is not idle.
    assert grown() == [1, 4096, 8192, 16384]
    assert grown(most=10_000) == [1, 4096, 8192]
    assert grown(most=5000) == [1, 4096]


def test_batches_do_not_grow_on_a_device_without_the_memory() -> None:
    assert grown(memory_bytes=1.0) == [1, 4096]


def test_batches_do_not_grow_while_one_core_draws_random_numbers() -> None:
    # It draws 100 for each sample in 100 x 20 cycles: 2 ms at batch 4,096 and 4 GHz, of which 10 us are dispatched.
    numbers = operand((0.0, 1.0), 100)
    draw = row("aten.bernoulli_", (numbers,), (numbers,), family="random")
    assert grown(rows=(draw,), kind="cpu") == [1, 4096]
