import numpy as np
import pytest

from advisor.predict.lowering import UNITS, count_rows, lower
from advisor.predict.precision import Width
from advisor.records.device import DeviceKind, Precision
from advisor.records.workload import Row, Workload
from tests.predict.toys import linear_row, operand, row, workload

BATCHES = np.array([1.0, 4.0])


def moved_bytes(toy: Workload, *, width: Width = "full", compile_mode: str = "eager") -> list[float]:
    counts = count_rows(toy, batches=BATCHES, width=width, compile_mode=compile_mode)  # type: ignore[arg-type]
    return [float(value) for value in counts.moved_bytes.sum(axis=0)]


def chain_row(*, fused_in: bool, fused_out: bool) -> Row:
    data = operand((0.0, 1.0), 100, fused=fused_in)
    return row("aten.relu", (data,), (operand((0.0, 1.0), 100, fused=fused_out),), family="pointwise")


def test_flops_and_bytes_are_of_all_calls_at_every_batch() -> None:
    counts = count_rows(workload(linear_row(count=3)), batches=BATCHES, width="full", compile_mode="eager")
    assert counts.flops.tolist() == [[3 * 256, 3 * 4 * 256]]
    # 4 bytes x (bias 16 + weight 128 + batch x (8 in + 16 out)), three times.
    assert counts.moved_bytes.tolist() == [[3 * 4 * (144 + 24), 3 * 4 * (144 + 4 * 24)]]


def test_views_are_left_out() -> None:
    toy = workload(row("aten.view", (operand(8),), (operand(8),), family="view"))
    counts = count_rows(toy, batches=BATCHES, width="full", compile_mode="eager")
    assert counts.rows == ()
    kernels = lower(counts, kind="gpu", precision="fp32", compile_mode="eager")
    assert kernels.launches.tolist() == [0, 0]


def test_pure_half_moves_half_the_bytes() -> None:
    toy = workload(linear_row())
    assert moved_bytes(toy, width="half") == [value / 2 for value in moved_bytes(toy)]


def test_autocast_pays_for_the_casts_of_operands_stored_in_fp32() -> None:
    # In half: 2 x (144 + 24) = 336 at batch 1. Casts read 4 and write 2 bytes of bias, weight and data: 6 x (144 + 8).
    assert moved_bytes(workload(linear_row()), width="autocast")[0] == 336 + 6 * 152


def test_backward_finds_the_half_copies_of_weights_and_casts_their_gradients_back() -> None:
    weight, grad_out = operand(16, 8), operand((0.0, 1.0), 16, low=True)
    to_data = row("aten.mm", (grad_out, weight), (operand((0.0, 1.0), 8, low=True),), family="matmul", phase="backward")
    # In half: 2 x (16 + 128 + 8); the weight is there in half already, the result stays in half.
    assert moved_bytes(workload(to_data), width="autocast")[0] == 2 * 152
    turned = operand(16, (0.0, 1.0), low=True)
    data = operand((0.0, 1.0), 8, low=True)
    to_weight = row("aten.mm", (turned, data), (operand(16, 8, low=True),), family="matmul", phase="backward")
    # In half: 2 x (16 + 8 + 128), and the gradient (128) is cast to fp32: 6 x 128.
    assert moved_bytes(workload(to_weight), width="autocast")[0] == 2 * 152 + 6 * 128


def test_casts_are_launches_of_their_own() -> None:
    counts = count_rows(workload(linear_row(count=2)), batches=BATCHES, width="autocast", compile_mode="eager")
    kernels = lower(counts, kind="gpu", precision="amp-fp16", compile_mode="eager")
    assert kernels.launches.tolist() == [2 * (1 + 3), 2 * (1 + 3)]  # bias, data and weight each
    assert kernels.dispatches.tolist() == [8, 8]


def test_fused_operands_do_not_move_when_compiled() -> None:
    toy = workload(chain_row(fused_in=False, fused_out=True), chain_row(fused_in=True, fused_out=False))
    assert moved_bytes(toy) == [1600, 6400]  # 2 rows x (read + write) x 100 x 4 bytes, times the batch
    assert moved_bytes(toy, compile_mode="compile") == [800, 3200]


def test_a_row_whose_results_stay_fused_launches_nothing_when_compiled() -> None:
    toy = workload(chain_row(fused_in=False, fused_out=True), chain_row(fused_in=True, fused_out=False))
    launches = {}
    for mode in ("eager", "compile"):
        counts = count_rows(toy, batches=BATCHES, width="full", compile_mode=mode)  # type: ignore[arg-type]
        launches[mode] = lower(counts, kind="gpu", precision="fp32", compile_mode=mode).launches[0]  # type: ignore[arg-type]
    assert launches == {"eager": 2, "compile": 1}


def conv_row() -> Row:
    """1 x 1 convolution of 3 channels to 5 on 10 x 10 images: 300 elements in and 500 out per sample."""
    images, weight = operand((0.0, 1.0), 3, 10, 10, low=True), operand(5, 3, 1, 1)
    attributes = {"stride": (1, 1), "padding": (0, 0), "dilation": (1, 1), "transposed": False, "groups": 1}
    result = operand((0.0, 1.0), 5, 10, 10, low=True)
    return row("aten.convolution", (images, weight), (result,), family="conv", attributes=attributes)


@pytest.mark.parametrize(
    ("kind", "precision", "width", "extra_bytes"),
    [
        ("gpu", "amp-fp16", "autocast", 2 * 0.25 * 2 * 800),  # a quarter of 800 halves, read and written once more
        ("gpu", "fp32", "full", 0),
    ],
)
def test_convolutions_on_tensor_cores_transpose_a_share_of_their_images(
    kind: DeviceKind, precision: Precision, width: Width, extra_bytes: float
) -> None:
    counts = count_rows(workload(conv_row()), batches=BATCHES, width=width, compile_mode="eager")
    plain, transposing = (
        lower(counts, kind=kind, precision=precision, compile_mode="eager", transposed_ratio=ratio).moved_bytes
        for ratio in (0.0, 0.25)
    )
    assert (transposing - plain).tolist() == [[extra_bytes, 4 * extra_bytes]]


def test_inputs_travel_as_they_are_stored() -> None:
    toy = workload(inputs=(operand((0.0, 1.0), 10), operand((0.0, 1.0), 10, dtype="int64")))
    counts = count_rows(toy, batches=BATCHES, width="half", compile_mode="eager")
    assert counts.transfer_bytes.tolist() == [120, 480]  # 10 x (4 + 8) bytes per sample


@pytest.mark.parametrize(("width", "unit"), [("full", "fp32"), ("autocast", "bf16")])
def test_products_run_on_the_unit_of_their_width(width: Width, unit: str) -> None:
    counts = count_rows(workload(linear_row()), batches=BATCHES, width=width, compile_mode="eager")
    kernels = lower(counts, kind="gpu", precision="fp32" if width == "full" else "amp-bf16", compile_mode="eager")
    assert [UNITS[index] for index in kernels.unit] == [unit]
