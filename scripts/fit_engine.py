"""Fits the costs of an inference engine to measured services, and writes them into its file.

    python scripts/fit_engine.py --measured tests/data/measured/served/vllm.csv --engine profiles/engines/vllm.yaml

Each instruction set has its own coefficients, and so have GPUs. A shape of machine counts once for each model, however
many of its loads were measured. Prints the errors of machines and devices left out whole. Without --final, rows of the
lockbox (`lockbox.py`) have no weight; with --look they are predicted, which docs/internals/experiments.md logs.
"""

import argparse
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
from lockbox import is_served_locked
from scipy.optimize import least_squares

from advisor.answers.served_validation import ServedRun, prepare_served
from advisor.catalog.overlay import load_catalog
from advisor.fit.files import number
from advisor.predict.served_pass import COEFFICIENTS, DeviceRates, device_rates, with_costs
from advisor.records.device import Prior
from advisor.records.engine import PassCosts
from advisor.records.options import Options
from advisor.records.prediction import FloatArray
from advisor.records.price import Catalog
from advisor.records.scale import Fabric, Link, Plan
from advisor.scale.links import inside_link
from advisor.scale.request_times import request_times
from advisor.scale.served import engine_precision
from advisor.scale.served_model import ServedModel

ROBUST_SCALE = 0.15
"""Log error from which on a row counts linearly: instances of one shape differ by more than 40 % in some cases."""
PRIOR_WEIGHT = 0.1
"""Residual of a coefficient one standard deviation off its prior, as that of a row which is 10 % off: a choice."""
TTFT_WEIGHT = 0.7
"""Weight of a log error of TTFT, where one of TPOT has 1: a choice, without a source."""
FOLDS = 5
"""Parts that are left out in turn: a choice, each costs a fit."""
Costs = Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Group:
    """Rows of one workload on the same number of GPUs; arrays are (rows,)."""

    model: ServedModel
    rates: DeviceRates
    fabric: Fabric | None
    in_flight: FloatArray
    ways: int
    chunk_tokens: int
    index: list[int]
    """The rows' indices among all of the instruction set."""


class Rows:
    """The rows of one instruction set, with their measured times: NaN where one was not measured."""

    def __init__(self, runs: Sequence[ServedRun], catalog: Catalog) -> None:
        self.runs = list(runs)
        self.ttft_s = np.array([run.row.ttft_s or np.nan for run in runs])
        self.tpot_s = np.array([run.row.tpot_s or np.nan for run in runs])
        self.is_alone = np.array([run.row.concurrency == 1 for run in runs])
        self.shapes = [f"{run.row.device} {run.row.machine}" for run in runs]
        self.devices = [run.device.id for run in runs]
        self.locked = np.array([is_served_locked(run.row.device, run.row.machine) for run in runs])
        same = Counter(zip(self.shapes, (run.row.model for run in runs), strict=True))
        self.weight = np.array(
            [same[key] ** -0.5 for key in zip(self.shapes, (run.row.model for run in runs), strict=True)]
        )
        groups: dict[tuple[object, ...], list[int]] = {}
        for index, run in enumerate(runs):
            engine = _engine_of(run)
            chunk = engine.batch_limits(run.device).max_num_batched_tokens
            key = (id(run.workload.rows), run.row.sampling, run.row.tensor_parallel, chunk)
            groups.setdefault(key, []).append(index)
        self.groups = [self._group(members, catalog) for members in groups.values()]

    def _group(self, members: list[int], catalog: Catalog) -> Group:
        runs = [self.runs[index] for index in members]
        first, engine = runs[0], _engine_of(runs[0])
        devices = [run.device for run in runs]
        precisions = [engine_precision(device, engine, Options(precision="half")) for device in devices]
        rates = device_rates(devices, precisions, engine=engine, efficiencies=catalog.efficiencies)
        flat = DeviceRates(**{one.name: np.ravel(getattr(rates, one.name)) for one in fields(DeviceRates)})
        ways = first.row.tensor_parallel
        return Group(
            model=ServedModel(first.workload),
            rates=flat,
            fabric=Fabric(gpu_count=ways, inside=_flat(inside_link(devices, ways=ways))) if ways > 1 else None,
            in_flight=np.array([float(run.row.concurrency) for run in runs]),
            ways=ways,
            chunk_tokens=engine.batch_limits(first.device).max_num_batched_tokens,
            index=members,
        )

    def predicted(self, costs: Costs) -> tuple[FloatArray, FloatArray]:
        """Return TTFT and TPOT of every row, (rows,)."""
        ttft_s, tpot_s = np.zeros(len(self.runs)), np.zeros(len(self.runs))
        for group in self.groups:
            times = request_times(
                group.model,
                rates=with_costs(group.rates, {name: np.array(value) for name, value in costs.items()}),
                width="half",
                in_flight=group.in_flight,
                plan=Plan(tensor=group.ways),
                fabric=group.fabric,
                chunk_tokens=group.chunk_tokens,
            )
            ttft_s[group.index], tpot_s[group.index] = np.ravel(times.first_s), np.ravel(times.between_s)
        return ttft_s, tpot_s

    def log_errors(self, costs: Costs) -> tuple[FloatArray, FloatArray]:
        """Return log(predicted / measured) of TTFT and of TPOT; NaN where not measured."""
        ttft_s, tpot_s = self.predicted(costs)
        return np.log(ttft_s / self.ttft_s), np.log(tpot_s / self.tpot_s)


