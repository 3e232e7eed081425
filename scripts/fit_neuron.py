"""Fits the efficiency of the NeuronCores of Inferentia2 and Trainium1, and checks it on models that were left out.

    python scripts/fit_neuron.py

Six coefficients, each with a prior: the shares of peak of products and of convolutions, the share of bandwidth, the
launch overhead, the size of a product at half the rate (the systolic array is 128 x 128), and the share of the on-chip
memory that holds the output of the previous operator. Models of one shape (BERT and RoBERTa) are left out
together. Spreads come from the left-out errors, of encoders and of convolutional nets.
"""

import math
from collections.abc import Sequence
from datetime import date

import numpy as np
from left_out_spread import log_spread
from scipy.optimize import least_squares
from write_seed_table import ROOT, with_table

from advisor.answers.measurement_file import read_measurements
from advisor.answers.validation import Run, kernels_of, prepare
from advisor.catalog.overlay import load_catalog
from advisor.fit.files import yaml_text
from advisor.predict.kernel_time import Kernels
from advisor.predict.roofline import step_times
from advisor.records.answer import Z_90
from advisor.records.device import Device, Efficiency, FamilyEfficiency
from advisor.records.prediction import BoolArray, FloatArray, NameArray

STEPS = ROOT / "tests/data/measured/neuron/steps.csv"
PROFILE = ROOT / "profiles/efficiency/gpu-neuroncore-v2-half.yaml"
PAGE = ROOT / "docs/accelerators.md"
MARKS = "<!-- table of scripts/fit_neuron.py -->", "<!-- end of the table -->"
DATE = date.today().isoformat()
NO_DISPATCH_S = 1e-9
"""A compiled program runs without the host."""
Step = tuple[Kernels, Device]
PRIORS = np.log([0.5, 0.3, 0.8, 2e-6, 64.0, 0.3])
LOG_SIGMAS = np.array([0.7, 0.7, 0.3, 1.5, 0.7, 0.7])
MOST = np.log([1.0, 1.0, 1.0, 2e-5, 1e3, 1.0])
_STEP_LOG_SIGMA = 0.1
"""Standard deviation of a step's log error, to weigh steps against priors: a choice; those of left-out encoders are
0.14, of nets 0.4."""


def efficiency_of(
    logs: FloatArray, *, encoders: float = 0.0, nets: float = 0.0, counts: Sequence[int] = (0, 0)
) -> Efficiency:
    """Return the efficiency with these coefficients, as logarithms, and with the spreads of both kinds of models."""
    products, convolutions, memory, launch_s, ramp, kept = np.exp(logs).tolist()

    def family(compute_ratio: float, log_spread: float, n: int) -> FamilyEfficiency:
        return FamilyEfficiency(
            compute_ratio=compute_ratio, memory_ratio=memory, log_spread=log_spread, n=n, source="steps"
        )

    return Efficiency(
        kind="gpu",
        vendor="AWS",
        generation="NeuronCore-v2",
        precision="half",
        dispatch_s=NO_DISPATCH_S,
        backward_dispatch_s=NO_DISPATCH_S,
        launch_s=launch_s,
        device_log_spread=encoders,
        edge_ramp=ramp,
        depth_ramp=ramp,
        narrow_product_ratio=1.0,
        cache_kept_ratio=kept,
        fitted_on=("inferentia2-core", "trainium1-core"),
        date=DATE,
        source="AWS Neuron documentation @ 81ce03ae (CC BY-SA 4.0): tests/data/measured/neuron",
        families={
            "*": family(1.0, 0.0, counts[0]),
            "attention": family(products, 0.0, counts[0]),
            "conv": family(convolutions, math.sqrt(max(nets**2 - encoders**2, 0.0)), counts[1]),
            "matmul": family(products, 0.0, counts[0]),
        },
    )


def log_seconds(steps: Sequence[Step], logs: FloatArray) -> FloatArray:
    """Return the logarithms of the predicted times."""
    one = [efficiency_of(logs)]
    return np.log(
        [step_times(kernels, kind="gpu", devices=[device], efficiencies=one).step_s[0, 0] for kernels, device in steps]
    )


