"""Fits of toy steps find the coefficients that made their times."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from shipped_fit import ShippedFit, coefficients_of, file_name

from advisor.catalog.device_files import read_efficiencies
from advisor.fit.coefficients import Coefficient, starts
from advisor.fit.files import number, yaml_text
from advisor.fit.sample import MeasuredStep, sample_of
from advisor.fit.solve import robust
from advisor.records.device import Prior
from tests.fit.toys import DEVICES, fit_of, measured, steps_of
from tests.predict.toys import efficiency, family


def test_a_fit_finds_the_shares_that_made_the_times() -> None:
    fit = fit_of(sample_of(steps_of()))
    logs = fit.solve(chosen=np.ones(len(fit.sample.steps), dtype=np.bool_))
    assert fit.value(logs, "memory_ratio", "pointwise") == pytest.approx(0.5, rel=0.05)
    assert fit.value(logs, "memory_ratio", "norm") == pytest.approx(0.8, rel=0.05)
    assert fit.seconds(logs) == pytest.approx(fit.sample.measured_s, rel=0.06)


def test_a_sample_is_timed_by_the_same_formula_as_a_step() -> None:
    fit = fit_of(sample_of(steps_of()))
    # The template is ideal, so with every coefficient at 1 and no launches the times are the ideal ones.
    ideal = sample_of(steps_of(efficiency(launch_s=1e-6)))
    logs = np.array([np.log(1e-6) if one.name == ("launch_s",) else 0.0 for one in fit.coefficients])
    assert fit.seconds(logs) == pytest.approx(ideal.measured_s)


def test_a_gradient_runs_at_a_share_of_its_forward_rate_that_all_precisions_have_in_common() -> None:
    """Convolutions and their gradients reach less of the peak of 16-bit units than of fp32's."""
    forward, backward = (replace(steps_of()[0].kernels, families=(name,)) for name in ("conv", "conv_backward"))
    steps = [
        replace(measured(kernels, DEVICES[0], 1.0), precision=precision)
        for kernels in (forward, backward)
        for precision in ("fp32", "half")
    ]
    sample = sample_of(steps)
    fit = ShippedFit(sample, coefficients_of(sample, kind="gpu"), template=efficiency(families={}))
    values = {
        ("compute_ratio", "conv"): 0.8, ("unit_ratio", "half"): 0.75, ("gradient_ratio", "conv_backward"): 0.5,
    }  # fmt: skip
    logs = np.log([values.get(one.name, one.prior.start) for one in fit.coefficients])
    assert fit.compute_ratio(logs, "fp32", "conv") == pytest.approx(0.8)
    assert fit.compute_ratio(logs, "half", "conv") == pytest.approx(0.6)  # 0.8 x 0.75
    assert fit.compute_ratio(logs, "fp32", "conv_backward") == pytest.approx(0.4)  # 0.8 x 0.5
    assert fit.compute_ratio(logs, "half", "conv_backward") == pytest.approx(0.3)


def test_families_that_access_memory_alike_share_a_coefficient() -> None:
    fit = fit_of(sample_of(steps_of()))
    logs = np.log([0.5 if one.name == ("memory_ratio", "norm") else 0.7 for one in fit.coefficients])
    assert fit.value(logs, "memory_ratio", "softmax") == fit.value(logs, "memory_ratio", "norm") == pytest.approx(0.5)
    assert fit.value(logs, "memory_ratio", "pointwise") == pytest.approx(0.7)


def test_a_step_without_weight_is_predicted_and_changes_nothing() -> None:
    steps = steps_of()
    odd = replace(steps[0], measured_s=100 * steps[0].measured_s, trust=0.0, group=("locked",))
    fit, plain = fit_of(sample_of([*steps, odd])), fit_of(sample_of(steps))
    logs = fit.solve(chosen=np.ones(len(steps) + 1, dtype=np.bool_))
    assert logs == pytest.approx(plain.solve(chosen=np.ones(len(steps), dtype=np.bool_)), abs=1e-3)
    assert fit.seconds(logs)[-1] == pytest.approx(fit.seconds(logs)[0])


def test_a_coefficient_without_data_stays_at_its_prior() -> None:
    fit = fit_of(sample_of(steps_of()))
    nothing = np.zeros(len(fit.sample.steps), dtype=np.bool_)
    logs = fit.solve(chosen=nothing)
    assert np.exp(logs) == pytest.approx([one.prior.start for one in fit.coefficients])


def test_a_copy_that_the_host_waits_for_is_added_to_the_step() -> None:
    steps = steps_of()[:2]
    with_copy = [replace(step, copied_bytes=1e9) for step in steps]
    coefficients = [one for one in coefficients_of(sample_of(steps), kind="gpu") if one.name[0] == "copy_s_per_byte"]
    plain, copied = (
        ShippedFit(sample_of(some), coefficients, template=efficiency(families={})).seconds(np.log([0.25e-9]))
        for some in (steps, with_copy)
    )
    assert copied - plain == pytest.approx(0.25)  # a GB at 4 GB/s


