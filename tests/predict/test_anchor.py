"""A step timed on one device, and what it does to the predictions of others; all expected numbers by hand."""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from advisor.cost.job import job_for
from advisor.predict.anchor import anchored, at_timed_batch, carried_ratio
from advisor.records.answer import BOUNDS
from advisor.records.device import Device, DeviceKind
from advisor.records.options import Options
from advisor.records.prediction import Anchor, Predictions
from advisor.scale.predict_on_all import predict_on_all
from tests.predict.toys import device, efficiency, linear_row, workload

COMPUTE, MEMORY = BOUNDS.index("compute"), BOUNDS.index("memory")


def gpu(identifier: str, **changes: Any) -> Device:
    return device(id=identifier, **changes)


def anchor(on: Device, **changes: Any) -> Anchor:
    """Predicted 1 s, measured 2 s (1.8 to 2.2); own spread 0.3, all of it 0.5: 0.4 is shared."""
    values: dict[str, Any] = {
        "device": on,
        "precision": "fp32",
        "batch": 8,
        "step_s": 2.0,
        "step_low_s": 1.8,
        "step_high_s": 2.2,
        "predicted_s": 1.0,
        "bound": MEMORY,
        "log_spread": 0.5,
        "own_log_spread": 0.3,
    }
    return Anchor(**(values | changes))


def predictions(*devices: Device, bound: int = MEMORY, precision: Any = "fp32") -> Predictions:
    """10 s at batch 8 and 20 s at 16 on every device; own spread 0.3, all of it 0.5."""
    shape = (len(devices), 2)
    step_s = np.tile([10.0, 20.0], (len(devices), 1))
    return Predictions(
        devices=devices,
        precisions=np.full(shape, precision, dtype=np.object_),
        time_sources=np.full(shape, "fitted", dtype=np.object_),
        compile="eager",
        batches=np.array([8, 16]),
        step_s=step_s,
        step_low_s=step_s * math.exp(-1.645 * 0.5),
        step_high_s=step_s * math.exp(1.645 * 0.5),
        log_spread=np.full(shape, 0.5),
        own_log_spread=np.full(shape, 0.3),
        bound=np.full(shape, bound),
        peak_memory_bytes=np.ones(shape),
        fits=np.ones(shape, dtype=np.bool_),
        **_more(shape),
    )


def _more(shape: tuple[int, int]) -> dict[str, Any]:
    """Fields that no test here looks at."""
    return {name: np.ones(shape) for name in Predictions.__dataclass_fields__ if name in _ENDS}


_ENDS = ("peak_memory_low_bytes", "peak_memory_high_bytes")


def test_the_shared_part_of_the_variance_is_the_share_that_is_carried() -> None:
    # 0.4^2 / 0.5^2 = 0.64 of log 2
    assert carried_ratio(anchor(gpu("here"))) == pytest.approx(2**0.64)


def test_another_gpu_moves_by_that_share_and_its_shared_spread_shrinks() -> None:
    found = anchored(predictions(gpu("there")), [anchor(gpu("here"))])

    assert found.step_s.tolist() == [pytest.approx([10 * 2**0.64, 20 * 2**0.64])]
    # 0.3^2 + (1 - 0.64) x 0.4^2 = 0.1476
    assert found.log_spread[0, 0] == pytest.approx(math.sqrt(0.1476))
    assert found.own_log_spread[0, 0] == 0.3
    assert found.step_high_s[0, 0] == pytest.approx(10 * 2**0.64 * math.exp(1.645 * math.sqrt(0.1476)))
    assert found.measured is not None
    assert not found.measured.any()


def test_the_fast_end_of_a_time_sliced_gpu_stays_that_of_the_whole_gpu() -> None:
    before = predictions(gpu("there", time_ratio=0.25))
    sliced = replace(before, step_low_s=before.step_low_s / 4)

    found = anchored(sliced, [anchor(gpu("here"))])

    assert found.step_low_s[0, 0] == pytest.approx(10 * 2**0.64 / 4 * math.exp(-1.645 * math.sqrt(0.1476)))


def test_the_very_device_has_the_timed_step_at_its_batch_and_the_share_at_others() -> None:
    here = gpu("here")

    found = anchored(predictions(here), [anchor(here)])

    assert found.step_s[0].tolist() == pytest.approx([2.0, 20 * 2**0.64])
    assert (found.step_low_s[0, 0], found.step_high_s[0, 0]) == (1.8, 2.2)
    assert found.own_log_spread[0, 0] == pytest.approx(math.log(2.2 / 1.8) / (2 * 1.645))
    assert found.measured is not None
    assert found.measured.tolist() == [[True, False]]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"bound": COMPUTE}, "another resource bounds it"),
        ({"precision": "amp-bf16"}, "it runs at another class of precision"),
    ],
)
def test_what_is_not_alike_stays_as_it_is(changes: dict[str, Any], why: str) -> None:
    before = predictions(gpu("there"), **changes)

    found = anchored(before, [anchor(gpu("here"))])

    assert found.step_s.tolist() == before.step_s.tolist(), why
    assert found.log_spread.tolist() == before.log_spread.tolist(), why


@pytest.mark.parametrize("there", ["cpu", "gpu"])
def test_a_cpu_tells_nothing_of_other_devices(there: DeviceKind) -> None:
    before = predictions(device(kind=there, id="there"))

    found = anchored(before, [anchor(device(kind="cpu", id="here"))])

    assert found.step_s.tolist() == before.step_s.tolist()
    assert found.log_spread.tolist() == before.log_spread.tolist()


def test_a_calibrated_gpu_has_seen_its_own_steps() -> None:
    before = replace(predictions(gpu("there")), time_sources=np.full((1, 2), "calibrated", dtype=np.object_))

    assert anchored(before, [anchor(gpu("here"))]).step_s.tolist() == before.step_s.tolist()


def test_a_cpu_with_other_cores_is_another_device() -> None:
    here, half = device(kind="cpu", id="cpu", core_count=4), device(kind="cpu", id="cpu", core_count=2)

    found = anchored(predictions(here, half), [anchor(here)])

    assert found.step_s[:, 0].tolist() == [2.0, 10.0]


def test_of_a_timed_device_only_the_timed_batch_is_left_where_it_stands_for_this_machine() -> None:
    here, there = gpu("here"), gpu("there")
    found = anchored(predictions(here, there), [anchor(here)])

    left = at_timed_batch(found, np.array([0, 1]))

    assert left.fits.tolist() == [[True, False], [True, True]]


def test_predictions_rest_on_the_timed_step_before_their_loader_is_added() -> None:
    # 256 FLOP a sample at 1 TFLOP/s; with the loader a CPU takes both after each other (`predict.loader`).
    here, step = device(kind="cpu", vcpu_count=2.0), workload(linear_row())
    timed = anchor(here, batch=4, step_s=1.0, step_low_s=0.9, step_high_s=1.1)

    options = Options(precision="fp32", loader_s_per_sample=0.5)
    found = predict_on_all(
        step,
        devices=[here],
        efficiencies=[efficiency(kind="cpu")],
        batches=np.array([4]),
        options=options,
        job=job_for(step, options),
        correct=partial(anchored, anchors=[timed]),
    )

    assert found.step_s[0, 0] == pytest.approx(1.0 + 4 * 0.5 / 2)
    assert found.measured is not None
    assert found.measured[0, 0]
