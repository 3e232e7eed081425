"""Writes docs/internals/chances.md: the chance of being the cheapest, beside the share of wins in draws of all errors.

    python scripts/check_chances.py

Each draw gives the model and every device, host, provider's start-up and price list its error and prices the job anew,
with code of its own: for jobs that end the program approximates how a cost grows with the times of a step and of
start-up, this does not. A slow test compares both.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from advisor import units
from advisor.answers.ranking import rank
from advisor.cost.batch_choice import choose_batches
from advisor.cost.market import Market
from advisor.cost.offer_terms import OfferTerms
from advisor.cost.rank_offers import cost_offers
from advisor.cost.selection import select_offers
from advisor.predict.batches import batches_of
from advisor.predict.capability import fleet_of
from advisor.question.from_source import catalog_of, profile_source, question_of
from advisor.records.answer import Z_90, Job
from advisor.records.options import Options
from advisor.records.prediction import FloatArray, IndexArray
from advisor.scale.predict_on_all import predict_with_growing_batches

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "internals" / "chances.md"
DRAW_COUNT = 20_000
_CHUNK = 1_000
_SEED = 7
PROGRAM_DRAW_COUNT = 4096
"""The number of draws in advisor/cost/cheapest.py."""
BUSY = {
    "MLP": ("examples/mlp.py", Options()),
    "ResNet-50": ("examples/resnet50.py", Options()),
    "ResNet-50, training": ("examples/resnet50.py", Options(mode="training")),
    "LSTM": ("examples/lstm.py", Options()),
    "BERT": ("hf:examples/configs/bert_base.json", Options()),
    "BERT, spot": ("hf:examples/configs/bert_base.json", Options(price="spot")),
}
SIZED = {
    "MLP, ten million samples": ("examples/mlp.py", Options(samples=10_000_000)),
    "ResNet-50, 50,000 samples": ("examples/resnet50.py", Options(samples=50_000)),
    "ResNet-50, a million samples": ("examples/resnet50.py", Options(samples=1_000_000)),
    "BERT, a million samples": ("hf:examples/configs/bert_base.json", Options(samples=1_000_000)),
}
SERVED = {
    "BERT, 10 million requests a day": ("hf:examples/configs/bert_base.json", Options(requests_per_day=10_000_000)),
    "ResNet-50, 10 million requests a day": ("examples/resnet50.py", Options(requests_per_day=10_000_000)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The chance by the program and the share of wins in the draws, by device and by offer, of all that have one."""

    by_device: dict[str, tuple[float, float]]
    by_offer: dict[str, tuple[float, float]]
    of_all: dict[str, tuple[float, float]]

    def worst(self) -> float:
        """Return the largest difference of all."""
        pairs = [pair for one in (self.by_device, self.by_offer, self.of_all) for pair in one.values()]
        return max(abs(chance - share) for chance, share in pairs)