def fit(steps: Sequence[Step], measured: FloatArray) -> FloatArray:
    """Return the logarithms of the coefficients that fit the logs of the measured times best, given the priors."""

    def residuals(logs: FloatArray) -> FloatArray:
        errors = (log_seconds(steps, logs) - measured) / _STEP_LOG_SIGMA
        return np.concatenate([errors, (logs - PRIORS) / LOG_SIGMAS])

    found: FloatArray = least_squares(
        residuals, PRIORS, diff_step=1e-2, max_nfev=20, loss="soft_l1", bounds=(-np.inf, MOST)
    ).x
    return found


def shape_of(run: Run) -> str:
    """Return the name of the group of models that are left out together."""
    name = run.measurement.model.rpartition("/")[2].removeprefix("hf:").removeprefix("torchvision:")
    if "large" in name:
        return "BERT-large, RoBERTa-large"
    is_bert_base = "base" in name and "vit" not in name and "distil" not in name
    return "BERT, RoBERTa, ELECTRA, ALBERT, all base" if is_bert_base else name


def main() -> None:
    """Write the efficiency and the table."""
    catalog = load_catalog()
    prepared = prepare(read_measurements(STEPS), catalog, timeout_s=300)
    runs = [run for run in prepared if isinstance(run, Run)]
    if len(runs) < len(prepared):
        raise SystemExit(f"not traced: {[one for one in prepared if not isinstance(one, Run)]}")
    steps = [(kernels_of(run)[0], run.device.device) for run in runs]
    shapes = np.array([shape_of(run) for run in runs], dtype=np.object_)
    measured = np.log([run.measurement.step_s for run in runs])
    is_net = np.array([run.measurement.model.startswith("torchvision") for run in runs])
    left_out = np.zeros(len(runs))
    for shape in dict.fromkeys(shapes):
        at, others = np.flatnonzero(shapes == shape), np.flatnonzero(shapes != shape)
        logs = fit([steps[place] for place in others], measured[others])
        left_out[at] = measured[at] - log_seconds([steps[place] for place in at], logs)
        print(f"{shape}: {np.round(left_out[at], 2).tolist()}", flush=True)
    lines = table(shapes, left_out, is_net)
    logs = fit(steps, measured)
    fitted = measured - log_seconds(steps, logs)
    print(f"coefficients {np.exp(logs)}; mean error in sample {np.abs(fitted).mean():.3f}")
    counts = (int((~is_net).sum()), int(is_net.sum()))
    final = efficiency_of(
        logs,
        encoders=log_spread(left_out[~is_net], shapes[~is_net]),
        nets=log_spread(left_out[is_net], shapes[is_net]),
        counts=counts,
    )
    PROFILE.write_text(yaml_text(final), encoding="utf-8")
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8"), "\n".join(lines), marks=MARKS), encoding="utf-8")


def table(shapes: NameArray, errors: FloatArray, is_net: BoolArray) -> list[str]:
    """Return the lines of the page's table; intervals rest on the errors of the other shapes of the same kind."""
    inside = np.zeros(len(errors), dtype=np.bool_)
    lines = ["| left out | steps | mean error | bias | within the interval |", "| --- | --- | --- | --- | --- |"]
    for shape in dict.fromkeys(shapes):
        at = shapes == shape
        others = ~at & (is_net == is_net[at][0])
        spread = log_spread(errors[others], shapes[others])
        inside[at] = np.abs(errors[at]) <= Z_90 * spread
        lines.append(row(shape, errors[at], inside[at]))
    for name, at in (("encoders, all", ~is_net), ("convolutional nets, all", is_net)):
        lines.append(row(f"**{name}**", errors[at], inside[at]))
    lines.append(row("**all**", errors, inside))
    return lines


def row(name: str, errors: FloatArray, inside: BoolArray) -> str:
    """Return a line of the table; errors are log(measured / predicted)."""
    relative = np.exp(-errors) - 1
    share = f"{inside.sum()} of {len(inside)} ({inside.mean():.0%})"
    return f"| {name} | {len(errors)} | {np.abs(relative).mean():.0%} | {relative.mean():+.0%} | {share} |"


if __name__ == "__main__":
    main()
