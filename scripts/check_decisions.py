"""Checks whether the predictions pick the cheapest machine for served language models, against measured services.

    python scripts/check_decisions.py --measured tests/data/measured/served/vllm.csv

Every measured shape of machine with a price is a candidate. Its dollars per million output tokens are computed from the
measured rate and from the rate that a fit without this shape predicts, with one request at a time and under the load
that the machine answered most of. Prints a table in Markdown: the cheapest kind of device by both, the regret (what the
predicted choice costs as measured, over the least), and how far the ratio of CPU to GPU cost is off.
"""

import argparse
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fit_engine import Rows, left_out

from advisor.answers.served_validation import ServedRun, prepare_served
from advisor.catalog.overlay import load_catalog
from advisor.records.device import DeviceKind
from advisor.records.price import Catalog

_TOLERATED = 1.3
_MACHINE = re.compile(r"(?P<vcpus>\d+) vCPUs, (?P<threads>\d+) per core")


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A machine that can answer: dollars per million output tokens, as measured and as predicted without its shape."""

    kind: DeviceKind
    name: str
    measured_usd: float
    predicted_usd: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The cheapest machine of one question, as measured and as predicted."""

    question: str
    candidate_count: int
    measured: Candidate
    predicted: Candidate
    regret_ratio: float
    """Measured cost of the predicted choice over the least measured cost, minus 1."""
    ratio_error: float
    """The predicted ratio of the cheapest CPU's to the cheapest GPU's cost, over the measured one."""
    same_machines_ratio_error: float
    """The same for the CPU and the GPU that are cheapest as measured."""


def main() -> None:
    """Print the table of decisions and their summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--measured", type=Path, required=True, action="append", help="table of served models")
    arguments = parser.parse_args()
    catalog = load_catalog()
    prepared = prepare_served(arguments.measured, catalog, timeout_s=600)
    runs = [run for run in prepared if isinstance(run, ServedRun)]
    decisions = decisions_of(list(candidates_of(runs, catalog)))
    print("\n".join(table(decisions)))


def candidates_of(runs: Sequence[ServedRun], catalog: Catalog) -> Iterator[tuple[str, Candidate]]:
    """Yield each priced machine with the question that it answers."""
    by_isa: dict[str, list[ServedRun]] = defaultdict(list)
    for run in runs:
        by_isa["gpu" if run.device.kind == "gpu" else run.device.isa].append(run)
    loads: dict[tuple[str, str], list[tuple[float, float, Candidate]]] = defaultdict(list)
    for isa, members in by_isa.items():
        rows = Rows(members, catalog)
        kind = "gpu" if isa == "gpu" else "cpu"
        ttft, tpot = left_out(rows, kind, rows.shapes, ~rows.locked)
        for place, run in enumerate(members):
            usd_per_hour = price_of(run, catalog)
            row = run.row
            if usd_per_hour is None or rows.locked[place] or not row.tokens_per_s or not row.tpot_s:
                continue
            question = f"{Path(row.model.removeprefix('hf:')).stem}, {row.prompt_tokens:,} + {row.output_tokens:,}"
            slower = math.exp(tpot[place])
            if row.concurrency == 1 and row.ttft_s:
                tokens = row.output_tokens - 1
                first_s = row.ttft_s * math.exp(ttft[place])
                slower = (first_s + tokens * row.tpot_s * slower) / (row.ttft_s + tokens * row.tpot_s)
            measured_usd = usd_per_hour / 3600 / row.tokens_per_s * 1e6
            candidate = Candidate(
                kind=run.device.kind,
                name=f"{row.device} {row.machine}",
                measured_usd=measured_usd,
                predicted_usd=measured_usd * slower,
            )
            if row.concurrency == 1:
                yield f"{question}, one request", candidate
            else:
                loads[question, candidate.name].append((row.tokens_per_s, row.concurrency, candidate))
    for (question, _), found in loads.items():
        yield f"{question}, loaded", max(found, key=lambda one: one[0])[2]


def price_of(run: ServedRun, catalog: Catalog) -> float | None:
    """Return the lowest trusted on-demand price of a machine of this shape, USD per hour; None without one."""
    machine = _MACHINE.match(run.row.machine)
    device, _, _ = run.row.device.partition("@")
    if machine is None:
        return None
    prices = [
        price.usd_per_hour
        for offer in catalog.offers
        if (offer.gpu or offer.cpu) == device
        and max(1, offer.gpu_count) == (run.row.tensor_parallel if offer.gpu else 1)
        and (offer.gpu or (offer.vcpus, offer.threads_per_core) == (int(machine["vcpus"]), int(machine["threads"])))
        and offer.tier == "hyperscaler"
        for price in offer.prices
        if price.kind == "on_demand"
    ]
    return min(prices, default=None)


def decisions_of(candidates: Sequence[tuple[str, Candidate]]) -> list[Decision]:
    """Return the decision of every question that both kinds of device can answer."""
    by_question: Mapping[str, list[Candidate]] = defaultdict(list)
    for question, candidate in candidates:
        by_question[question].append(candidate)
    found = []
    for question, own in sorted(by_question.items()):
        if {one.kind for one in own} != {"cpu", "gpu"}:
            continue
        measured = min(own, key=lambda one: one.measured_usd)
        predicted = min(own, key=lambda one: one.predicted_usd)
        found.append(
            Decision(
                question=question,
                candidate_count=len(own),
                measured=measured,
                predicted=predicted,
                regret_ratio=predicted.measured_usd / measured.measured_usd - 1,
                ratio_error=_ratio(own, "predicted_usd") / _ratio(own, "measured_usd"),
                same_machines_ratio_error=_ratio(_cheapest(own), "predicted_usd") / _ratio(own, "measured_usd"),
            )
        )
    return found


def _cheapest(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return the CPU and the GPU that are cheapest as measured."""
    cheapest_first = sorted(candidates, key=lambda one: one.measured_usd)
    return [next(one for one in cheapest_first if one.kind == kind) for kind in ("cpu", "gpu")]


