import csv
import math
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from fit_calibration_start import fit_start

from advisor.calibrate import own_efficiencies as fitting
from advisor.calibrate.design import probes
from advisor.calibrate.own_efficiencies import WHOLE_STEPS, fit_calibration, whole_step
from advisor.catalog.overlay import load_catalog
from advisor.predict.efficiency import efficiency_of, precision_class
from advisor.records.calibration import TIMED_HERE, TimedOperator
from advisor.records.device import Device, Efficiency
from advisor.workload.file import workload_from_json
from tests.calibrate.toys import EPYC, WITH_T4, local, shipped, slower, timed_by

CPU = local(EPYC)
T4 = local(WITH_T4, "cuda:0")
DATA = Path(__file__).resolve().parents[1] / "data/measured/own"
LONG = ("relu 30000000", "norm 30000000", "mm 1024", "mm 2048")


def fit(operators: tuple[TimedOperator, ...], device: Device = CPU, **changes: object) -> tuple[Efficiency, ...]:
    values = {"precisions": ("fp32",), "noise_log": 0.0, "date": "2026-11-21"} | changes
    return fit_calibration(operators, device, [shipped(device), shipped(device, "amp-bf16")], **values).efficiencies  # type: ignore[arg-type]


def predicted_s(efficiency: Efficiency, device: Device) -> np.ndarray:
    """The times of the larger half of the programs, of 0.1 ms and more: a fit weights shorter ones less."""
    return np.array([operator.step_s for operator in timed_by(efficiency, device) if operator.name in LONG])


@pytest.mark.parametrize("device", [CPU, T4], ids=["cpu", "gpu"])
@pytest.mark.parametrize("ratio", [0.5, 1.4])
def test_a_device_faster_or_slower_than_shipped_is_found(device: Device, ratio: float) -> None:
    truth = slower(shipped(device), ratio)

    (own,) = fit(timed_by(truth, device), device)

    assert predicted_s(own, device) == pytest.approx(predicted_s(truth, device), rel=0.1)
    # Without the fit they are off by most of the ratio: the largest copy has nothing but bytes.
    assert np.abs(predicted_s(shipped(device), device) / predicted_s(truth, device) - 1).max() > 0.25


def test_a_calibration_is_of_its_device_and_of_as_many_cores() -> None:
    (own,) = fit(timed_by(shipped(CPU), CPU))

    assert (own.device, own.core_count, own.precision) == (CPU.id, 4.0, "fp32")
    assert fit(timed_by(shipped(T4), T4), T4)[0].core_count is None


def test_what_was_not_timed_stays_as_shipped() -> None:
    (own,) = fit(timed_by(slower(shipped(CPU), 0.5), CPU))

    assert own.families["softmax"] == shipped(CPU).families["softmax"]
    assert own.backward_dispatch_s == pytest.approx(shipped(CPU).backward_dispatch_s)
    assert own.families["matmul"].source == TIMED_HERE
    assert own.families["matmul"].n == 4


def test_a_precision_that_time_ran_out_before_takes_over_what_does_not_depend_on_it() -> None:
    fp32, half = fit(timed_by(slower(shipped(CPU), 0.5), CPU), precisions=("fp32", "amp-bf16"))

    assert half.precision == "half"
    assert half.families["pointwise"].memory_ratio == fp32.families["pointwise"].memory_ratio
    assert half.families["matmul"].compute_ratio == pytest.approx(
        shipped(CPU, "amp-bf16").families["matmul"].compute_ratio
    )


def test_figures_of_the_device_of_its_own_count_once() -> None:
    """They multiply what the efficiency says, with a calibration as without."""
    tuned = replace(CPU, sustained_compute_ratio=0.8, sustained_memory_ratio=0.7)
    truth = slower(shipped(tuned), 0.9)

    (own,) = fit(timed_by(truth, tuned), tuned)

    assert predicted_s(own, tuned) == pytest.approx(predicted_s(truth, tuned), rel=0.1)


