import numpy as np
import pytest

from advisor.predict.step_time import predict
from advisor.records.answer import BOUNDS
from advisor.records.device import Layout, Precision
from advisor.records.workload import Row, StoredBytes
from tests.predict.toys import device, efficiency, family, linear_row, memory_line, operand, row, workload

LAYOUTS: tuple[Layout, ...] = ("nchw", "nhwc")
BATCHES = np.array([1, 1_000_000])
TENSOR_UNITS = {"vector": 1e12, "fp32": 1e12, "fp16": 8e12, "bf16": 8e12}
PLAIN_UNITS = {"vector": 1e12, "fp32": 1e12}


def test_auto_is_the_cheapest_safe_precision_of_each_device_and_batch() -> None:
    devices = [
        device(peak_flops_per_s=PLAIN_UNITS),
        device(peak_flops_per_s=TENSOR_UNITS | {"vector": 1e11, "fp32": 1e11}),
        device(kind="cpu", peak_flops_per_s=PLAIN_UNITS),
    ]
    predictions = predict(
        workload(linear_row()),
        devices=devices,
        efficiencies=[efficiency(), efficiency(kind="cpu", dispatch_s=1.0)],
        batches=BATCHES,
    )
    assert predictions.precisions.tolist() == [["fp32", "fp32"], ["fp32", "amp-bf16"], ["fp32", "fp32"]]
    # Batch 1 in fp32 moves 4 x (144 + 24) = 672 bytes at 100 GB/s; 256 FLOP at 0.1 TFLOP/s take less.
    # In autocast: 336 bytes in half and 6 x 152 for the casts.
    assert predictions.step_s[:2, 0] == pytest.approx([672e-11, 672e-11])
    # A million samples: 2.56 ms of FLOP in fp32; autocast moves 48,000,288 bytes and casts 48,000,864 in 0.96 ms.
    assert predictions.step_s[1, 1] == pytest.approx(96_001_152e-11)
    assert predictions.step_s[2, 0] == pytest.approx(1.0 + 672e-11)
    assert BOUNDS[predictions.bound[2, 0]] == "dispatch"


def test_auto_takes_what_fits_before_what_is_fast() -> None:
    # Parameters are 576 bytes in either; activations of 1,000 bytes a sample halve with autocast.
    toy = workload(linear_row(), memory=(memory_line(activations=StoredBytes(full=(0.0, 1000.0), low=(0.0, 500.0))),))
    needed = {
        choice: predict(
            toy, devices=[device()], efficiencies=[efficiency()], batches=BATCHES, precision=choice
        ).peak_memory_bytes[0, 1]
        for choice in ("fp32", "amp-bf16")
    }
    assert needed["amp-bf16"] < needed["fp32"]
    between = (needed["amp-bf16"] + needed["fp32"]) / 2
    found = predict(toy, devices=[device(memory_bytes=between)], efficiencies=[efficiency()], batches=BATCHES)
    # In fp32 a million samples take 960.0058 us, in autocast 960.0115 us: see the bytes above.
    assert found.precisions.tolist() == [["fp32", "amp-bf16"]]
    assert found.fits.all()


def test_tf32_leaves_kernels_outside_tensor_cores_as_they_are_in_fp32() -> None:
    images, weight = operand((0.0, 1.0), 4, 10, 10), operand(4, 1, 1, 1)
    attributes = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "transposed": False, "groups": 4}
    depthwise = row("aten.convolution", (images, weight), (images,), family="conv", attributes=attributes)
    fits = [
        efficiency(precision="fp32", edge_ramp=2.0),
        efficiency(precision="tf32", edge_ramp=9.0, families={"*": family(memory_ratio=0.5, compute_ratio=0.5)}),
    ]

    def step_s(step: Row, precision: Precision) -> float:
        found = predict(
            workload(step), devices=[device()], efficiencies=fits, batches=np.array([1]), precision=precision
        )
        return float(found.step_s[0, 0])

    assert step_s(depthwise, "fp32") == step_s(depthwise, "tf32") == step_s(depthwise, "cudnn-tf32")
    # A product moves 672 bytes at 100 GB/s, in TF32 at half of that; cuDNN's TF32 does not reach it.
    assert step_s(linear_row(), "tf32") == pytest.approx(1344e-11)
    assert step_s(linear_row(), "cudnn-tf32") == step_s(linear_row(), "fp32") == pytest.approx(672e-11)


def test_only_nchw_images_are_transposed() -> None:
    images, weight = operand((0.0, 1.0), 8, 10, 10, low=True), operand(8, 8, 1, 1)
    attributes = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "transposed": False, "groups": 1}
    toy = workload(row("aten.convolution", (images, weight), (images,), family="conv", attributes=attributes))
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
    assert step_s["nchw"] - step_s["nhwc"] == pytest.approx(1600e-11)  # 2 x 0.25 x 3,200 bytes at 100 GB/s


def test_a_convolution_with_a_weight_for_each_sample_is_grouped_from_two_samples_on() -> None:
    images, weight = operand(1, (0.0, 64.0), 32, 32), operand((0.0, 64.0), 64, 3, 3)
    attributes = {"stride": (1, 1), "padding": (1, 1), "dilation": (1, 1), "transposed": False, "groups": 1}
    toy = workload(row("aten.convolution", (images, weight), (images,), family="conv", attributes=attributes))
    families = {"*": family(), "conv_grouped": family(compute_ratio=0.5)}

    def step_s(*batches: int) -> list[float]:
        found = predict(
            toy,
            devices=[device()],
            efficiencies=[efficiency(families=families, winograd_speedup=2.0)],
            batches=np.array(batches),
            precision="fp32",
        )
        return found.step_s[0].tolist()

    # 2 x 64 x 64 x 9 x 1,024 FLOP per sample at 1 TFLOP/s: by Winograd's algorithm in half of the time, grouped in
    # twice the time.
    sample_s = 75_497_472e-12
    assert step_s(1, 2, 8) == pytest.approx([sample_s / 2, 2 * 2 * sample_s, 8 * 2 * sample_s])
    assert step_s(8) == step_s(1, 8)[1:]


def test_a_device_without_the_unit_asked_for_takes_for_ever() -> None:
    predictions = predict(
        workload(linear_row()),
        devices=[device(kind="cpu", peak_flops_per_s=PLAIN_UNITS)],
        efficiencies=[efficiency(kind="cpu")],
        batches=BATCHES,
        precision="bf16",
    )
    assert predictions.precisions[:, 0].tolist() == [None]
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
    assert predictions.time_sources[:, 0].tolist() == ["fitted", "datasheet", "calibrated"]


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
    assert predictions.precisions[:, 0].tolist() == [None, "fp32"]
    assert predictions.fits.tolist() == [[False, False], [True, True]]