def _ratio(candidates: Sequence[Candidate], amount: str) -> float:
    """Return the cheapest CPU's cost over the cheapest GPU's."""
    cpu, gpu = (min(float(getattr(one, amount)) for one in candidates if one.kind == kind) for kind in ("cpu", "gpu"))
    return cpu / gpu


def table(decisions: Sequence[Decision]) -> Iterator[str]:
    """Yield the lines of the table and its summary."""
    head = ("question", "machines", "cheapest as measured, $/Mtok", "cheapest as predicted", "regret")
    yield f"| {' | '.join(head)} | CPU / GPU off by | the same, for the machines that are cheapest as measured |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    for one in decisions:
        yield (
            f"| {one.question} | {one.candidate_count} | {one.measured.name}, {one.measured.measured_usd:.3g} | "
            f"{one.predicted.name}, {one.predicted.predicted_usd:.3g} | {one.regret_ratio:.1%} | "
            f"{_factor(one.ratio_error):.2f} | {_factor(one.same_machines_ratio_error):.2f} |"
        )
    sides = sum(one.measured.kind == one.predicted.kind for one in decisions)
    within, same = (
        sum(_factor(ratio) <= _TOLERATED for ratio in ratios)
        for ratios in zip(*((one.ratio_error, one.same_machines_ratio_error) for one in decisions), strict=True)
    )
    regret = sum(one.regret_ratio for one in decisions) / max(1, len(decisions))
    yield ""
    yield (
        f"Side right in {sides} of {len(decisions)}, ratio within {_TOLERATED} in {within}, for the machines that are "
        f"cheapest as measured in {same}, mean regret {regret:.1%}."
    )


def _factor(ratio: float) -> float:
    """Return the ratio or its inverse, whichever is larger."""
    return max(ratio, 1 / ratio)


if __name__ == "__main__":
    main()