def _flat(link: Link) -> Link:
    """Return the link with its arrays (rows, 1) as (rows,)."""
    rates = {one.name: np.ravel(getattr(link, one.name)) for one in fields(Link) if one.name != "step_s"}
    ll_s, ll128_s, simple_s = map(np.ravel, link.step_s)
    return Link(step_s=(ll_s, ll128_s, simple_s), **rates)


def _engine_of(run: ServedRun):  # type: ignore[no-untyped-def]
    generation = run.workload.generation
    if generation is None or generation.engine is None:
        raise ValueError(f"{run.file}:{run.line}: no engine")
    return generation.engine


def priors_of(kind: str) -> dict[str, Prior]:
    """Return the priors of the coefficients on this kind of device."""
    priors = {one.name: one.metadata["priors"] for one in fields(PassCosts) if one.metadata}
    return {name: of_kind[kind] for name, of_kind in priors.items() if kind in of_kind}


def fit(rows: Rows, kind: str, among: FloatArray) -> dict[str, float]:
    """Return the coefficients that fit the rows `among`, a mask."""
    priors = priors_of(kind)
    start = np.log([prior.start for prior in priors.values()])
    low, high = (np.log([getattr(prior, end) for prior in priors.values()]) for end in ("low", "high"))
    sigma = np.array([prior.log_sigma for prior in priors.values()])
    has_ttft, has_tpot = among & np.isfinite(rows.ttft_s), among & np.isfinite(rows.tpot_s)

    def costs_at(point: FloatArray) -> dict[str, float]:
        zero = dict.fromkeys(COEFFICIENTS, 0.0)
        return zero | dict(zip(priors, np.exp(point).tolist(), strict=True))

    def residuals(point: FloatArray) -> FloatArray:
        ttft, tpot = rows.log_errors(costs_at(point))
        return np.concatenate(
            [
                TTFT_WEIGHT * (ttft * rows.weight)[has_ttft],
                (tpot * rows.weight)[has_tpot],
                PRIOR_WEIGHT * (point - start) / sigma,
            ]
        )

    solved = least_squares(residuals, start, bounds=(low, high), loss="soft_l1", f_scale=ROBUST_SCALE)
    return costs_at(solved.x)


def show(title: str, rows: Rows, errors: tuple[FloatArray, FloatArray], chosen: FloatArray) -> None:
    """Print mean absolute percentage errors of TPOT alone, of TPOT under load and of TTFT."""
    ttft, tpot = errors
    parts = []
    for name, values, mask in (
        ("TPOT alone", tpot, rows.is_alone),
        ("under load", tpot, ~rows.is_alone),
        ("TTFT", ttft, rows.is_alone),
    ):
        own = values[chosen & mask & np.isfinite(values)]
        if len(own):
            parts.append(f"{name} {np.abs(np.expm1(own)).mean():.1%} bias {own.mean():+.2f} n {len(own)}")
    print(f"{title}: {'; '.join(parts)}")


def spread(values: FloatArray) -> float:
    """Return a robust standard deviation: the 90 % quantile of the absolute errors over 1.645."""
    own = values[np.isfinite(values)]
    return float(np.quantile(np.abs(own), 0.9) / 1.645) if len(own) else 0.3


