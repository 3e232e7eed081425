"""Tests how well a step timed on one device corrects the prediction of the same step on other devices.

    python scripts/anchor_table.py --measured tests/data/measured

Reads the tables of measured steps and prints a Markdown table. For every step measured on two devices A and B, the
error on A, log(measured / predicted), is multiplied by the workload's share as in `advisor.predict.anchor` and added to
the log of the prediction on B. "before" and "after" are the errors on B, over all pairs. timm nets that the fit has
seen are left out. Corrections from a CPU to other CPUs and to GPUs are tried too, although `advise` does not make them.
"""

import argparse
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np
from fit import FILES, is_fitted

from advisor.answers.measurement_file import read_measurements
from advisor.answers.validation import Run, prepare, without_optimizer
from advisor.catalog.overlay import load_catalog
from advisor.predict.anchor import shared_share
from advisor.predict.efficiency import precision_class
from advisor.predict.step_time import predict
from advisor.records.answer import Z_90
from advisor.records.device import Efficiency
from advisor.records.measurement import Measurement
from advisor.records.prediction import Anchor


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictedStep:
    """A measured step with its prediction."""

    measurement: Measurement
    anchor: Anchor

    @property
    def log_error(self) -> float:
        """Log of measured over predicted time."""
        return float(np.log(self.anchor.step_s / self.anchor.predicted_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same step on the device where it was timed and on another."""

    here: PredictedStep
    there: PredictedStep

    @property
    def carried_log(self) -> float:
        """The correction added to the logarithm of the prediction for the other device."""
        return shared_share(self.here.anchor) * self.here.log_error

    @property
    def is_inside(self) -> bool:
        """True if the narrowed interval contains the time on the other device."""
        there = self.there.anchor
        shared = there.log_spread**2 - there.own_log_spread**2
        spread = np.sqrt(there.own_log_spread**2 + (1 - shared_share(self.here.anchor)) * shared)
        return bool(abs(self.there.log_error - self.carried_log) <= Z_90 * spread)


def main() -> None:
    """Predict all steps, pair them by device, and print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with the tables of measurements")
    folder = parser.parse_args().measured
    show(predicted_steps([folder / name for name in FILES if not name.endswith("_ops.csv")]))


def predicted_steps(files: Iterable[Path]) -> list[PredictedStep]:
    """Return every step of a model that is not left out, with its prediction."""
    catalog = load_catalog()
    measurements = [one for file in files for one in read_measurements(file) if is_evaluated(one)]
    runs = prepare(measurements, catalog, timeout_s=120.0)
    return [predicted(run, catalog.efficiencies) for run in runs if isinstance(run, Run)]


def is_evaluated(measurement: Measurement) -> bool:
    """Return whether the measurement counts: timm nets only if the fit has not seen them, all other models always."""
    return not (measurement.model.startswith("timm:") and is_fitted(measurement))


def predicted(run: Run, efficiencies: tuple[Efficiency, ...]) -> PredictedStep:
    """Return the run with its prediction."""
    asked = run.measurement
    predictions = predict(
        without_optimizer(run.workload) if asked.mode == "forward_backward" else run.workload,
        devices=[run.device.device],
        efficiencies=efficiencies,
        batches=np.array([asked.batch], dtype=np.intp),
        precision=asked.precision,
        layout=asked.layout,
        compile_mode=asked.compile,
    )
    return PredictedStep(
        measurement=asked,
        anchor=Anchor(
            device=run.device.device,
            precision=asked.precision,
            batch=asked.batch,
            step_s=asked.step_s,
            step_low_s=asked.step_s,
            step_high_s=asked.step_s,
            predicted_s=float(predictions.step_s[0, 0]),
            bound=int(predictions.bound[0, 0]),
            log_spread=float(predictions.log_spread[0, 0]),
            own_log_spread=float(predictions.own_log_spread[0, 0]),
        ),
    )


def show(steps: list[PredictedStep]) -> None:
    """Print one line for each combination of device kinds and kind of step."""
    print("| from -> to | steps | n | before: mean | median | after: mean | median | share | inside 90 % |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    alike = list(pairs(steps, same=regime_of))
    gpus = [pair for pair in alike if kinds_of(pair) == "GPU -> GPU"]
    for title in sorted({title_of(pair) for pair in gpus}):
        line("GPU -> GPU", f"{title}, the same bound", [p for p in gpus if title_of(p) == title and is_bound_alike(p)])
    line("GPU -> GPU", "all", gpus)
    line("GPU -> GPU", "all, the same bound on both", [pair for pair in gpus if is_bound_alike(pair)])
    line("GPU -> GPU", "all, another bound", [pair for pair in gpus if not is_bound_alike(pair)])
    loose = list(pairs(steps, same=lambda one: (one.model, one.mode)))
    for kinds in ("GPU -> GPU", "CPU -> CPU", "CPU -> GPU"):
        chosen = [pair for pair in loose if kinds_of(pair) == kinds and not is_regime_alike(pair)]
        line(kinds, "another precision, layout or torch.compile", chosen)
    line("CPU -> CPU", "the same but the CPU", [pair for pair in alike if kinds_of(pair) == "CPU -> CPU"])


def is_bound_alike(pair: Pair) -> bool:
    """Return whether the predictions say that the same resource bounds the step on both devices."""
    return pair.here.anchor.bound == pair.there.anchor.bound


def is_regime_alike(pair: Pair) -> bool:
    """Return whether the two steps differ only in device and batch."""
    return regime_of(pair.here.measurement) == regime_of(pair.there.measurement)


def regime_of(measurement: Measurement) -> tuple[str, ...]:
    """Return everything a step depends on besides device and batch; all half precisions count as one class."""
    precision = precision_class(measurement.precision)
    return (measurement.model, measurement.mode, precision, measurement.layout, measurement.compile, measurement.input)


def pairs(steps: Iterable[PredictedStep], *, same: Callable[[Measurement], object]) -> Iterator[Pair]:
    """Pair every step with the step of the nearest batch on each other device that has the same key `same`."""
    groups: dict[object, dict[str, list[PredictedStep]]] = {}
    for step in steps:
        groups.setdefault(same(step.measurement), {}).setdefault(step.anchor.device.id, []).append(step)
    for devices in groups.values():
        for here, there in permutations(devices.values(), 2):
            for step in there:
                yield Pair(here=min(here, key=lambda one: batch_distance(one, step)), there=step)


def batch_distance(one: PredictedStep, other: PredictedStep) -> float:
    """Return the absolute log ratio of the two batch sizes."""
    return abs(float(np.log(one.anchor.batch / other.anchor.batch)))


def title_of(pair: Pair) -> str:
    """Return the mode, precision and compilation of the step."""
    asked = pair.there.measurement
    compiled = ", compiled" if asked.compile == "compile" else ""
    return f"{asked.mode.replace('_', ' + ')}, {precision_class(asked.precision)}{compiled}"


def kinds_of(pair: Pair) -> str:
    """Return the two kinds of device, such as "CPU -> GPU"."""
    return f"{pair.here.anchor.device.kind.upper()} -> {pair.there.anchor.device.kind.upper()}"


def line(kinds: str, title: str, chosen: list[Pair]) -> None:
    """Print the errors of the predictions on the other devices, before and after the correction."""
    if not chosen:
        return
    there = np.array([pair.there.log_error for pair in chosen])
    carried = np.array([pair.carried_log for pair in chosen])
    share = np.median([shared_share(pair.here.anchor) for pair in chosen])
    inside = np.mean([pair.is_inside for pair in chosen])
    before, after = (np.abs(np.exp(log) - 1) for log in (-there, carried - there))
    print(
        f"| {kinds} | {title} | {len(chosen):,} | {before.mean():.1%} | {np.median(before):.1%} | {after.mean():.1%} | "
        f"{np.median(after):.1%} | {share:.2f} | {inside:.0%} |"
    )


if __name__ == "__main__":
    main()
