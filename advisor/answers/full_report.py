"""Everything that a report shows, on one page: question -> ranking -> a few devices looked at closely -> break-even."""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor import __version__
from advisor.answers.break_even import breakeven_workload
from advisor.answers.explanation import explain_workload
from advisor.answers.memory_fit import device_memory
from advisor.answers.ranking import rank_question
from advisor.calibrate.in_force import with_calibrations
from advisor.catalog.locate import shipped_profiles
from advisor.cost.batch_sweep import batch_points
from advisor.devices.named_machine import NamedMachine, machine_at_hand, quoted_machine
from advisor.errors import NothingFitsError, UsageError
from advisor.files.whole_file import write_whole
from advisor.machine.this_machine import this_machine
from advisor.predict.batches import batch_candidates
from advisor.predict.step_time import predict
from advisor.question.from_model import trace_live
from advisor.question.from_source import calibrations_for, catalog_of, question_of
from advisor.question.option_values import options_of
from advisor.question.record import Question
from advisor.question.served_model import as_served
from advisor.records.answer import BatchPoint, Quote, Recommendation
from advisor.records.break_even_curves import BreakEven
from advisor.records.machine import LOCAL, Machine
from advisor.records.options import Options
from advisor.records.price import Catalog, Price
from advisor.records.report_contents import AccuracyGroup, CloseLook, PriceSource, Report, Role
from advisor.records.workload import Workload
from advisor.report.html import render_report

if TYPE_CHECKING:
    import torch
    from torch import nn


def report_source(source: str, options: Options, **how: Any) -> Report:
    """The report of the model in `source`; `how` is as `rank_source` takes it."""
    return report_question(question_of(source, options, **how))


def save_report(
    model: "nn.Module",
    example_inputs: Any,
    file: str | Path,
    *,
    loss: Callable[[Any, Any], "torch.Tensor"] | None = None,
    optimizer: Callable[[Iterable[Any]], "torch.optim.Optimizer"] | None = None,
    train_step: Callable[["nn.Module", Any], Any] | None = None,
    **flags: Any,
) -> Recommendation:
    """Write what `advise SOURCE -o report.html` writes, for `model`, and return the recommendation that it shows.

    All else is as `recommend` takes it, `flags` included but `measure`. Raises `UsageError` where `file` is no .html.
    """
    options, path = options_of(flags, function="save_report"), Path(file)
    if path.suffix.lower() != ".html":
        raise UsageError(f"{path}: a report is an HTML file", hint="name it report.html; the answer alone has .save()")

    def trace_at(asked: Options) -> Workload:
        return trace_live(model, example_inputs, asked, loss=loss, optimizer=optimizer, train_step=train_step)

    catalog, machine = catalog_of(options), None if options.no_local else this_machine()
    question = Question(
        workload=trace_at(options),
        options=options,
        catalog=catalog,
        trace_at=lambda batch: trace_at(replace(options, batch=str(batch))),
        machine=machine,
        calibrated=calibrations_for(machine, catalog, options),
    )
    report = report_question(question)
    write_whole(render_report(report), path)
    return report.recommendation


def report_question(question: Question, *, today: date | None = None, with_break_even: bool = True) -> Report:
    """Rank every offer, and look closely at the best GPU, the best CPU and the machine at hand, each by itself.

    `with_break_even` False leaves that out: it takes several times as long as all the rest.
    """
    recommendation = rank_question(question, today=today)
    calibrated = question.calibrated.calibrations if question.calibrated else ()
    catalog = with_calibrations(question.catalog, calibrated)
    return Report(
        recommendation=recommendation,
        looks=_close_looks(question, recommendation, catalog),
        price_sources=_price_sources(recommendation.quotes, catalog),
        accuracy=shipped_accuracy(),
        version=__version__,
        made_on=(today or date.today()).isoformat(),
        break_even=_break_even(question, catalog) if with_break_even else None,
    )