def left_out(rows: Rows, kind: str, keys: Sequence[str], among: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the log errors of rows predicted by fits without those of their fold; a key is never split."""
    names = sorted(set(keys))
    folds = {name: place % min(FOLDS, len(names)) for place, name in enumerate(names)}
    of_row = np.array([folds[key] for key in keys])
    ttft, tpot = (np.full(len(keys), np.nan) for _ in range(2))
    for fold in range(min(FOLDS, len(names))):
        without = among & (of_row != fold)
        if not without.any():
            continue
        errors = rows.log_errors(fit(rows, kind, without))
        for mine, found in zip((ttft, tpot), errors, strict=True):
            mine[of_row == fold] = found[of_row == fold]
    return ttft, tpot


def main() -> None:
    """Fit every instruction set, print errors, and write the costs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, action="append", help="table of served models")
    parser.add_argument("--engine", type=Path, required=True, help="file of the engine, whose costs are rewritten")
    parser.add_argument("--look", action="store_true", help="predict the lockbox; log it in experiments.md")
    parser.add_argument("--final", action="store_true", help="give the lockbox weight too: what is shipped")
    parser.add_argument("--start", action="store_true", help="write the priors' starts alone")
    arguments = parser.parse_args()
    if arguments.start:
        write(arguments.engine, {isa: start_of(isa) for isa in ("gpu", "amx", "avx512_bf16", "avx512", "avx2", "arm")})
        return
    catalog = load_catalog()
    prepared = prepare_served(arguments.measured, catalog, timeout_s=600)
    runs = [run for run in prepared if isinstance(run, ServedRun)]
    by_isa: dict[str, list[ServedRun]] = {}
    for run in runs:
        by_isa.setdefault("gpu" if run.device.kind == "gpu" else run.device.isa, []).append(run)
    print(f"{len(runs)} rows of {len(prepared)}")
    all_rows = {isa: Rows(members, catalog) for isa, members in by_isa.items()}
    found: dict[str, dict[str, float | tuple[str, ...]]] = {}
    for isa, rows in all_rows.items():
        kind = "gpu" if isa == "gpu" else "cpu"
        open_rows = ~rows.locked
        costs = fit(rows, kind, open_rows)
        print(isa, {name: float(number(value)) for name, value in costs.items() if value})
        show(f"{isa} fitted", rows, rows.log_errors(costs), open_rows)
        shapes = left_out(rows, kind, rows.shapes, open_rows)
        show(f"{isa} shapes left out", rows, shapes, open_rows)
        for device in sorted(set(rows.devices)):
            of_device = np.array([one == device for one in rows.devices])
            show(f"  {device}", rows, shapes, open_rows & of_device)
        whole = shapes
        if len({device for device, locked in zip(rows.devices, rows.locked, strict=True) if not locked}) > 1:
            whole = left_out(rows, kind, rows.devices, open_rows)
            show(f"{isa} devices left out", rows, whole, open_rows)
        if arguments.look:
            show(f"{isa} LOCKBOX", rows, rows.log_errors(costs), rows.locked)
            for device in sorted({one for one, locked in zip(rows.devices, rows.locked, strict=True) if locked}):
                of_device = np.array([one == device for one in rows.devices])
                show(f"  LOCKBOX {device}", rows, rows.log_errors(costs), rows.locked & of_device)
        used = np.ones_like(open_rows) if arguments.final else open_rows
        alone = open_rows & rows.is_alone
        found[isa] = {
            **(fit(rows, kind, used) if arguments.final else costs),
            "tpot_log_spread": max(spread(whole[1][alone]), spread(shapes[1][alone])),
            "known_log_spread": spread(shapes[1][alone]),
            "load_log_spread": spread(whole[1][open_rows & ~rows.is_alone]),
            "ttft_log_spread": spread(whole[0][alone]),
            "fitted_on": tuple(sorted({one for one, use in zip(rows.devices, used, strict=True) if use})),
            "fitted_generations": tuple(
                sorted({run.device.generation for run, use in zip(rows.runs, used, strict=True) if use})
            ),
        }
    cross_isa(all_rows, found)
    write(arguments.engine, found)


def cross_isa(rows: Mapping[str, Rows], found: dict[str, dict[str, float | tuple[str, ...]]]) -> None:
    """Print the errors of each instruction set with the costs of the others: a kind of CPU that nobody measured."""
    for isa, own in rows.items():
        for other, costs in found.items():
            if "gpu" not in (isa, other) and isa != other:
                plain = {name: float(costs[name]) for name in COEFFICIENTS}  # type: ignore[arg-type]
                show(f"{isa} with the costs of {other}", own, own.log_errors(plain), ~own.locked)


def start_of(isa: str) -> dict[str, float | tuple[str, ...]]:
    """Return the starts of the coefficients, with spreads of a factor of 1.6."""
    priors = priors_of("gpu" if isa == "gpu" else "cpu")
    coefficients = {name: priors[name].start if name in priors else 0.0 for name in COEFFICIENTS}
    spreads = dict.fromkeys(("tpot_log_spread", "known_log_spread", "load_log_spread", "ttft_log_spread"), 0.3)
    return {**coefficients, **spreads, "fitted_on": ("nothing",)}


def write(path: Path, costs: Mapping[str, Mapping[str, float | tuple[str, ...]]]) -> None:
    """Rewrite everything below `costs:` in the engine's file."""
    head = re.split(r"^costs:\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[0]
    lines = [f"{head}costs:"]
    for isa, values in costs.items():
        lines.append(f"  {isa}:")
        for name, value in values.items():
            text = f"[{', '.join(value)}]" if isinstance(value, tuple) else number(value)
            lines.append(f"    {name}: {text}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
