"""Fits the efficiency of the GPUs of Macs (`mps`), and checks it on Macs that were left out and on whole steps.

    python scripts/fit_apple.py

Everything starts from the coefficients of all other GPUs. Five ratios and a constant, each with a prior, are fitted to
single operators: the shares of peak of products and of convolutions, the shares of bandwidth of most operators, of
copies and of softmax, and the launch and synchronization that each published time has in it. Macs are left out one by
one. Only rows of torch of November 2024 or later are fitted: before, large products took three times as long on chips
of the same generation. A last ratio makes whole steps slower than their operators, as published steps are.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date

import numpy as np
from fit_neuron import row
from left_out_spread import log_spread
from list_apple_operators import OLD, RECENT
from scipy.optimize import least_squares
from write_seed_table import ROOT, with_table

from advisor.answers.measurement_file import read_measurements
from advisor.answers.validation import Run, kernels_of, predict_runs, prepare
from advisor.catalog.overlay import load_catalog
from advisor.fit.files import yaml_text
from advisor.predict.efficiency import efficiency_of
from advisor.predict.kernel_time import Kernels
from advisor.predict.roofline import step_times
from advisor.records.answer import Z_90
from advisor.records.device import ANY, Device, Efficiency, FamilyEfficiency
from advisor.records.measurement import PredictedRow
from advisor.records.prediction import BoolArray, FloatArray, NameArray
from advisor.records.price import Catalog

FOLDER = ROOT / "tests/data/measured/apple"
PAGE = ROOT / "docs/accelerators.md"
MARKS = "<!-- table of scripts/fit_apple.py -->", "<!-- end of the Macs' table -->"
DATE = date.today().isoformat()
PRIORS = np.log([0.8, 0.6, 0.9, 1.0, 0.8, 2e-4])
_RATES = np.array([1.0, 1.0, 1.0, 1.0, 1.0, 0.0])
"""1 for the coefficients that are rates."""
ALPHA = "2022"
"""In the source of steps of the first versions of the MPS backend."""
LOG_SIGMAS = np.array([0.5, 0.5, 0.3, 0.5, 0.5, 1.0])
_OPERATOR_LOG_SIGMA = 0.3
"""Standard deviation of an operator's log error, to weigh operators against priors: a choice; those of left-out Macs
are 0.16 for copies to 0.59 for convolutions."""
_WORK_RATIO = 2.0
"""An operator whose predicted time is below this multiple of the constant is mostly launch and synchronization, and
counts only for the constant."""
_PUBLISHED_STEP_S = 5e-6
"""Half the last published digit, in place of a time that is published as zero."""
KIND_OF_FAMILY: Mapping[str, str] = {"matmul": "matmul", "conv": "conv", "copy": "copy", "softmax": "softmax"}
KINDS = ("matmul", "conv", "copy", "softmax", "others")


@dataclass(frozen=True, kw_only=True)
class Operators:
    """Timed operators: arrays of one entry for each row. `by_shape` has the rows of each operator, and its kernels."""

    devices: Sequence[Device]
    by_shape: Sequence[tuple[Kernels, Sequence[int]]]
    measured_s: FloatArray
    chips: NameArray
    shapes: NameArray
    kinds: NameArray
    is_recent: BoolArray


def efficiency(base: Efficiency, logs: FloatArray, *, spreads: Mapping[str, float] | None = None) -> Efficiency:
    """Return the efficiency of `base` with these coefficients, as logarithms; `spreads` by kind of operator.

    Without spreads, the host takes no time, as in the operators that are fitted, whose dispatch is in the constant.
    """
    products, convolutions, memory, copies, softmax, _ = np.exp(logs).tolist()

    def family(name: str, entry: FamilyEfficiency) -> FamilyEfficiency:
        kind = KIND_OF_FAMILY.get(name.partition("_")[0], "others")
        return replace(
            entry,
            compute_ratio=entry.compute_ratio * (convolutions / products if kind == "conv" else 1.0),
            memory_ratio=entry.memory_ratio * {"copy": copies, "softmax": softmax}.get(kind, memory) / memory,
            log_spread=max(entry.log_spread, (spreads or {}).get(kind, 0.0)),
            source=entry.source if name == ANY else "Macs and other GPUs",
        )

    fitted = replace(
        base,
        vendor="Apple",
        generation="Apple 7 to 9",
        generation_compute_ratio=products,
        generation_memory_ratio=memory,
        fitted_vendors=(),
        other_vendor_log_spread=0.0,
        families={name: family(name, entry) for name, entry in base.families.items()},
    )
    return fitted if spreads else replace(fitted, dispatch_s=1e-9, launch_s=1e-9)


def log_seconds(base: Efficiency, logs: FloatArray, operators: Operators) -> FloatArray:
    """Return the logarithms of the predicted times of all rows, with the constant."""
    seconds, one = np.zeros(len(operators.devices)), efficiency(base, logs)
    for kernels, rows in operators.by_shape:
        devices = [operators.devices[number] for number in rows]
        times = step_times(kernels, kind="gpu", devices=devices, efficiencies=[one] * len(rows))
        seconds[list(rows)] = times.step_s[:, 0]
    return np.log(seconds + math.exp(logs[-1]))


def fit(base: Efficiency, operators: Operators, used: BoolArray) -> FloatArray:
    """Return the logarithms of the coefficients that fit the rows in `used` best, given the priors."""
    measured = np.log(operators.measured_s)

    def residuals(logs: FloatArray) -> FloatArray:
        errors = (log_seconds(base, logs, operators) - measured)[used] / _OPERATOR_LOG_SIGMA
        return np.concatenate([errors, (logs - PRIORS) / LOG_SIGMAS])

    found: FloatArray = least_squares(residuals, PRIORS, diff_step=1e-2, max_nfev=15, loss="soft_l1").x
    return found


def _runs(name: str, catalog: Catalog) -> list[Run]:
    prepared = prepare(read_measurements(FOLDER / name), catalog, timeout_s=300)
    runs = [run for run in prepared if isinstance(run, Run)]
    if len(runs) < len(prepared):
        raise SystemExit(f"not traced: {[one for one in prepared if not isinstance(one, Run)]}")
    return runs


def read_operators(catalog: Catalog) -> Operators:
    """Trace the operators of the table."""
    runs = _runs("operators.csv", catalog)
    shapes = np.array([f"{run.measurement.model} {run.measurement.batch}" for run in runs], dtype=np.object_)
    kernels = {shape: kernels_of(runs[int(np.flatnonzero(shapes == shape)[0])])[0] for shape in dict.fromkeys(shapes)}
    kinds = {shape: _kind_of(kernels[shape]) for shape in kernels}
    return Operators(
        devices=[run.device.device for run in runs],
        by_shape=[(kernels[shape], np.flatnonzero(shapes == shape).tolist()) for shape in kernels],
        measured_s=np.maximum([run.measurement.step_s for run in runs], _PUBLISHED_STEP_S),
        chips=np.array([run.device.id for run in runs], dtype=np.object_),
        shapes=shapes,
        kinds=np.array([kinds[shape] for shape in shapes], dtype=np.object_),
        is_recent=np.array([run.measurement.source.endswith(RECENT) for run in runs]),
    )


def _kind_of(kernels: Kernels) -> str:
    names = {KIND_OF_FAMILY.get(name.partition("_")[0], "others") for name in kernels.families}
    return next((kind for kind in KINDS[:-1] if kind in names), "others")


def main() -> None:
    """Write both efficiencies and the tables."""
    catalog = load_catalog()
    others = [one for one in catalog.efficiencies if one.vendor != "Apple"]
    operators = read_operators(catalog)
    bases = {
        precision: efficiency_of(operators.devices[0], precision=precision, efficiencies=others)
        for precision in ("fp32", "amp-bf16")
    }
    base = bases["fp32"]
    measured = np.log(operators.measured_s)
    errors = np.zeros(len(measured))
    is_work = np.zeros(len(measured), dtype=np.bool_)
    recent = list(dict.fromkeys(operators.chips[operators.is_recent]))
    for chip in recent:
        at = operators.chips == chip
        logs = fit(base, operators, operators.is_recent & ~at)
        predicted = log_seconds(base, logs, operators)[at]
        errors[at] = measured[at] - predicted
        is_work[at] = predicted > logs[-1] + math.log(_WORK_RATIO)
        print(f"{chip}: {np.round(np.exp(logs), 6)}, mean {errors[at & is_work].mean():+.2f}", flush=True)
    logs = fit(base, operators, operators.is_recent)
    old = ~operators.is_recent
    errors[old] = (measured - log_seconds(base, logs, operators))[old]
    is_work[old] = log_seconds(base, logs, operators)[old] > logs[-1] + math.log(_WORK_RATIO)
    print(f"coefficients {np.exp(logs)}")
    of_device, spreads = _spreads(operators, errors, is_work & operators.is_recent, recent)
    print(f"spreads: device {of_device:.3f}, {spreads}")

    def fits_with(step_ratio: float, of_steps: float) -> list[Efficiency]:
        whole = logs - math.log(step_ratio) * _RATES
        return [
            replace(
                efficiency(bases[precision], whole, spreads=spreads),
                precision=name,
                device_log_spread=of_device,
                workload_log_spread=of_steps,
                host_log_spread=math.log(math.exp(logs[-1]) / base.dispatch_s) / Z_90,
                fitted_on=tuple(sorted(recent)),
                date=DATE,
                source="TristanBilot/mlx-benchmark and others: tests/data/measured/apple; else as on other GPUs",
            )
            for precision, name in (("fp32", "fp32"), ("amp-bf16", "half"))
        ]

    runs = _runs("steps.csv", catalog)
    groups = np.array([f"{run.device.id} {run.measurement.model}" for run in runs], dtype=np.object_)
    is_alpha = np.array([ALPHA in run.measurement.source for run in runs])
    of_steps = _step_errors(runs, replace(catalog, efficiencies=(*fits_with(1.0, 0.0), *others)))
    means = {group: of_steps[(groups == group) & ~is_alpha].mean() for group in dict.fromkeys(groups[~is_alpha])}
    left_out = {group: mean - np.mean([means[one] for one in means if one != group]) for group, mean in means.items()}
    ratio = math.exp(np.mean(list(means.values())))
    spread = log_spread(np.array(list(left_out.values())), np.array(list(left_out), dtype=np.object_))
    print(f"a step takes {ratio:.2f} times its operators: {means}; spread {spread:.3f}")
    fits = fits_with(ratio, spread)
    for one in fits:
        (ROOT / f"profiles/efficiency/gpu-apple7to9-{one.precision}.yaml").write_text(yaml_text(one), encoding="utf-8")
    lines = [
        *_operator_table(operators, errors, is_work, recent, of_device=of_device, spreads=spreads),
        "",
        *_step_table(runs, replace(catalog, efficiencies=(*fits, *others)), groups, is_alpha, means),
    ]
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), "\n".join(lines), marks=MARKS), encoding="utf-8")


def _spreads(
    operators: Operators, errors: FloatArray, used: BoolArray, chips: Sequence[str]
) -> tuple[float, dict[str, float]]:
    """Return the spread of a Mac's mean error, and by kind of operator that of the rest."""
    means = {chip: errors[used & (operators.chips == chip)].mean() for chip in chips}
    rest = errors - np.array([means.get(chip, 0.0) for chip in operators.chips])
    of_device = log_spread(np.array(list(means.values())), np.array(chips, dtype=np.object_))
    return of_device, {
        kind: log_spread(rest[used & (operators.kinds == kind)], operators.shapes[used & (operators.kinds == kind)])
        for kind in KINDS
    }


