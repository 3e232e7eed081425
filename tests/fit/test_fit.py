from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from advisor.catalog.device_files import read_efficiencies
from advisor.fit.coefficients import Coefficient, coefficients_of, starts
from advisor.fit.files import file_name, number, yaml_text
from advisor.fit.residuals import LeftOut, left_out, log_spreads, spreads
from advisor.fit.sample import MeasuredStep, Sample, sample_of
from advisor.fit.solve import Fit, robust
from advisor.predict.kernel_time import Kernels
from advisor.predict.lowering import lower
from advisor.predict.roofline import step_times
from advisor.predict.row_work import count_rows
from advisor.records.device import Device, Efficiency
from advisor.records.prediction import PARTS
from tests.predict.toys import device, efficiency, family, operand, row, workload

DEVICES = (
    device(id="slow", name="Slow", generation="First", memory_bytes_per_s=1e11),
    device(id="fast", name="Fast", generation="First", memory_bytes_per_s=4e11),
)
TRUE = efficiency(
    families={"*": family(), "pointwise": family(memory_ratio=0.5), "norm": family(memory_ratio=0.8)}, launch_s=4e-6
)
FREE_OF_PRIOR = {"launch_s", "memory_ratio"}


def steps_of(truth: Efficiency = TRUE) -> list[MeasuredStep]:
    """Steps of one streaming operator, from 0.4 to 400 MB, timed as `truth` says."""
    steps = []
    for name in ("pointwise", "norm"):
        op = {"pointwise": "aten.relu", "norm": "aten.native_layer_norm"}[name]
        images = operand((0.0, 1.0), 1000)
        toy = workload(row(op, (images,), (images,), family=name))
        for batch in (50.0, 500.0, 5_000.0, 50_000.0):
            counts = count_rows(toy, batches=np.array([batch]), width="full")
            kernels = lower(counts, kind="gpu", precision="fp32")
            for one in DEVICES:
                times = step_times(kernels, kind="gpu", devices=[one], efficiencies=[truth])
                steps.append(measured(kernels, one, float(times.mid_s[0, 0])))
    return steps


def measured(kernels: object, one: Device, measured_s: float) -> MeasuredStep:
    return MeasuredStep(
        kernels=kernels,  # type: ignore[arg-type]
        device=one,
        precision="fp32",
        is_nchw=True,
        group=("toy", one.id),
        measured_s=measured_s,
    )


def fit_of(sample: Sample) -> Fit:
    coefficients = [one for one in coefficients_of(sample, kind="gpu") if one.name[0] in FREE_OF_PRIOR]
    return Fit(sample, coefficients, template=efficiency(families={}))


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
    """Measured in fp32 alone: in half it takes the share of the forward rate there."""
    forward, backward = (replace(steps_of()[0].kernels, families=(name,)) for name in ("conv", "conv_backward"))
    steps = [
        replace(measured(kernels, DEVICES[0], 1.0), precision=precision)
        for kernels in (forward, backward)
        for precision in ("fp32", "half")
    ]
    sample = sample_of(steps)
    fit = Fit(sample, coefficients_of(sample, kind="gpu"), template=efficiency(families={}))
    values = {
        ("compute_ratio", "fp32", "conv"): 0.8, ("compute_ratio", "half", "conv"): 0.6,
        ("compute_ratio", "fp32", "conv_backward"): 1.25, ("compute_ratio", "half", "conv_backward"): 1.0,
        ("gradient_ratio", "conv_backward"): 0.5,
    }  # fmt: skip
    logs = np.log([values.get(one.name, one.start) for one in fit.coefficients])
    assert fit.compute_ratio(logs, "fp32", "conv_backward") == pytest.approx(0.8 * 0.5 * 1.25)
    assert fit.compute_ratio(logs, "half", "conv_backward") == pytest.approx(0.6 * 0.5)
    moved = next(one for one in fit.coefficients if one.name == ("compute_ratio", "half", "conv"))
    assert moved.families == {"conv", "conv_backward"}


def test_a_coefficient_without_data_stays_at_its_prior() -> None:
    fit = fit_of(sample_of(steps_of()))
    nothing = np.zeros(len(fit.sample.steps), dtype=np.bool_)
    logs = fit.solve(chosen=nothing)
    assert np.exp(logs) == pytest.approx([one.start for one in fit.coefficients])