def compare(source: str, options: Options, *, draw_count: int = DRAW_COUNT) -> Comparison:
    """Rank the offers for `source`, and compare the chances in the answer with draws."""
    catalog = catalog_of(options)
    scheme, colon, path = source.rpartition(":")
    workload = profile_source(f"{scheme}{colon}{ROOT / path}", options).workload
    answer = rank(question_of(workload, options, catalog=catalog))
    job = answer.job
    selection = select_offers(catalog.offers, options=options, price_kind=job.price, errors=catalog.price_errors)
    fleet = fleet_of(selection.offers, gpus=catalog.gpus, cpus=catalog.cpus)
    market = Market(selection, fleet=fleet, billing=catalog.billing)
    predictions = predict_with_growing_batches(
        workload,
        devices=fleet.devices,
        efficiencies=catalog.efficiencies,
        batches=batches_of(workload, options),
        options=options,
        job=job,
        terms=market.on_devices(job),
    )
    costed = cost_offers(
        selection.priced,
        fleet=fleet,
        predictions=predictions,
        choice=choose_batches(predictions, job=job, terms=market.on_devices(job)),
        terms=market.terms(job),
        job=job,
        energy=catalog.billing.energy,
    )
    place = {one.offer.id: index for index, one in enumerate(selection.priced)}
    ranked = np.array([place[quote.id] for quote in answer.quotes], dtype=np.intp)
    at = costed.device[ranked], costed.batch_index[ranked]
    priced = [selection.priced[index] for index in ranked.tolist()]
    ids = [predictions.devices[index].id for index in at[0].tolist()]
    own, host = predictions.own_log_spread[at], predictions.host_log_spread
    of_model_spread = np.sqrt(np.maximum(predictions.log_spread[at] ** 2 - own**2, 0))
    host_spread = np.zeros_like(own) if host is None else host[at]
    step_s, batch, terms = predictions.step_s[at], predictions.batches[at[1]], costed.terms.of(ranked)
    columns = step_s[:, np.newaxis], terms.usd_per_hour[:, np.newaxis], terms.start_up_s[:, np.newaxis]
    mid_usd = _usd(*columns, batch=batch, terms=terms, job=job)[:, 0]
    if not np.allclose(mid_usd, [quote.job_usd.mid for quote in answer.quotes], rtol=1e-9):
        raise ValueError(f"{source}: this script prices the job in another way than the answer")
    candidates = np.array([quote.is_candidate for quote in answer.quotes])
    wins, wins_of_all = np.zeros(len(ranked)), np.zeros(len(ranked))
    random = np.random.default_rng(_SEED)
    for count in _chunks(draw_count):
        of_device = _errors(ids, np.sqrt(np.maximum(own**2 - host_spread**2, 0)), random, count=count)
        of_host = _errors([one.offer.cpu for one in priced], host_spread, random, count=count)
        of_model = _errors([""] * len(priced), of_model_spread, random, count=count)
        lists = [(one.offer.provider, device, one.price.kind) for one, device in zip(priced, ids, strict=True)]
        of_price = _errors(lists, np.array([one.log_spread for one in priced]), random, count=count)
        of_start = _errors([one.offer.provider for one in priced], np.ones(len(priced)), random, count=count)
        usd = _usd(
            step_s[:, np.newaxis] * np.exp(of_device + of_host + of_model),
            terms.usd_per_hour[:, np.newaxis] * np.exp(of_price),
            _start_up_s(terms, of_start),
            batch=batch,
            terms=terms,
            job=job,
        )
        wins_of_all += _wins(usd)
        wins += _wins(np.where((candidates if candidates.any() else ~candidates)[:, np.newaxis], usd, np.inf))
    shares = dict(zip([quote.id for quote in answer.quotes], (wins / draw_count).tolist(), strict=True))
    by_device: dict[str, float] = {}
    for device, share in zip(ids, (wins / draw_count).tolist(), strict=True):
        by_device[device] = by_device.get(device, 0.0) + share
    told = {one.id: one.chance for one in answer.chance_by_device}
    return Comparison(
        by_device={device: (told.get(device, 0.0), share) for device, share in by_device.items()},
        by_offer={quote.id: (quote.chance_among_trusted, shares[quote.id]) for quote in answer.quotes},
        of_all={
            quote.id: (quote.chance_cheapest, share)
            for quote, share in zip(answer.quotes, (wins_of_all / draw_count).tolist(), strict=True)
        },
    )


def _start_up_s(terms: OfferTerms, deviations: FloatArray) -> FloatArray:
    """Return start-up times, (offers, draws), log-normal on either side of their middle."""
    safe = [np.where(one > 0, one, 1.0) for one in (terms.start_up_low_s, terms.start_up_s, terms.start_up_high_s)]
    below, above = (np.log(safe[end] / safe[1])[:, np.newaxis] * (end - 1) / Z_90 for end in (0, 2))
    return terms.start_up_s[:, np.newaxis] * np.exp(deviations * np.where(deviations < 0, below, above))