def test_a_type_of_memory_is_learnt_from_another_generation() -> None:
    slow, fast = steps_of(efficiency())[6:8]  # 400 MB each
    slow = replace(slow, device=replace(slow.device, memory_type="GDDR6X"), measured_s=slow.measured_s / 1.25)
    fast = replace(fast, device=replace(fast.device, memory_type="GDDR6X", generation="Second"))
    names = [("memory_type", "GDDR6X"), ("generation_memory", "Second")]
    fit = ShippedFit(
        sample_of([slow, fast]), [one_number(name, log_sigma=1e4) for name in names], template=efficiency(families={})
    )
    logs = fit.solve(chosen=np.array([True, False]))
    assert fit.seconds(logs)[1] == pytest.approx(fast.measured_s / 1.25, rel=0.01)
    assert fit.efficiency(logs, "fp32").memory_type_ratios == {"GDDR6X": pytest.approx(1.25, rel=0.01)}


def test_groups_weigh_less_than_their_size_and_more_than_one() -> None:
    steps = steps_of()
    sample = sample_of([*steps, *(step for step in steps if step.device.id == "slow")])  # 16 slow, 8 fast
    slow = sample.weights[0] * 16
    fast = sample.weights[1] * 8
    assert 1 < slow / fast < 2


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = efficiency(
        precision="half",
        generation="Ada Lovelace",
        families={"conv": family(compute_ratio=0.5), "*": family()},
        backward_dispatch_s=2e-5,
        overlap_ratio=0.25,
        memory_type_ratios={"GDDR6X": 1.05, "HBM3e": 0.9},
        fitted_on=("rtx-4090",),
    )
    assert file_name(written) == "gpu-adalovelace-half.yaml"
    path = tmp_path / file_name(written)
    path.write_text(yaml_text(written))
    assert read_efficiencies([path]) == [written]


@pytest.mark.parametrize(("value", "text"), [(0.25, "0.25"), (2e-6, "2.0e-06"), (0.123456, "0.1235"), (128.0, "128")])
def test_numbers_are_no_text_to_yaml(value: float, text: str) -> None:
    assert number(value) == text


def one_number(name: tuple[str, ...], *, log_sigma: float) -> Coefficient:
    """A share of the bandwidth, from 1."""
    return Coefficient(name=name, prior=Prior(1.0, 0.01, 100.0, log_sigma))


def fitted_log(steps: list[MeasuredStep], coefficient: Coefficient) -> float:
    fit = ShippedFit(sample_of(steps), [coefficient], template=efficiency(families={}))
    return float(fit.solve(chosen=np.ones(len(steps), dtype=np.bool_)).item())


def test_a_row_of_little_weight_is_robust_only_to_an_error_as_much_larger() -> None:
    """Three of four steps on one device are as predicted, and one takes an eighth of it; they hardly weigh."""
    slow, fast = steps_of(efficiency())[:2]
    outlier = replace(fast, measured_s=fast.measured_s / 8)
    light = [replace(step, trust=0.02) for step in (fast, fast, fast, outlier)]
    found = fitted_log([*[slow] * 4, *light], one_number(("device_memory", "fast"), log_sigma=1e4))
    # Weights 1 / 0.51 and 0.02 / 0.51 = 0.0392, so linear beyond 0.1 / 0.0392 = 2.55, with y = log 8 - x = 1.617:
    # 3 x / sqrt(1 + (x / 2.55)^2) = y / sqrt(1 + (y / 2.55)^2) = 1.366; the mean would be log 8 / 4 = 0.52.
    assert found == pytest.approx(0.4628, abs=2e-3)


def test_a_prior_is_linear_beyond_a_third_of_its_standard_deviation() -> None:
    step = steps_of(efficiency())[0]
    found = fitted_log(
        [replace(step, measured_s=step.measured_s / np.e)], one_number(("device_memory", "slow"), log_sigma=0.05)
    )
    # 6^2 x / sqrt(1 + (6 x / 0.1)^2) = (1 - x) / sqrt(1 + ((1 - x) / 0.1)^2) = 0.0995, as 0.3 / 0.05 = 6.
    assert found == pytest.approx(0.0028, abs=2e-5)


def test_beyond_its_scale_a_residual_counts_in_proportion() -> None:
    # 2 s^2 (sqrt(1 + z / s^2) - 1) of a residual of three scales: 2 x 0.01 x (sqrt(10) - 1).
    values, slopes, _ = robust(0.1)(np.array([0.09]))
    assert values == pytest.approx([0.043246], rel=1e-4)
    assert slopes == pytest.approx([1 / np.sqrt(10)])


@pytest.mark.parametrize(
    "name",
    [
        ("memory_ration", "pointwise"),
        ("memory_ratio", "pointwisc"),
        ("memory_ratio",),
        ("host", "slo"),
        ("edge_ramp", "fp64"),
        ("launch_s", "fp32"),
        ("generation_memory", "Second"),
        ("memory_type", "GDDR9"),
    ],
)
def test_a_coefficient_that_is_misspelt_has_no_value(name: tuple[str, ...]) -> None:
    fit = fit_of(sample_of(steps_of()))
    with pytest.raises(KeyError):
        fit.value(starts(fit.coefficients), *name)


def test_a_coefficient_that_is_not_fitted_has_the_templates_value_or_one() -> None:
    sample = sample_of(steps_of())
    fit = ShippedFit(sample, [], template=efficiency(families={}, edge_ramp=4.0, launch_s=3e-6))
    nothing = np.array([])
    assert fit.value(nothing, "launch_s") == 3e-6
    assert fit.value(nothing, "edge_ramp", "fp32") == 4.0
    assert fit.value(nothing, "host", "slow") == fit.value(nothing, "memory_ratio", "norm") == 1.0
