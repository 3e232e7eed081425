"""How much a step that was timed on one device tells of the same step on others: measured steps in, a table out.

`python scripts/anchor_table.py --measured tests/data/measured`

For every step that was measured on several devices: the step on device A takes log(measured / predicted) more than
predicted; the share of it that `advisor.predict.anchor` takes to be the workload's is added to what is predicted on
device B. Before and after are the errors on B, over all pairs. timm's nets that are fitted are left out. From CPUs the
same share is tried on other CPUs and on GPUs, where `advise` does not carry it.
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
from advisor.catalog.load import load_catalog
from advisor.predict.anchor import shared_share
from advisor.predict.efficiency import precision_class
from advisor.predict.step_time import predict
from advisor.records.answer import Z_90
from advisor.records.device import Efficiency
from advisor.records.measurement import Measurement
from advisor.records.prediction import Anchor


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A measured step beside its prediction."""

    measurement: Measurement
    anchor: Anchor

    @property
    def log_error(self) -> float:
        """What was measured over what was predicted."""
        return float(np.log(self.anchor.step_s / self.anchor.predicted_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The same step on the device at hand and on another."""

    here: Seen
    there: Seen

    @property
    def carried_log(self) -> float:
        """What is added to the logarithm of the prediction there."""
        return shared_share(self.here.anchor) * self.here.log_error

    @property
    def is_inside(self) -> bool:
        """Whether the narrower interval holds the step there."""
        left = self.there.anchor
        shared = left.log_spread**2 - left.own_log_spread**2
        spread = np.sqrt(left.own_log_spread**2 + (1 - shared_share(self.here.anchor)) * shared)
        return bool(abs(self.there.log_error - self.carried_log) <= Z_90 * spread)


def main() -> None:
    """Predict, pair, and print the table in Markdown."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, help="folder with the tables of measurements")
    folder = parser.parse_args().measured
    show(seen_steps([folder / name for name in FILES if not name.endswith("_ops.csv")]))


def seen_steps(files: Iterable[Path]) -> list[Seen]:
    """Every step of a model that is not left out."""
    catalog = load_catalog()
    measurements = [one for file in files for one in read_measurements(file) if is_apart(one)]
    runs = prepare(measurements, catalog, timeout_s=120.0)
    return [seen(run, catalog.efficiencies) for run in runs if isinstance(run, Run)]


def is_apart(measurement: Measurement) -> bool:
    """Of timm's nets those that no fit has seen; of the others all."""
    return not (measurement.model.startswith("timm:") and is_fitted(measurement))


def seen(run: Run, efficiencies: tuple[Efficiency, ...]) -> Seen:
    """The run beside what is predicted for it."""
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
    return Seen(
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


def show(steps: list[Seen]) -> None:
    """A line for each way to carry."""
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
    """Whether the same resource bounds the step on both, as predicted."""
    return pair.here.anchor.bound == pair.there.anchor.bound


def is_regime_alike(pair: Pair) -> bool:
    """Whether the two steps differ in device and batch alone."""
    return regime_of(pair.here.measurement) == regime_of(pair.there.measurement)


def regime_of(measurement: Measurement) -> tuple[str, ...]:
    """All that a step depends on beside device and batch; half precisions are one class."""
    precision = precision_class(measurement.precision)
    return (measurement.model, measurement.mode, precision, measurement.layout, measurement.compile, measurement.input)


def pairs(steps: Iterable[Seen], *, same: Callable[[Measurement], object]) -> Iterator[Pair]:
    """Every step with the nearest batch of what is the same on each other device."""
    groups: dict[object, dict[str, list[Seen]]] = {}
    for step in steps:
        groups.setdefault(same(step.measurement), {}).setdefault(step.anchor.device.id, []).append(step)
    for devices in groups.values():
        for here, there in permutations(devices.values(), 2):
            for step in there:
                yield Pair(here=min(here, key=lambda one: batch_distance(one, step)), there=step)


def batch_distance(one: Seen, other: Seen) -> float:
    """How many times larger one batch is."""
    return abs(float(np.log(one.anchor.batch / other.anchor.batch)))


def title_of(pair: Pair) -> str:
    """The kind of step."""
    asked = pair.there.measurement
    compiled = ", compiled" if asked.compile == "compile" else ""
    return f"{asked.mode.replace('_', ' + ')}, {precision_class(asked.precision)}{compiled}"


def kinds_of(pair: Pair) -> str:
    """From which kind of device to which."""
    return f"{pair.here.anchor.device.kind.upper()} -> {pair.there.anchor.device.kind.upper()}"


def line(kinds: str, title: str, chosen: list[Pair]) -> None:
    """How far the predictions on B are off, before and after."""
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