def _operator_table(
    operators: Operators,
    errors: FloatArray,
    is_work: BoolArray,
    chips: Sequence[str],
    *,
    of_device: float,
    spreads: Mapping[str, float],
) -> list[str]:
    """Return a line for each Mac that was left out; the interval rests on all of them."""
    most = Z_90 * np.array([math.hypot(of_device, spreads[kind]) for kind in operators.kinds])
    head = ["| left out | operators | mean error | bias | within the interval |", "| --- | --- | --- | --- | --- |"]
    used = is_work & operators.is_recent
    groups = [(chip, used & (operators.chips == chip)) for chip in chips]
    groups += [(f"**all of {RECENT}**", used), (f"not in the fit: {OLD}", is_work & ~operators.is_recent)]
    return [*head, *(row(name, errors[at], np.abs(errors[at]) <= most[at]) for name, at in groups)]


def _step_errors(runs: Sequence[Run], catalog: Catalog) -> FloatArray:
    rows = [one for one in predict_runs(runs, catalog) if isinstance(one, PredictedRow)]
    return np.log([one.measurement.step_s / one.predicted_s for one in rows])


def _step_table(
    runs: Sequence[Run], catalog: Catalog, groups: NameArray, is_alpha: BoolArray, means: Mapping[str, float]
) -> list[str]:
    """Return a line for each Mac and net, with the ratio of steps fitted without it."""
    rows = [one for one in predict_runs(runs, catalog) if isinstance(one, PredictedRow)]
    errors = np.log([one.measurement.step_s / one.predicted_s for one in rows])
    high = np.log([one.high_s / one.predicted_s for one in rows])
    ratio = np.mean(list(means.values()))
    lines = [
        "| steps of a net left out | steps | mean error | bias | within the interval |",
        "| --- | --- | --- | --- | --- |",
    ]
    inside = np.zeros(len(rows), dtype=np.bool_)
    for group in means:
        at = (groups == group) & ~is_alpha
        errors[at] += ratio - np.mean([means[one] for one in means if one != group])
        inside[at] = np.abs(errors[at]) <= high[at]
        lines.append(row(group.replace(" ", ", "), errors[at], inside[at]))
    inside[is_alpha] = np.abs(errors[is_alpha]) <= high[is_alpha]
    lines.append(row("**all of those**", errors[~is_alpha], inside[~is_alpha]))
    return [*lines, row("not in the fit: torch of 2022", errors[is_alpha], inside[is_alpha])]


if __name__ == "__main__":
    main()
