"""Collects everything that a report shows: the ranking, a few devices in detail, and the break-even points."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import fields, replace
from datetime import date
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from advisor import __version__
from advisor.answers.break_even import break_even
from advisor.answers.explanation import explain, is_explained_whole, predictions_on
from advisor.answers.memory_fit import device_memory
from advisor.answers.ranking import prepared, rank
from advisor.catalog.overlay import shipped_profiles
from advisor.cost.batch_sweep import batch_points
from advisor.cost.leading import best_of
from advisor.cost.quotes import busy_usd_per_hour
from advisor.devices.named_machine import NamedMachine, machine_at_hand, quoted_machine
from advisor.errors import NothingFitsError
from advisor.predict.anchor import scaled
from advisor.predict.batches import batch_candidates
from advisor.question.record import Question
from advisor.records.answer import BatchPoint, Quote, Recommendation
from advisor.records.break_even_curves import BreakEven
from advisor.records.explained_step import PredictedStep
from advisor.records.machine import LOCAL, Machine
from advisor.records.price import Catalog, Price
from advisor.records.report_contents import AccuracyGroup, DeviceDetail, PriceSource, Report, Role


def report(question: Question, *, today: date | None = None, with_break_even: bool = True) -> Report:
    """Rank every offer, and describe the best GPU, the best CPU and this machine in detail.

    `with_break_even` False leaves that part out: it takes several times as long as everything else.
    """
    question = prepared(question)
    recommendation = rank(question, today=today)
    return Report(
        recommendation=recommendation,
        details=_details(replace(question, trace_fused=None), recommendation),
        price_sources=_price_sources(recommendation.quotes, question.catalog),
        accuracy=shipped_accuracy(),
        version=__version__,
        made_on=(today or date.today()).isoformat(),
        break_even=_break_even(question) if with_break_even else None,
    )


def shipped_accuracy() -> tuple[AccuracyGroup, ...]:
    """Return the error of the shipped efficiencies as `make accuracy` last wrote it; all rows first."""
    document = json.loads((shipped_profiles() / "accuracy.json").read_text(encoding="utf-8"))
    named: list[tuple[str, str, dict[str, Any]]] = [("", "", document["overall"])]
    named += [(by, name, group) for group in document["groups"] for by, name in group["by"].items()]
    figures = [field.name for field in fields(AccuracyGroup) if field.name not in ("by", "name")]
    return tuple(
        AccuracyGroup(by=by, name=name, **{figure: score[figure] for figure in figures}) for by, name, score in named
    )


_Subject: TypeAlias = tuple[Role, Quote, NamedMachine]
"""A device to show in detail."""


def _details(question: Question, recommendation: Recommendation) -> tuple[DeviceDetail, ...]:
    catalog = question.catalog
    subjects = list(_subjects(recommendation, question.machine, catalog))
    if not subjects:
        return ()
    explanation = explain(
        question,
        on=[LOCAL if role == "at hand" else quote.id for role, quote, _ in subjects],
        recommendation=recommendation,
    )
    batches = _batch_points(question, subjects, explanation.steps)
    return tuple(
        DeviceDetail(
            role=role,
            quote=quote,
            step=step,
            batches=points,
            memory=device_memory(
                machine,
                question.at_batch(quote.batch),
                precision=quote.precision,
                plan=quote.plan,
                batch=quote.batch,
            ),
        )
        for (role, quote, machine), step, points in zip(subjects, explanation.steps, batches, strict=True)
    )


def _subjects(recommendation: Recommendation, machine: Machine | None, catalog: Catalog) -> Iterable[_Subject]:
    rented = [quote for quote in recommendation.quotes if quote.provider != LOCAL]
    roles: Sequence[tuple[Role, str]] = (("best GPU", "gpu"), ("best CPU", "cpu"))
    for role, kind in roles:
        some = (quote for quote in rented if quote.device.kind == kind)
        best = best_of(quote for quote in some if is_explained_whole(quote, recommendation.job.generation))
        if best is not None:
            yield role, best, quoted_machine(best, catalog)
    here = recommendation.at_hand
    if here is not None and machine is not None:
        yield "at hand", here, machine_at_hand(here, machine, catalog)


def _batch_points(
    question: Question, subjects: Sequence[_Subject], steps: Sequence[PredictedStep]
) -> list[tuple[BatchPoint, ...]]:
    """Return the step of every device at the batch sizes of `--batch auto`; nothing if only one size is known.

    Beside a timed step, the prediction is taken to err alike at all batch sizes, as for the changes that save.
    """
    workload = question.workload
    if not workload.batch_is_affine:
        return [()] * len(subjects)
    asked = batch_candidates("auto", mode=question.options.mode, source_batch=workload.batch)
    batches = np.union1d(asked, [quote.batch for _, quote, _ in subjects])
    points = []
    for (_, quote, machine), step in zip(subjects, steps, strict=True):
        at_any = question
        if question.measured is not None and quote.time_source == "measured":
            correct = partial(scaled, ratio=step.timed_ratio, anchors=question.measured.anchors)
            at_any = replace(question, correct=correct)
        predictions = predictions_on(machine, at_any, batches=batches)
        points.append(batch_points(predictions, 0, usd_per_hour=busy_usd_per_hour(quote)))
    return points


def _break_even(question: Question) -> BreakEven | None:
    """Return None if the limits leave one kind of device without an offer, or name this machine."""
    if LOCAL in question.options.device:
        return None
    try:
        return break_even(question.by_cost())
    except NothingFitsError:
        return None


def _price_sources(quotes: Iterable[Quote], catalog: Catalog) -> tuple[PriceSource, ...]:
    """Return the sources of the prices, by provider and by their name in the price files."""
    offers = {offer.id: offer for offer in catalog.offers}
    groups: dict[tuple[str, str], list[Price]] = {}
    for quote in quotes:
        if quote.id in offers:
            price = next(price for price in offers[quote.id].prices if price.kind == quote.price_kind)
            groups.setdefault((quote.provider, price.source), []).append(price)
    return tuple(
        PriceSource(
            provider=provider,
            basis=prices[0].basis,
            source=source,
            oldest=min(price.date for price in prices),
            newest=max(price.date for price in prices),
            offer_count=len(prices),
        )
        for (provider, source), prices in sorted(groups.items())
    )
