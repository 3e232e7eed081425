import numpy as np
import pytest

from advisor.predict.step_time import predict
from advisor.records.answer import BOUNDS
from advisor.records.device import Layout
from advisor.records.workload import StoredBytes
from tests.predict.toys import device, efficiency, linear_row, memory_line, operand, row, workload

LAYOUTS: tuple[Layout, ...] = ("nchw", "nhwc")
BATCHES = np.array([1, 1_000_000])
TENSOR_UNITS = {"vector": 1e12, "fp32": 1e12, "fp16": 8e12, "bf16": 8e12}
PLAIN_UNITS = {"vector": 1e12, "fp32": 1e12}


def test_every_device_is_predicted_in_its_own_precision() -> None:
    devices = [
        device(peak_flops_per_s=PLAIN_UNITS),
        device(peak_flops_per_s=TENSOR_UNITS),
        device(kind="cpu", peak_flops_per_s=PLAIN_UNITS),
    ]
    predictions = predict(
        workload(linear_row()),
        devices=devices,
        efficiencies=[efficiency(), efficiency(kind="cpu", dispatch_s=1.0)],
        batches=BATCHES,
    )
    assert predictions.precisions == ("fp32", "amp-bf16", "fp32")
    # Batch 1 in fp32 moves 4 x (144 + 24) = 672 bytes at 100 GB/s; 256 FLOP at 1 TFLOP/s take less.
    assert predictions.step_s[0, 0] == pytest.approx(672e-11)
    # Autocast: 336 bytes in half and 6 x 152 for the casts.
    assert predictions.step_s[1, 0] == pytest.approx(1248e-11)
    assert predictions.step_s[2, 0] == pytest.approx(1.0 + 672e-11)
    assert BOUNDS[predictions.bound[2, 0]] == "dispatch"


def test_only_nchw_images_are_transposed() -> None:
    images, weight = operand((0.0, 1.0), 3, 10, 10, low=True), operand(5, 3, 1, 1)
    attributes = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "transposed": False, "groups": 1}
    result = operand((0.0, 1.0), 5, 10, 10, low=True)
    toy = workload(row("aten.convolution", (images, weight), (result,), family="conv", attributes=attributes))
    step_s = {
        layout: predict(
            toy,
            devices=[device(peak_flops_per_s=TENSOR_UNITS)],
            efficiencies=[efficiency(nchw_transposed_ratio=0.25)],
            batches=BATCHES,
            layout=layout,
        ).step_s[0, 0]
        for layout in LAYOUTS
    }
    assert step_s["nchw"] - step_s["nhwc"] == pytest.approx(800e-11)  # 2 x 0.25 x 1,600 bytes at 100 GB/s


def test_a_device_without_the_unit_asked_for_takes_for_ever() -> None:
    predictions = predict(
        workload(linear_row()),
        devices=[device(kind="cpu", peak_flops_per_s=PLAIN_UNITS)],
        efficiencies=[efficiency(kind="cpu")],
        batches=BATCHES,
        precision="bf16",
    )
    assert predictions.precisions == (None,)
    assert np.isinf(predictions.step_s).all()
    assert not predictions.fits.any()


def test_a_step_without_work_takes_no_time() -> None:
    view = row("aten.view", (operand(8),), (operand(8),), family="view")
    predictions = predict(workload(view), devices=[device()], efficiencies=[efficiency()], batches=BATCHES)
    assert predictions.step_s.tolist() == [[0, 0]]
    assert predictions.fits.all()


def test_what_needs_more_than_the_device_has_does_not_fit() -> None:
    line = memory_line(activations=StoredBytes(full=(0.0, 1e6)))  # 1 MB per sample
    predictions = predict(
        workload(memory=(line,)), devices=[device(memory_bytes=16e9)], efficiencies=[efficiency()], batches=BATCHES
    )
    assert predictions.fits.tolist() == [[True, False]]


def test_a_time_is_called_fitted_where_its_generation_was_measured() -> None:
    fits = [efficiency(), efficiency(generation="First")]
    devices = [device(generation="First"), device(generation="Second"), device(source="calibrated")]
    predictions = predict(workload(linear_row()), devices=devices, efficiencies=fits, batches=BATCHES)
    assert predictions.time_sources == ("fitted", "datasheet", "calibrated")


def test_the_order_of_the_devices_does_not_matter() -> None:
    devices = [device(), device(memory_bytes_per_s=2e11), device(kind="cpu"), device(peak_flops_per_s=PLAIN_UNITS)]
    fits = [efficiency(), efficiency(kind="cpu")]
    forward = predict(workload(linear_row()), devices=devices, efficiencies=fits, batches=BATCHES)
    backward = predict(workload(linear_row()), devices=devices[::-1], efficiencies=fits, batches=BATCHES)
    assert forward.step_s.tolist() == backward.step_s[::-1].tolist()


def test_quantized_operators_run_on_cpus_alone() -> None:
    linear = row("quantized.linear_dynamic", (operand((0.0, 1.0), 4),), (operand((0.0, 1.0), 4),), family="quantized")
    predictions = predict(
        workload(linear),
        devices=[device(peak_flops_per_s=TENSOR_UNITS), device(kind="cpu", peak_flops_per_s=PLAIN_UNITS)],
        efficiencies=[efficiency(), efficiency(kind="cpu")],
        batches=BATCHES,
    )
    assert predictions.precisions == (None, "fp32")
    assert predictions.fits.tolist() == [[False, False], [True, True]]
