"""Fits the power of GPUs to measured watts; writes profiles/energy/gpu_power.yaml and a table into docs/energy.md.

    python scripts/fit_power.py

The tables are those of `scripts/list_energy.py`. Power over its limit is the idle share plus a coefficient for each
share of the time that compute, memory traffic and overheads take (`load_ratios` in `advisor/cost/power.py`). The shares
are predicted, by `advisor/scale/request_times.py` for services and by the same rates of devices for single kernels.
GPUs weigh alike, however many rows they have. The table has the errors of each GPU when it is left out of the fit.
"""

import csv
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np
from left_out_spread import rms
from scipy.optimize import least_squares

from advisor.answers.served_validation import ServedRun, prepare_served
from advisor.catalog.overlay import load_catalog
from advisor.cost.power import load_ratios
from advisor.predict.capability import gpu_device
from advisor.predict.served_pass import engine_rates
from advisor.records.energy import GpuPower
from advisor.records.engine import Engine
from advisor.records.options import Options
from advisor.records.prediction import FloatArray
from advisor.records.price import Catalog
from advisor.records.scale import Plan
from advisor.scale.links import fabric_of
from advisor.scale.request_times import request_times
from advisor.scale.served import engine_precision
from advisor.scale.served_model import ServedModel

ROOT = Path(__file__).resolve().parents[1]
TABLES = ROOT / "tests" / "data" / "measured" / "energy"
FILE = ROOT / "profiles" / "energy" / "gpu_power.yaml"
PAGE = ROOT / "docs" / "energy.md"
MARK = "<!-- left-out errors: scripts/fit_power.py -->"
PRIORS = {
    "compute_ratio": (0.8, 0.3),
    "memory_ratio": (0.5, 0.3),
    "overhead_ratio": (0.3, 0.3),
    "most_ratio": (0.97, 0.02),
}
"""Start of each coefficient and the standard deviation of its logarithm: a matmul at full rate draws the power limit, a
copy about two thirds of it."""
PRIOR_WEIGHT = 0.05
"""A coefficient one standard deviation off counts as this share of all rows, one ROBUST_SCALE off: a choice."""
ROBUST_SCALE = 0.15
"""Log error from which on a row counts linearly: a choice, without a source."""
UNSEEN_FACTOR = 2.0
"""Only two GPUs were measured, both for data centres: the error of any other is taken as twice theirs when left out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A measurement with the predicted shares of its time; a kernel has no tokens."""

    device: str
    what: str
    shares: tuple[float, float, float]
    power_ratio: float
    joule_per_token: float | None = None
    predicted_s_per_token: float | None = None
    limit_w: float
    gpus: int = 1


def main() -> None:
    """Fit, print the table, and write both files."""
    catalog = load_catalog()
    rows = [*served_rows(catalog), *kernel_rows(catalog)]
    idle_ratio, idle_log_spread = _idle_ratio()
    devices = sorted({row.device for row in rows})
    left_out = {
        device: fitted([row for row in rows if row.device != device], idle_ratio=idle_ratio) for device in devices
    }
    final = fitted(rows, idle_ratio=idle_ratio)
    table = "\n".join(error_table(rows, left_out, final))
    print(table)
    by_device = [rms([_log_error(row, left_out[device]) for row in rows if row.device == device]) for device in devices]
    values = {
        "idle_ratio": idle_ratio,
        **{name: getattr(final, name) for name in PRIORS},
        "log_spread": rms([_log_error(row, final) for row in rows]),
        "unseen_log_spread": UNSEEN_FACTOR * rms(by_device),
        "idle_log_spread": idle_log_spread,
    }
    lines = [f"{name}: {value:.3f}\n" for name, value in values.items()]
    FILE.write_text(HEAD + "".join(lines) + f"fitted_on: [{', '.join(devices)}]\n" + SOURCE, encoding="utf-8")
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(MARK)
    _, _, after = rest.partition(MARK)
    PAGE.write_text(f"{before}{MARK}\n{table}\n{MARK}{after}", encoding="utf-8")


