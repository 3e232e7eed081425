"""Fits the achieved compute and bandwidth ratios of one device to measured steps."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from advisor.answers.measurement_file import read_measurements
from advisor.answers.validation import Run, kernels_of, predict_runs, prepare
from advisor.catalog.find import find_device
from advisor.devices.named_device import split_cores
from advisor.errors import UsageError
from advisor.fit.own import OwnFigures, OwnStep, fit_own, left_out_seconds, own_seconds
from advisor.predict.efficiency import efficiency_of
from advisor.question.from_source import catalog_of
from advisor.records.device import Cpu, Efficiency, Gpu
from advisor.records.measurement import FailedRow, Measurement, OwnFit
from advisor.records.options import Options
from advisor.records.prediction import FloatArray
from advisor.records.price import Catalog
from advisor.workload.trace_many import OnProgress

_LEAST_COUNT = 3
"""With fewer rows, one unusual model could decide the result."""
_DIGITS = 4


def fit_device(
    files: Sequence[Path], name: str, options: Options, *, date: str, on_progress: OnProgress | None = None
) -> OwnFit:
    """Fit both figures of the device called `name` to its rows in `files`; for a CPU to the rows of all core counts.

    The result holds the profile in force with the figures, their source and `date` added. Raises `UsageError` for an
    unknown device, a device without rows, and fewer than three rows that can be predicted.
    """
    catalog = catalog_of(options)
    profile = find_device(catalog, name)
    measurements = _rows_of(profile, files, catalog)
    prepared = prepare(measurements, catalog, timeout_s=options.timeout, on_progress=on_progress)
    failed = [row for row in predict_runs(prepared, catalog) if isinstance(row, FailedRow)]
    lost = {row.measurement for row in failed}
    runs = [run for run in prepared if isinstance(run, Run) and run.measurement not in lost]
    if len(runs) < _LEAST_COUNT:
        raise _too_few(profile, runs, failed)
    steps = [_own_step(run, catalog.efficiencies) for run in runs]
    figures = _rounded(fit_own(steps))
    return OwnFit(
        profile=replace(
            profile,
            sustained_compute_ratio=figures.compute_ratio,
            sustained_memory_ratio=figures.memory_ratio,
            sustained_source=_source(runs, date=date),
        ),
        compute_log_sigma=figures.compute_log_sigma,
        memory_log_sigma=figures.memory_log_sigma,
        n=len(steps),
        model_count=len({step.model for step in steps}),
        mape_without=_mape(steps, own_seconds(steps, OwnFigures())),
        mape=_mape(steps, own_seconds(steps, figures)),
        left_out_mape=_mape(steps, left_out_seconds(steps)),
        failed=tuple(failed),
    )


def _rows_of(profile: Gpu | Cpu, files: Iterable[Path], catalog: Catalog) -> list[Measurement]:
    rows = [measurement for file in files for measurement in read_measurements(file)]
    names = dict.fromkeys(row.device for row in rows)
    own = {name for name in names if _is_called(name, profile, catalog)}
    if not own:
        raise UsageError(f"no row was measured on {profile.id}", hint=f"the rows are of {', '.join(names)}")
    return [row for row in rows if row.device in own]


def _is_called(name: str, profile: Gpu | Cpu, catalog: Catalog) -> bool:
    try:
        return find_device(catalog, split_cores(name)[0]).id == profile.id
    except UsageError:  # the row is of another device
        return False


def _too_few(profile: Gpu | Cpu, runs: Sequence[Run], failed: Sequence[FailedRow]) -> UsageError:
    count_of = Counter(row.reason.partition("\n")[0] for row in failed)
    reasons = "; ".join(f"{reason} ({count:,} rows)" for reason, count in count_of.most_common())
    return UsageError(
        f"{len(runs)} of {len(runs) + len(failed)} rows of {profile.id} can be predicted, and {_LEAST_COUNT} are needed"
        + (f": {reasons}" if reasons else ""),
        hint="add rows of that device; several models tell its two figures apart",
    )


def _own_step(run: Run, efficiencies: Sequence[Efficiency]) -> OwnStep:
    kernels, precision = kernels_of(run)
    device = run.device.device
    return OwnStep(
        model=run.measurement.model,
        kernels=kernels,
        device=device,
        efficiency=efficiency_of(device, precision=precision, efficiencies=efficiencies),
        measured_s=run.measurement.step_s,
    )


def _mape(steps: Sequence[OwnStep], predicted_s: FloatArray) -> float:
    return float(np.mean(np.abs(predicted_s / [step.measured_s for step in steps] - 1)))


def _rounded(figures: OwnFigures) -> OwnFigures:
    """Round the figures as the profile stores them, so that the errors are those of the profile."""
    return replace(
        figures,
        compute_ratio=round(figures.compute_ratio, _DIGITS),
        memory_ratio=round(figures.memory_ratio, _DIGITS),
    )


def _source(runs: Sequence[Run], *, date: str) -> str:
    sources = dict.fromkeys(run.measurement.source for run in runs)
    return f"advise fit-device, {date}, on {len(runs)} measured steps: {'; '.join(sources)}"
