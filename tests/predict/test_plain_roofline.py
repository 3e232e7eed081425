import numpy as np
import pytest

from advisor.predict.plain_roofline import plain_roofline
from advisor.records.device import CompileMode
from tests.predict.toys import device, linear_row, operand, row, workload

SUM = (0.0, 1.0)


def test_every_row_takes_the_longer_of_its_two_times() -> None:
    # A device of 1 FLOP/s and 1 byte/s. Of the linear layer at batch 2: 512 FLOP; 4 x (16 + 2 x 8 + 8 x 16 + 2 x 16) =
    # 768 bytes, so 768 s. The copy of 2 floats moves 16 bytes: 16 s more.
    copy = row("aten.clone", (operand(SUM),), (operand(SUM),), family="copy")
    slow = device(peak_flops_per_s={"fp32": 1.0, "vector": 1.0}, memory_bytes_per_s=1.0)
    # At a thousandth of the FLOP rate the layer takes 512,000 s.
    slower = device(peak_flops_per_s={"fp32": 1e-3, "vector": 1.0}, memory_bytes_per_s=1.0)
    step_s, flops = plain_roofline(
        workload(linear_row(), copy),
        devices=(slow, slower),
        precisions=("fp32", "fp32"),
        batches=np.array([2]),
        compile_mode="eager",
    )
    assert step_s == pytest.approx(np.array([[784.0], [512_016.0]]))
    assert flops == pytest.approx(np.array([[512.0], [512.0]]))


def test_a_device_without_the_precision_has_no_roofline() -> None:
    step_s, flops = plain_roofline(
        workload(linear_row()), devices=(device(),), precisions=(None,), batches=np.array([2]), compile_mode="eager"
    )
    assert np.isnan(step_s).all()
    assert not flops.any()


def test_under_compile_what_stays_in_a_fused_kernel_moves_no_bytes() -> None:
    # A copy of one float per sample, at batch 2: 16 bytes in eager mode, the 8 that it reads where its result is fused.
    copy = row("aten.clone", (operand(SUM),), (operand(SUM, fused=True),), family="copy")
    slow = device(peak_flops_per_s={"fp32": 1.0, "vector": 1.0}, memory_bytes_per_s=1.0)
    modes: tuple[CompileMode, ...] = ("eager", "compile")
    times_s = [
        plain_roofline(workload(copy), devices=(slow,), precisions=("fp32",), batches=np.array([2]), compile_mode=mode)[
            0
        ].item()
        for mode in modes
    ]
    assert times_s == [16.0, 8.0]


def test_autocast_computes_on_the_unit_of_its_dtype() -> None:
    # 512 FLOP at 256 FLOP/s in fp16 take 2 s; the bytes take no time.
    halves = device(peak_flops_per_s={"fp32": 1.0, "vector": 1.0, "fp16": 256.0}, memory_bytes_per_s=1e12)
    step_s, _ = plain_roofline(
        workload(linear_row()),
        devices=(halves,),
        precisions=("amp-fp16",),
        batches=np.array([2]),
        compile_mode="eager",
    )
    assert step_s.item() == pytest.approx(2.0)