def served_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield the measured services, with the predicted shares of their passes."""
    for run in prepare_served([TABLES / "served.csv"], catalog, timeout_s=600):
        if not isinstance(run, ServedRun):
            raise ValueError(run.reason)
        generation, ways, device = run.workload.generation, run.row.tensor_parallel, run.device
        if generation is None or generation.engine is None or device.tdp_w is None:
            raise ValueError(f"{run.file}:{run.line}: not served, or its power limit is not known")
        if run.row.watts_per_gpu is None or run.row.tokens_per_s is None:
            raise ValueError(f"{run.file}:{run.line}: no watts or no tokens")
        plan, precision = Plan(tensor=ways), engine_precision(device, generation.engine, Options(precision="half"))
        times = request_times(
            ServedModel(run.workload),
            rates=engine_rates([device], [precision], engine=generation.engine, efficiencies=catalog.efficiencies),
            width="half",
            in_flight=np.array([float(run.row.concurrency)]),
            plan=plan,
            fabric=fabric_of([device], plan) if ways > 1 else None,
            chunk_tokens=generation.engine.batch_limits(device).max_num_batched_tokens,
        )
        compute, memory, overhead = (float(np.ravel(part / times.round_s)[0]) for part in times.round_parts_s)
        yield Row(
            device=device.id,
            what="LLM serving",
            shares=(compute, memory, overhead),
            power_ratio=run.row.watts_per_gpu / device.tdp_w,
            joule_per_token=run.row.watts_per_gpu * ways / run.row.tokens_per_s,
            predicted_s_per_token=float(np.ravel(times.between_s)[0]) / run.row.concurrency,
            limit_w=device.tdp_w,
            gpus=ways,
        )


def kernel_rows(catalog: Catalog) -> Iterator[Row]:
    """Yield the measured kernels; the time that neither compute nor memory traffic explains counts as overhead."""
    engine: Engine = catalog.engines["vllm"]
    with (TABLES / "kernels.csv").open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    for name in sorted({row["device"] for row in rows}):
        device = gpu_device(catalog.gpus[name])
        rates = engine_rates([device], ["bf16"], engine=engine, efficiencies=catalog.efficiencies)
        for row in (row for row in rows if row["device"] == name):
            of_compute = rates.flops_per_s if row["family"] == "gemm" else rates.attention_flops_per_s
            step_s = float(row["step_s"])
            compute = min(1.0, float(row["flops"]) / float(of_compute[0, 0]) / step_s)
            memory = min(1.0, float(row["bytes"]) / float(rates.memory_bytes_per_s[0, 0]) / step_s)
            yield Row(
                device=name,
                what={"gemm": "matmul"}.get(row["family"], "attention"),
                shares=(compute, memory, 1 - max(compute, memory)),
                power_ratio=float(row["watts"]) / float(row["power_limit_w"]),
                limit_w=float(row["power_limit_w"]),
            )


def _idle_ratio() -> tuple[float, float]:
    """Return the median idle power over the limit, and the spread of GPUs around it."""
    with (TABLES / "idle.csv").open(encoding="utf-8", newline="") as lines:
        ratios = [float(row["watts"]) / float(row["power_limit_w"]) for row in csv.DictReader(lines)]
    middle = median(ratios)
    return middle, rms([math.log(ratio / middle) for ratio in ratios])


def fitted(rows: Sequence[Row], *, idle_ratio: float) -> GpuPower:
    """Return the coefficients fitted to these rows; GPUs weigh alike."""
    counts = Counter(row.device for row in rows)
    weight = np.array([len(rows) / len(counts) / counts[row.device] for row in rows]) ** 0.5
    starts = np.log([start for start, _ in PRIORS.values()])
    sigmas = np.array([sigma for _, sigma in PRIORS.values()])

    def residuals(logs: FloatArray) -> FloatArray:
        power = _power(logs, idle_ratio)
        errors = np.array([_log_error(row, power) for row in rows])
        robust = np.sign(errors) * ROBUST_SCALE * np.sqrt(2 * (np.sqrt(1 + (errors / ROBUST_SCALE) ** 2) - 1))
        own = math.sqrt(PRIOR_WEIGHT * len(rows)) * ROBUST_SCALE * (logs - starts) / sigmas
        return np.concatenate([weight * robust, own])

    return _power(least_squares(residuals, starts).x, idle_ratio)


def _power(logs: FloatArray, idle_ratio: float) -> GpuPower:
    values = dict(zip(PRIORS, np.exp(logs).tolist(), strict=True))
    values["most_ratio"] = min(1.0, values["most_ratio"])
    return GpuPower(
        idle_ratio=idle_ratio, log_spread=0.1, unseen_log_spread=0.1, idle_log_spread=0.1, source="", **values
    )


def _log_error(row: Row, power: GpuPower) -> float:
    return math.log(_predicted(row, power) / row.power_ratio)


def _predicted(row: Row, power: GpuPower) -> float:
    return power.idle_ratio + float(sum(load_ratios(power, [np.array(share) for share in row.shares])))


def error_table(rows: Sequence[Row], left_out: dict[str, GpuPower], final: GpuPower) -> Iterator[str]:
    """Yield the lines of the table: errors of watts, and of energy per token with predicted times."""
    yield (
        "| GPU left out | what | rows | watts: mean error | median | bias | within 20 % | mean error in the fit | "
        "energy per token: mean error | within 25 % |"
    )
    yield "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"
    for device, what in sorted({(row.device, row.what) for row in rows}):
        some = [row for row in rows if (row.device, row.what) == (device, what)]
        of_watts = [_predicted(row, left_out[device]) / row.power_ratio - 1 for row in some]
        fit = [abs(_predicted(row, final) / row.power_ratio - 1) for row in some]
        of_energy = [
            _predicted(row, left_out[device]) * row.limit_w * row.gpus * row.predicted_s_per_token / row.joule_per_token
            - 1
            for row in some
            if row.joule_per_token and row.predicted_s_per_token
        ]
        size = np.abs(of_watts)
        energy = (
            f"{np.mean(np.abs(of_energy)):.1%} | {np.mean(np.abs(of_energy) <= 0.25):.0%}" if of_energy else "- | -"
        )
        about = (
            f"{size.mean():.1%} | {np.median(size):.1%} | {np.mean(of_watts):+.1%} | {np.mean(size <= 0.2):.0%} | "
            f"{np.mean(fit):.1%}"
        )
        yield f"| {device} | {what} | {len(some)} | {about} | {energy} |".replace("%", " %")


HEAD = """\
# Power of a GPU over its limit (TDP), with the predicted shares of the time of a step that compute, memory traffic and
# overheads (launches, latencies, sampling) take: idle + sum of coefficient x share, at most `most_ratio`.
# Written by scripts/fit_power.py; docs/energy.md has the errors of GPUs left out. idle_ratio: nvidia-smi of idle GPUs,
# tests/data/measured/energy/idle.csv. Spreads are standard deviations of the logarithm of watts: log_spread for GPUs in
# fitted_on, unseen_log_spread for all others, idle_log_spread for idle power.
"""
SOURCE = """\
source: >-
  H100, services with vLLM: ml-energy/leaderboard @ 0cd52dab (Apache-2.0); B200, kernels: ai-dynamo/aiconfigurator
  @ 095f58a5 (Apache-2.0)
"""

if __name__ == "__main__":
    main()