def shipped_accuracy() -> tuple[AccuracyGroup, ...]:
    """How far the shipped efficiencies are from measured steps, as `make accuracy` last found it; all rows first."""
    document = json.loads((shipped_profiles() / "accuracy.json").read_text(encoding="utf-8"))
    named: list[tuple[str, str, dict[str, Any]]] = [("", "", document["overall"])]
    for group in document["groups"]:
        ((by, name),) = group["by"].items()
        named.append((by, name, group))
    return tuple(
        AccuracyGroup(
            by=by,
            name=name,
            n=score["n"],
            mape=score["mape"],
            median_ape=score["median_ape"],
            bias=score["bias"],
            coverage_90=score["coverage_90"],
            roofline_mape=score["roofline_mape"],
        )
        for by, name, score in named
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """What is looked at closely."""

    role: Role
    quote: Quote
    machine: NamedMachine


def _close_looks(question: Question, recommendation: Recommendation, catalog: Catalog) -> tuple[CloseLook, ...]:
    subjects = list(_subjects(recommendation, question.machine, catalog))
    if not subjects:
        return ()
    workload, options = as_served(question.workload, question.options)
    explanation = explain_workload(
        workload,
        options,
        on=[LOCAL if subject.role == "at hand" else subject.quote.id for subject in subjects],
        catalog=catalog,
        machine=question.machine,
        recommendation=recommendation,
    )
    batches = _batch_points(workload, options, subjects, catalog)
    return tuple(
        CloseLook(
            role=subject.role,
            quote=subject.quote,
            step=step,
            batches=points,
            memory=device_memory(subject.machine, workload, options, batch=subject.quote.batch),
        )
        for subject, step, points in zip(subjects, explanation.steps, batches, strict=True)
    )


def _subjects(recommendation: Recommendation, machine: Machine | None, catalog: Catalog) -> Iterable[_Subject]:
    rented = [quote for quote in recommendation.quotes if quote.provider != LOCAL]
    roles: Sequence[tuple[Role, str]] = (("best GPU", "gpu"), ("best CPU", "cpu"))
    for role, kind in roles:
        best = next((quote for quote in rented if quote.device.kind == kind and quote.plan is None), None)
        if best is not None:
            yield _Subject(role=role, quote=best, machine=quoted_machine(best, catalog))
    here = recommendation.at_hand
    if here is not None and machine is not None:
        yield _Subject(role="at hand", quote=here, machine=machine_at_hand(here, machine, catalog))


def _batch_points(
    workload: Workload, options: Options, subjects: Sequence[_Subject], catalog: Catalog
) -> list[tuple[BatchPoint, ...]]:
    """The step of every device at the batches that `--batch auto` considers; none where only one is known."""
    if not workload.batch_is_affine:
        return [()] * len(subjects)
    asked = batch_candidates("auto", mode=options.mode, source_batch=workload.batch)
    batches = np.union1d(asked, [subject.quote.batch for subject in subjects])
    found = predict(
        workload,
        devices=[subject.machine.device for subject in subjects],
        efficiencies=catalog.efficiencies,
        batches=batches,
        precision=options.precision,
        layout=options.layout,
        compile_mode=options.compile,
        loader_s_per_sample=options.loader_s_per_sample,
    )
    return [batch_points(found, row, usd_per_hour=subject.quote.usd_per_hour) for row, subject in enumerate(subjects)]


def _break_even(question: Question, catalog: Catalog) -> BreakEven | None:
    """None where the limits leave one kind of device without an offer, or ask for what is at hand alone."""
    if LOCAL in question.options.device:
        return None
    try:
        return breakeven_workload(question.workload, question.options, catalog=catalog)
    except NothingFitsError:
        return None


def _price_sources(quotes: Iterable[Quote], catalog: Catalog) -> tuple[PriceSource, ...]:
    """Grouped by provider and source, as they are named in the price files."""
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