def test_a_copy_that_the_host_waits_for_is_added_to_the_step() -> None:
    steps = steps_of()[:2]
    with_copy = [replace(step, copied_bytes=1e9) for step in steps]
    coefficients = [one for one in coefficients_of(sample_of(steps), kind="gpu") if one.name[0] == "copy_s_per_byte"]
    plain, copied = (
        Fit(sample_of(some), coefficients, template=efficiency(families={})).seconds(np.log([0.25e-9]))
        for some in (steps, with_copy)
    )
    assert copied - plain == pytest.approx(0.25)  # a GB at 4 GB/s


def test_groups_weigh_less_than_their_size_and_more_than_one() -> None:
    steps = steps_of()
    sample = sample_of([*steps, *(step for step in steps if step.device.id == "slow")])  # 16 slow, 8 fast
    slow = sample.weights[0] * 16
    fast = sample.weights[1] * 8
    assert 1 < slow / fast < 2


def test_a_device_is_predicted_by_a_fit_that_has_not_seen_it() -> None:
    """Both devices sustain what the other does, so either one's steps give the other's; with an odd one they cannot."""
    steps = steps_of()
    alike = left_out(fit_of(sample_of(steps)), starts(fit_of(sample_of(steps)).coefficients))
    assert np.abs(alike.errors).max() < 0.1
    odd = [replace(step, measured_s=2 * step.measured_s) if step.device.id == "fast" else step for step in steps]
    fit = fit_of(sample_of(odd))
    errors = left_out(fit, fit.solve(chosen=np.ones(len(odd), dtype=np.bool_))).errors
    of_fast = errors[[step.device.id == "fast" for step in odd]]
    assert np.median(of_fast) == pytest.approx(np.log(2), abs=0.15)