def started(truth: Efficiency, *, hot: Efficiency, programs: Collection[str] = ()) -> Efficiency:
    """The start of calibrations if whole steps, of all or some programs, take the times of `truth` and operators
    in a loop those of `hot`."""
    steps = [
        whole_step(workload_from_json(one.workload), CPU, precision=one.precision, batch=one.batch, step_s=one.step_s)
        for one in timed_by(truth, CPU)
        if not programs or one.name in programs
    ]
    (start,) = fit_start(
        steps, timed_by(hot, CPU), CPU, [shipped(CPU)], precisions=("fp32",), date="2026-11-21", source="a test"
    )
    return start


def calibrated(start: Efficiency, operators: tuple[TimedOperator, ...], *, noise_log: float = 0.0) -> Efficiency:
    (own,) = fit_calibration(
        operators, CPU, [shipped(CPU), start], precisions=("fp32",), noise_log=noise_log, date="2026-11-21"
    ).efficiencies
    return own


IN_STEPS, HOT = slower(shipped(CPU), 0.5), slower(shipped(CPU), 0.75)


def test_a_start_is_of_no_device_and_no_device_is_predicted_by_it() -> None:
    start = started(IN_STEPS, hot=HOT)

    assert (start.device, start.core_count, start.generation, start.source) == ("*", None, WHOLE_STEPS, "a test")
    assert efficiency_of(CPU, precision="fp32", efficiencies=[start, shipped(CPU)]) == shipped(CPU)


def test_a_start_knows_how_much_longer_an_operator_takes_in_a_net() -> None:
    """The longest copy has little but bytes, and over and over takes 0.5 / 0.75 of its time in a net."""
    start = started(IN_STEPS, hot=HOT)

    assert start.operator_ratios["relu 30000000, batch 1"] == pytest.approx(0.5 / 0.75, rel=0.05)
    assert predicted_s(calibrated(start, timed_by(HOT, CPU)), CPU) == pytest.approx(predicted_s(IN_STEPS, CPU), rel=0.1)


def test_an_operator_that_the_start_does_not_know_is_an_error() -> None:
    start = replace(started(IN_STEPS, hot=HOT), operator_ratios={"relu 30000000, batch 1": 0.7})

    with pytest.raises(
        ValueError, match=r"operator_ratio for the probe 'relu 10000, batch 1' at fp32: .*check_calibration"
    ):
        calibrated(start, timed_by(HOT, CPU))


def test_every_probe_of_a_cpu_has_its_ratio_in_the_shipped_start() -> None:
    starts = {one.precision: one for one in load_catalog().efficiencies if one.generation == WHOLE_STEPS}

    missing = [
        f"{probe.name}, batch {probe.batch}, {probe.precision}"
        for probe in probes(("fp32", "amp-bf16"), size_factor=1)
        if f"{probe.name}, batch {probe.batch}" not in starts[precision_class(probe.precision)].operator_ratios
    ]

    assert missing == [], (
        "add their timings to tests/data/measured/own/calibration_operators.csv with scripts/check_calibration.py, "
        "then run scripts/fit_calibration_start.py"
    )


@pytest.mark.parametrize("ratio", [0.5, 1.6, 1.8])  # with 2, alone, products would exceed their peak by a tenth
def test_a_machine_faster_or_slower_than_that_of_the_start_is_found(ratio: float) -> None:
    """Ten programs are believed four fifths of the way: one minute of a shared machine is not like the next."""
    start = started(IN_STEPS, hot=HOT)

    own = calibrated(start, timed_by(slower(HOT, ratio), CPU))

    assert predicted_s(own, CPU) == pytest.approx(predicted_s(slower(IN_STEPS, ratio), CPU), rel=0.2)


