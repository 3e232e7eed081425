"""The errors on devices left out of a fit, and the prediction intervals that follow from them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from fit_residuals import (
    Errors,
    Level,
    Spread,
    added_spread,
    left_out,
    left_out_log_spreads,
    log_spreads,
    offset_log_spread,
    spreads,
)
from shipped_fit import ShippedFit, coefficients_of

from advisor.fit.coefficients import starts
from advisor.fit.sample import MeasuredStep, sample_of
from advisor.predict.kernel_time import Kernels
from advisor.records.prediction import PARTS
from tests.fit.toys import DEVICES, fit_of, steps_of
from tests.predict.toys import efficiency


def test_a_device_is_predicted_by_a_fit_that_has_not_seen_it() -> None:
    """Both devices sustain what the other does, so either one's steps give the other's; with an odd one they cannot."""
    steps = steps_of()
    alike = left_out(fit_of(sample_of(steps)), starts(fit_of(sample_of(steps)).coefficients), by="device")
    assert np.abs(alike.errors).max() < 0.1
    odd = [replace(step, measured_s=2 * step.measured_s) if step.device.id == "fast" else step for step in steps]
    fit = fit_of(sample_of(odd))
    errors = left_out(fit, fit.solve(chosen=np.ones(len(odd), dtype=np.bool_)), by="device").errors
    of_fast = errors[[step.device.id == "fast" for step in odd]]
    assert np.median(of_fast) == pytest.approx(np.log(2), abs=0.15)


@pytest.mark.parametrize(("by", "alike"), [("device", "name"), ("generation", "generation")])
def test_the_parts_of_one_cpu_and_the_devices_of_one_generation_are_left_out_together(by: Level, alike: str) -> None:
    """Steps twice as slow as the others on both: a fit that saw one would know it of the other."""
    steps = steps_of()
    parts = [replace(DEVICES[1], id=f"part@{count}", **{"name": f"Part {count}", alike: "Odd"}) for count in (1, 2)]
    odd = [replace(step, device=part, measured_s=2 * step.measured_s) for step in steps[1::2] for part in parts]
    fit = fit_of(sample_of([*steps[::2], *odd]))
    errors = left_out(fit, fit.solve(chosen=np.ones(len(fit.sample.steps), dtype=np.bool_)), by=by).errors
    assert np.median(errors[len(steps) // 2 :]) == pytest.approx(np.log(2), abs=0.15)


def test_the_vendor_with_the_most_devices_is_not_left_out() -> None:
    steps = steps_of()
    rare = replace(DEVICES[1], id="rare", name="Rare", vendor="Rare")
    fit = fit_of(sample_of([*steps, *(replace(step, device=rare) for step in steps[1::2])]))
    errors = left_out(fit, starts(fit.coefficients), by="vendor").errors
    assert np.isnan(errors[: len(steps)]).all()
    assert np.isfinite(errors[len(steps) :]).all()


def test_an_offset_is_the_root_mean_square_over_devices_and_larger_where_few_were_seen() -> None:
    """Two devices off by 0.1 and 0.3: sqrt((0.01 + 0.09) / 2) = 0.224, times t(0.95, 2) / z(0.95) = 2.92 / 1.645."""
    steps = steps_of()
    own = np.array([0.1 if step.device.id == "slow" else 0.3 for step in steps])
    seen = Errors(errors=own, host_shares=np.zeros(len(steps)))
    assert offset_log_spread(steps, seen, by="device") == pytest.approx(0.2236 * 2.92 / 1.645, rel=1e-3)
    # The host sets the pace of one device: only the other tells of devices, t(0.95, 1) = 6.314.
    by_host = replace(seen, host_shares=(own > 0.2).astype(np.float64))
    assert offset_log_spread(steps, by_host, by="device") == pytest.approx(0.1 * 6.314 / 1.645, rel=1e-3)


def test_the_interval_of_a_left_out_device_comes_from_the_errors_of_the_others() -> None:
    """Three devices off by 0.1, -0.1 and 0.8; n others have n degrees of freedom. Groups are all alike inside."""
    steps = [
        replace(step, device=replace(DEVICES[0], id=name, name=name), group=("toy", name))
        for step in steps_of()[::2]
        for name in ("a", "b", "odd")
    ]
    offsets = {"a": 0.1, "b": -0.1, "odd": 0.8}
    nothing = np.zeros(len(steps))
    known = Errors(errors=nothing, host_shares=nothing)
    left = Errors(errors=np.array([offsets[step.device.id] for step in steps]), host_shares=nothing)
    used = np.ones(len(steps), dtype=np.bool_)
    levels: dict[Level, Errors] = {"device": left, "generation": left, "vendor": left}
    found = left_out_log_spreads(steps, known, levels, used, by="device")
    # The odd one: 0.1 x t(0.95, 2) / z(0.95); the two others: sqrt((0.01 + 0.64) / 2) = 0.57 times the same.
    assert found[2::3] == pytest.approx(0.1 * 2.92 / 1.645, rel=1e-3)
    assert found[0::3] == pytest.approx(0.5701 * 2.92 / 1.645, rel=1e-3)
    assert found[1::3] == pytest.approx(found[0::3])


def test_an_unseen_device_and_a_known_one_together_have_the_offset_that_was_observed() -> None:
    assert np.hypot(added_spread(0.05, known=0.03), 0.03) == pytest.approx(0.05)
    assert added_spread(0.02, known=0.03) == 0.0


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
    fit = ShippedFit(sample, coefficients_of(sample, kind="gpu"), template=efficiency(families={}))
    errors = left_out(fit, fit.solve(chosen=np.ones(len(steps), dtype=np.bool_)), by="device").errors
    assert np.median(errors[-len(own) :]) == pytest.approx(missed, abs=0.25)


def spreads_of(steps: list[MeasuredStep], left: Errors) -> Mapping[str, Spread]:
    """The spreads of errors without offsets of devices."""
    known = Errors(errors=np.zeros(len(steps)), host_shares=np.zeros(len(steps)))
    return spreads(steps, known, left)


def test_the_interval_of_the_left_out_holds_nine_in_ten() -> None:
    steps = steps_of() * 20
    errors = np.random.default_rng(0).normal(0.0, 0.2, len(steps))
    spread = spreads_of(steps, Errors(errors=errors, host_shares=np.zeros(len(steps))))["fp32"]
    # All of a normal's error is the workloads' where devices have no offset.
    assert np.hypot(spread.device_log_spread, spread.workload_log_spread) == pytest.approx(0.2, rel=0.15)
    assert spread.device_log_spread < 0.05
    assert spread.host_log_spread == pytest.approx(0.06, rel=0.3)  # no host set the pace: as usual


def test_errors_in_groups_of_one_to_three_steps_spread_as_much_as_in_large_ones() -> None:
    """A median hides part of the errors around it: all of one, 0.71 of the spread of two are left."""
    for size in (2, 3):
        steps = [replace(step, group=(str(index // size),)) for index, step in enumerate(steps_of() * 60)]
        random = np.random.default_rng(0)
        own = random.normal(0.0, 0.2, len(steps)) + np.repeat(random.normal(0.0, 0.5, len(steps)), size)[: len(steps)]
        alone = [replace(step, group=(f"alone {index}",)) for index, step in enumerate(steps)]
        left = Errors(errors=np.concatenate([own, np.full(len(alone), 0.5)]), host_shares=np.zeros(2 * len(steps)))
        spread = spreads_of([*steps, *alone], left)["fp32"]
        assert spread.workload_log_spread == pytest.approx(0.2, rel=0.1), size


def test_what_is_off_where_the_host_sets_the_pace_is_the_hosts() -> None:
    steps = steps_of() * 40
    is_heavy = np.arange(len(steps)) % 2 == 0
    own = np.random.default_rng(0).normal(0.0, np.where(is_heavy, np.hypot(0.3, 0.1), 0.1))
    left = Errors(errors=own, host_shares=np.where(is_heavy, 1.0, 0.1))
    spread_of = spreads_of(steps, left)
    spread = spread_of["fp32"]
    assert np.hypot(spread.device_log_spread, spread.workload_log_spread) == pytest.approx(0.1, rel=0.15)
    assert spread.host_log_spread == pytest.approx(0.3, rel=0.15)
    stated = log_spreads(steps, left, spread_of, unseen=0.0)
    assert stated[is_heavy] == pytest.approx(np.hypot(0.3, 0.1), rel=0.15)
    assert stated[~is_heavy] == pytest.approx(np.hypot(0.03, 0.1), rel=0.15)


def test_a_group_speaks_by_its_trust() -> None:
    steps = [replace(step, trust=1.0 if step.device.id == "slow" else 1e-4) for step in steps_of() * 40]
    own = np.random.default_rng(0).normal(0.0, [0.1 if step.trust == 1.0 else 1.0 for step in steps])
    spread = spreads_of(steps, Errors(errors=own, host_shares=np.zeros(len(steps))))["fp32"]
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
    spread = spreads_of(steps, Errors(errors=errors, host_shares=np.zeros(len(steps))))["fp32"]
    assert np.hypot(spread.device_log_spread, spread.workload_log_spread) == pytest.approx(0.1, rel=0.15)
    assert spread.backward_log_spread == pytest.approx(0.3, rel=0.15)
