"""The times of engines' kernels, fitted on made-up times and on published ones."""

from pathlib import Path

import numpy as np
import pytest
from fit_engine_kernels import EngineKernel, fitted_kernels, kernel_s, with_engine_kernels, with_fitted_engine
from fit_kind import measured_steps

from advisor.answers.measurement_file import read_measurements
from advisor.catalog.overlay import load_catalog
from advisor.fit.files import yaml_text
from advisor.fit.sample import MeasuredStep
from advisor.predict.capability import gpu_device, without_own_ratios
from advisor.predict.efficiency import efficiency_of
from advisor.predict.lowering import lower
from advisor.predict.row_work import count_rows
from advisor.records.device import Device, Efficiency
from advisor.records.workload import Row
from tests.predict.toys import device, efficiency, family, operand, row, workload

MEASURED = Path(__file__).parent / "data/measured"
ENGINE = MEASURED / "vidur_engine.csv"
LINEAR = MEASURED / "vidur_ops.csv"
GPU = device(memory_bytes_per_s=1e12, core_count=100)
TRUE = EngineKernel(core_bytes_per_s=2e9, launch_s=3e-6)


TOKENS = operand((0.0, 1.0), 1000)
NORM = row("engine.norm", (TOKENS,), (TOKENS,), family="rms_norm")


def step(batch: float, one: Device = GPU, measured_s: float = 1.0, operator: Row = NORM) -> MeasuredStep:
    counts = count_rows(workload(operator), batches=np.array([float(batch)]), width="half")
    return MeasuredStep(
        kernels=lower(counts, kind="gpu", precision="fp16"),
        device=one,
        precision="half",
        group=("toy", one.id),
        measured_s=measured_s,
    )


def with_kernel(kernel: EngineKernel) -> Efficiency:
    base = efficiency(families={"*": family(), "pointwise": family(memory_ratio=0.5)})
    return with_engine_kernels(base, {"rms_norm": kernel}, log_spread=0.1, n=3, source="by hand")


def test_times_come_out_with_the_figures_that_they_were_made_with() -> None:
    truth = with_kernel(TRUE)
    steps = [step(batch) for batch in (1.0, 10.0, 100.0, 1000.0, 10_000.0)]
    # 10,000 tokens of 1,000 halves in and out: 40 MB, on 100 cores of 2 GB/s 200 us, and 3 of the launch.
    assert kernel_s(steps, truth)[-1] == pytest.approx(203e-6)
    timed = [
        step(float(one.kernels.blocks[0, 0]), measured_s=s)
        for one, s in zip(steps, kernel_s(steps, truth), strict=True)
    ]
    found = fitted_kernels(timed, efficiency(families={"*": family(), "pointwise": family(memory_ratio=0.5)}))
    assert found["rms_norm"].core_bytes_per_s == pytest.approx(2e9, rel=1e-3)
    assert found["rms_norm"].launch_s == pytest.approx(3e-6, rel=1e-3)


def test_where_memory_bounds_it_a_kernel_streams_as_pointwise_ones_do() -> None:
    # 40 MB at half of 1 TB/s.
    fast = with_kernel(EngineKernel(core_bytes_per_s=1e12, launch_s=0.0))
    assert kernel_s([step(10_000.0)], fast)[0] == pytest.approx(80e-6)


def test_the_figures_of_a_kernel_are_written_into_its_line() -> None:
    line = next(line for line in yaml_text(with_kernel(TRUE)).splitlines() if "rms_norm" in line)
    assert "core_bytes_per_s: 2.0e+09, launch_s: 3.0e-06, n: 3" in line
    others = [line for line in yaml_text(with_kernel(TRUE)).splitlines() if "pointwise" in line]
    assert not any("core_bytes_per_s" in line for line in others)


def published(file: Path) -> list[MeasuredStep]:
    """The steps of a table of operators, which need no trace: `rms_norm_4096` is one row of a workload."""
    gpus = load_catalog().gpus
    return [
        step(
            one.batch,
            without_own_ratios(gpu_device(gpus[one.device])),
            measured_s=one.step_s,
            operator=operator_row(one.model.partition("::")[2]),
        )
        for one in read_measurements(file)
    ]


def operator_row(name: str) -> Row:
    kind = name.rstrip("_0123456789")
    sizes = [int(size) for size in name.removeprefix(kind).split("_") if size]
    tensors = tuple(operand((0.0, 1.0), size) for size in sizes)
    if kind == "rms_norm":
        return row("engine.norm", tensors, tensors, family="rms_norm")
    if kind == "rotary":
        return row("engine.rotary", tensors, tensors, family="rotary")
    if kind == "silu_and_mul":
        return row("engine.gate", tensors * 2, tensors, family="gate")
    if kind == "linear":
        return row("aten.mm", (tensors[0], operand(*sizes)), tensors[1:], family="matmul")
    elements = operand((0.0, 1.0))
    return row("aten.add", (elements, elements), (elements,), family="pointwise")


def test_every_gpu_has_figures_of_an_engines_kernels_and_they_are_those_of_today() -> None:
    shipped = load_catalog().efficiencies
    for before, after in zip(shipped, with_fitted_engine(shipped, published(ENGINE)), strict=True):
        assert yaml_text(after) == yaml_text(before)
        assert ("rms_norm" in after.families) == (after.kind == "gpu" and after.vendor != "AWS")  # no NeuronCore


def test_published_operators_of_language_models_are_within_the_bar() -> None:
    """Vidur's kernels of an engine, fitted on the A100 and predicted on the A40, and its products and additions."""
    efficiencies = load_catalog().efficiencies
    for identifier in ("a100-sxm4-80gb", "a40"):
        errors = []
        for file in (ENGINE, LINEAR):
            there = [one for one in published(file) if one.device.id == identifier]
            used = efficiency_of(there[0].device, precision="fp16", efficiencies=efficiencies)
            ratios = kernel_s(there, used) / np.array([one.measured_s for one in there])
            errors.append(np.abs(ratios - 1))
        assert [len(part) for part in errors] == [146, 267]
        assert errors[0].mean() <= 0.12
        assert np.concatenate(errors).mean() <= 0.12


@pytest.mark.slow
def test_operators_are_traced_as_they_are_written_here() -> None:
    traced = measured_steps([ENGINE], wanted=lambda one: one.batch < 100, timeout_s=120.0)
    by_hand = [one for one in published(ENGINE) if one.kernels.blocks[0, 0] < 100]
    assert len(traced) == len(by_hand)
    for one, other in zip(traced, by_hand, strict=True):
        assert one.kernels.families == other.kernels.families
        assert one.kernels.data_bytes.tolist() == other.kernels.data_bytes.tolist()
        assert one.kernels.blocks.tolist() == other.kernels.blocks.tolist()