def test_the_parts_of_one_cpu_are_left_out_together() -> None:
    """Steps twice as slow as the others on both: a fit that saw one part would know it of the other."""
    steps = steps_of()
    parts = [replace(DEVICES[1], id=f"part@{count}", name="Part") for count in (1, 2)]
    odd = [replace(step, device=part, measured_s=2 * step.measured_s) for step in steps[1::2] for part in parts]
    fit = fit_of(sample_of([*steps[::2], *odd]))
    errors = left_out(fit, fit.solve(chosen=np.ones(len(fit.sample.steps), dtype=np.bool_))).errors
    assert np.median(errors[len(steps) // 2 :]) == pytest.approx(np.log(2), abs=0.15)


@pytest.mark.parametrize(("vendor", "missed"), [("Acme", 0.0), ("NVIDIA", np.log(2))])
def test_a_generation_that_is_left_out_is_one_of_its_vendors_others_where_these_are_unlike_the_usual(
    vendor: str, missed: float
) -> None:
    """Two generations twice as slow as three usual ones: the first tells of the second where it is another vendor's."""
    tensor_cores = {**DEVICES[0].peak_flops_per_s, "fp16": 8e12}
    usual = replace(DEVICES[0], vendor="NVIDIA", peak_flops_per_s=tensor_cores)
    slow = [
        replace(usual if vendor == "NVIDIA" else DEVICES[0], id=name, name=name, vendor=vendor, generation=name)
        for name in ("1st", "2nd")
    ]
    own = steps_of()[::2]
    others = [replace(usual, id=name, name=name, generation=name) for name in ("3rd", "4th", "5th")]
    steps = [replace(step, device=one) for one in others for step in own]
    steps += [replace(step, device=one, measured_s=2 * step.measured_s) for one in slow for step in own]
    sample = sample_of(steps)
    fit = Fit(sample, coefficients_of(sample, kind="gpu"), template=efficiency(families={}))
    errors = left_out(fit, fit.solve(chosen=np.ones(len(steps), dtype=np.bool_))).errors
    assert np.median(errors[-len(own) :]) == pytest.approx(missed, abs=0.25)


def test_the_interval_of_the_left_out_holds_nine_in_ten() -> None:
    steps = steps_of() * 20
    errors = np.random.default_rng(0).normal(0.0, 0.2, len(steps))
    spread = spreads(steps, LeftOut(errors=errors, host_shares=np.zeros(len(steps))))["fp32"]
    # All of a normal's error is the workloads' where devices have no offset.
    assert np.hypot(spread.device_log_spread, spread.workload_log_spread) == pytest.approx(0.2, rel=0.15)
    assert spread.device_log_spread < 0.05
    assert spread.host_log_spread == pytest.approx(0.06, rel=0.3)  # no host set the pace: as usual


def test_what_is_off_where_the_host_sets_the_pace_is_the_hosts() -> None:
    steps = steps_of() * 40
    is_heavy = np.arange(len(steps)) % 2 == 0
    own = np.random.default_rng(0).normal(0.0, np.where(is_heavy, np.hypot(0.3, 0.1), 0.1))
    left = LeftOut(errors=own, host_shares=np.where(is_heavy, 1.0, 0.1))
    spread_of = spreads(steps, left)
    spread = spread_of["fp32"]
    assert np.hypot(spread.device_log_spread, spread.workload_log_spread) == pytest.approx(0.1, rel=0.15)
    assert spread.host_log_spread == pytest.approx(0.3, rel=0.15)
    stated = log_spreads(steps, left, spread_of)
    assert stated[is_heavy] == pytest.approx(np.hypot(0.3, 0.1), rel=0.15)
    assert stated[~is_heavy] == pytest.approx(np.hypot(0.03, 0.1), rel=0.15)


def test_a_group_speaks_by_its_trust() -> None:
    steps = [replace(step, trust=1.0 if step.device.id == "slow" else 1e-4) for step in steps_of() * 40]
    own = np.random.default_rng(0).normal(0.0, [0.1 if step.trust == 1.0 else 1.0 for step in steps])
    spread = spreads(steps, LeftOut(errors=own, host_shares=np.zeros(len(steps))))["fp32"]
    assert np.hypot(spread.device_log_spread, spread.workload_log_spread) == pytest.approx(0.1, rel=0.2)


def in_part(kernels: Kernels, part: str) -> Kernels:
    return replace(kernels, part=np.full(len(kernels.part), PARTS.index(part)))


def test_what_is_off_in_backward_is_a_part_of_its_own() -> None:
    steps = steps_of() * 40
    is_backward = np.arange(len(steps)) % 2 == 0
    steps = [
        replace(step, group=(*step.group, str(own)), kernels=in_part(step.kernels, "backward" if own else "forward"))
        for step, own in zip(steps, is_backward.astype(np.float64), strict=True)
    ]
    errors = np.random.default_rng(0).normal(0.0, np.where(is_backward, np.hypot(0.3, 0.1), 0.1))
    spread = spreads(steps, LeftOut(errors=errors, host_shares=np.zeros(len(steps))))["fp32"]
    assert np.hypot(spread.device_log_spread, spread.workload_log_spread) == pytest.approx(0.1, rel=0.15)
    assert spread.backward_log_spread == pytest.approx(0.3, rel=0.15)


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = efficiency(
        precision="half",
        generation="Ada Lovelace",
        families={"conv": family(compute_ratio=0.5), "*": family()},
        backward_dispatch_s=2e-5,
        overlap_ratio=0.25,
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
    return Coefficient(
        name=name, start=1.0, low=0.01, high=100.0, log_sigma=log_sigma, families=frozenset({"pointwise"})
    )


def fitted_log(steps: list[MeasuredStep], coefficient: Coefficient) -> float:
    fit = Fit(sample_of(steps), [coefficient], template=efficiency(families={}))
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
    ],
)
def test_a_coefficient_that_is_misspelt_has_no_value(name: tuple[str, ...]) -> None:
    fit = fit_of(sample_of(steps_of()))
    with pytest.raises(KeyError):
        fit.value(starts(fit.coefficients), *name)


def test_a_coefficient_that_is_not_fitted_has_the_templates_value_or_one() -> None:
    sample = sample_of(steps_of())
    fit = Fit(sample, [], template=efficiency(families={}, edge_ramp=4.0, launch_s=3e-6))
    nothing = np.array([])
    assert fit.value(nothing, "launch_s") == 3e-6
    assert fit.value(nothing, "edge_ramp", "fp32") == 4.0
    assert fit.value(nothing, "host", "slow") == fit.value(nothing, "memory_ratio", "norm") == 1.0