def test_families_that_were_not_timed_are_as_much_slower_as_the_machine() -> None:
    start = started(IN_STEPS, hot=HOT)

    usual, slow = (calibrated(start, timed_by(slower(HOT, ratio), CPU)) for ratio in (1.0, 0.5))

    for own in (usual, slow):
        assert own.families["gather"].n == 0
    for name in ("memory_ratio", "compute_ratio"):
        # Four fifths of a halving of the speed, at least.
        assert getattr(slow.families["gather"], name) < 0.6 * getattr(usual.families["gather"], name)
    assert slow.compiled_dispatch_s / usual.compiled_dispatch_s == pytest.approx(
        slow.backward_dispatch_s / usual.backward_dispatch_s
    )


def test_of_a_family_that_no_step_holds_the_operators_say_all() -> None:
    start = started(IN_STEPS, hot=HOT, programs=("relu 30000000", "mm 1024", "mm 2048"))

    assert (start.families["norm"].n, start.families["pointwise"].n) == (0, 1)
    assert start.operator_ratios["norm 30000000, batch 1"] == 1.0
    own = calibrated(start, timed_by(HOT, CPU))
    # As HOT has it, give or take what is held for all families alike, and not as IN_STEPS, a third below it.
    assert own.families["norm"].memory_ratio == pytest.approx(HOT.families["norm"].memory_ratio, rel=0.15)


def test_noise_widens_the_interval() -> None:
    operators = timed_by(shipped(CPU), CPU)
    (calm,), (noisy,) = fit(operators), fit(operators, noise_log=0.2)

    # Both parts are independent, so their squares add; all operators share as much as one is disturbed by.
    assert noisy.device_log_spread == pytest.approx(np.hypot(calm.device_log_spread, 0.2 * np.sqrt(2)))


def test_one_operator_alone_can_be_fitted() -> None:
    (own,) = fit(timed_by(slower(shipped(CPU), 0.5), CPU)[:1])

    assert own.families["pointwise"].n == 1


def test_where_others_disturb_a_calibration_a_slower_minute_is_not_all_of_the_device() -> None:
    start = started(IN_STEPS, hot=HOT)
    operators = timed_by(slower(HOT, 0.8), CPU)

    calm, disturbed = (predicted_s(calibrated(start, operators, noise_log=noise_log), CPU) for noise_log in (0.0, 0.2))

    assert (disturbed < calm).all()
    assert (disturbed > predicted_s(IN_STEPS, CPU)).all()


def test_steady_timings_may_come_from_a_slower_day_too() -> None:
    """A fifth slower: less is believed than of a machine whose operators cannot have had a slow day."""
    start = started(IN_STEPS, hot=HOT)
    operators = timed_by(slower(HOT, 0.8), CPU)

    own = predicted_s(calibrated(start, operators), CPU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "_FROM_WHOLE_STEPS", replace(fitting._FROM_WHOLE_STEPS, pace=0.0))
        believed = predicted_s(calibrated(start, operators), CPU)

    assert (predicted_s(IN_STEPS, CPU) < own).all()
    assert (own < 0.99 * believed).all()


def test_nine_in_ten_of_the_steps_that_a_calibration_was_held_to_lie_inside_its_interval() -> None:
    with (DATA / "calibration_check.csv").open(newline="") as lines:
        rows = [(float(row["measured_s"]), float(row["calibrated_s"])) for row in csv.DictReader(lines)]

    inside = [abs(math.log(measured / predicted)) <= 1.645 * fitting.STEP_LOG_SPREAD for measured, predicted in rows]

    assert 0.87 <= sum(inside) / len(inside) <= 0.93


def test_the_noise_of_a_machine_that_others_disturb_is_in_the_intervals() -> None:
    rows = []
    for run in ("", "_again", "_third"):
        with (DATA / f"calibration_check_9b14{run}.csv").open(newline="") as lines:
            found = csv.DictReader(lines)
            rows += [tuple(float(row[name]) for name in ("low_s", "measured_s", "high_s")) for row in found]

    assert 0.87 <= sum(low <= measured <= high for low, measured, high in rows) / len(rows) <= 0.93