def _usd(
    step_s: FloatArray,
    usd_per_hour: FloatArray,
    start_up_s: FloatArray,
    *,
    batch: IndexArray,
    terms: OfferTerms,
    job: Job,
) -> FloatArray:
    """Return the cost of the job on each offer in each draw, (offers, draws), of on-demand and uninterrupted spot."""

    def of(column: FloatArray | IndexArray) -> FloatArray | IndexArray:
        return column[:, np.newaxis]

    if job.requests_per_day is not None:
        instances = np.ceil(job.requests_per_day / 86400 / job.max_utilization * step_s / of(batch))
        of_instance_usd = 730 * (usd_per_hour + 3600 * of(terms.storage_usd_per_s))
        rent_usd: FloatArray = instances * of_instance_usd
        return rent_usd
    steps = job.samples / batch
    busy_s = start_up_s + of(steps if job.assumed else np.ceil(steps)) * step_s
    increment_s = of(terms.increment_s)
    whole_s = np.ceil(busy_s / np.where(increment_s > 0, increment_s, 1.0) * (1 - 1e-12)) * increment_s
    paid_s = np.maximum(np.maximum(whole_s, busy_s), of(terms.minimum_s))
    per_hour = usd_per_hour + 3600 * of(terms.storage_usd_per_s)
    usd: FloatArray = paid_s / 3600 * per_hour * of(terms.machine_count) + of(terms.egress_usd)
    return usd


def _errors(
    sources: Sequence[Hashable], log_spread: FloatArray, random: np.random.Generator, *, count: int
) -> FloatArray:
    """Return the error of each offer in each draw: one normal number for each source, times the offer's spread."""
    numbers = {source: random.standard_normal(count) for source in dict.fromkeys(sources)}
    return np.stack([numbers[source] for source in sources]) * log_spread[:, np.newaxis]


def _wins(usd: FloatArray) -> FloatArray:
    """Return how often each offer is the cheapest; a tie is shared evenly."""
    is_least = usd <= usd.min(axis=0) * (1 + 1e-12)
    wins: FloatArray = (is_least / is_least.sum(axis=0)).sum(axis=1)
    return wins


def _chunks(total: int) -> Iterator[int]:
    while total > 0:
        yield min(total, _CHUNK)
        total -= _CHUNK


def _lines() -> Iterator[str]:
    for name, (source, options) in (BUSY | SIZED | SERVED).items():
        found = compare(source, options)
        likeliest = sorted(found.by_device.items(), key=lambda one: -one[1][0])[:2]
        told = ", ".join(f"{device} {_percent(chance)} ({_percent(share)})" for device, (chance, share) in likeliest)
        yield f"| {name} | {told} | {100 * found.worst():.1f} |"


def _percent(chance: float) -> str:
    """Return the chance in percent: ">99 %" if it is nearly 1."""
    return ">99 %" if 0.995 <= chance < 1 else units.format_ratio(chance)


_HEAD = f"""# The chance of being the cheapest, checked

`python scripts/check_chances.py` writes this page. It draws {DRAW_COUNT:,} times an error for each device, each
host CPU, each provider's start-up and each price list, as the predictions and prices state them. In each draw it
prices the job anew on every offer and counts which one is the cheapest. The answer's chances come from
{PROGRAM_DRAW_COUNT:,} draws, so differences of up to 3 percentage points are chance. A job with a size may differ by
more: the program approximates how its cost grows with the times of a step and of start-up. The error of the model is
drawn here for all jobs. The program draws it only for services: elsewhere it scales all costs alike and cancels.

This checks the arithmetic, not the errors that go into it; [accuracy.md](../accuracy.md) checks those.

| job | two likeliest devices: chance (share of wins) | largest difference, points |
| --- | --- | --- |
"""

if __name__ == "__main__":
    PAGE.write_text(_HEAD + "\n".join(_lines()) + "\n", encoding="utf-8")
