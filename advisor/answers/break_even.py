"""Finds where the cheapest CPU and the cheapest GPU cost the same."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from advisor.answers.market import markets_of
from advisor.answers.predicted_steps import predict_asked, predict_at
from advisor.answers.ranking import rank
from advisor.catalog.find import overlay_notes
from advisor.cost.api_comparison import compare_with_api
from advisor.cost.by_kind import ByKind, KindMarket
from advisor.cost.crossing_curve import (
    curve_of,
    folk_rule_of,
    parameter_curve,
    requests_curve,
    samples_curve,
)
from advisor.cost.job import job_for
from advisor.cost.selection import offer_filter
from advisor.errors import NothingFitsError, UsageError
from advisor.predict.anchor import uncorrected
from advisor.predict.batches import batch_candidates
from advisor.predict.join import at_batches
from advisor.question.from_source import CHOOSE_AN_OFFER
from advisor.question.record import Question
from advisor.question.variations import Variation
from advisor.records.answer import Job
from advisor.records.break_even_curves import BREAK_EVEN_SCHEMA_VERSION, BreakEven, Curve
from advisor.records.device import DeviceKind
from advisor.records.flag_values import flag_name
from advisor.records.machine import LOCAL
from advisor.records.options import Options
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.workload import Workload
from advisor.report.marks import KIND_NAMES
from advisor.scale.kept_steps import KeptSteps

_FILTERS = (*CHOOSE_AN_OFFER, "instance", "arch", "gpus")
"""The options that may leave out all CPUs or all GPUs."""
_DEFAULTS = Options()


def break_even(question: Question, *, variations: Sequence[Variation] = ()) -> BreakEven:
    """Find where the cheapest CPU and the cheapest GPU cost the same. Raises `AdvisorError` if one has no offer.

    `variations` are the same model at several values of a parameter; each gives a curve.
    """
    if LOCAL in question.options.device:
        raise UsageError("--device local: this machine is not rented", hint="name kinds or devices to rent")
    if question.options.objective != "cost":
        objective = f"--objective {question.options.objective}"
        raise UsageError(f"{objective}: a break-even compares costs", hint="leave out --objective")
    question = question.without_machine()
    options, catalog = question.options, question.catalog
    recommendation = rank(question)
    market = _Market(question, job=recommendation.job)
    market.check_kinds()
    if recommendation.best is None:
        raise NothingFitsError(
            "no instance does this job within the limits", hint="`advise rank` lists the reason for each offer"
        )
    at_best = market.for_any_job(question)
    samples = samples_curve(at_best, job=market.job)
    found = [_over_batch(question, market), _over_requests(market, at_best), samples]
    return BreakEven(
        schema_version=BREAK_EVEN_SCHEMA_VERSION,
        workload=question.workload.name,
        job=recommendation.job,
        folk_rule=folk_rule_of(at_best(market.job)),
        curves=(
            *(curve for curve in found if isinstance(curve, Curve)),
            *(_over_parameter(variation, question, market) for variation in variations),
        ),
        api=compare_with_api(
            options.api_usd_per_mtok,
            at_best,
            known=catalog.api_prices,
            job=market.job,
            tax_percent=catalog.billing.extras.tax_percent,
        ),
        left_out=(
            *(reason for reason in found if isinstance(reason, str)),
            *(problem for variation in variations for problem in variation.problems),
        ),
        notes=overlay_notes(catalog),
        warnings=recommendation.warnings,
        exchange_rate=recommendation.exchange_rate,
    )


class _Market:
    """The offers that the options leave; it prices any step and job on them."""

    def __init__(self, question: Question, *, job: Job) -> None:
        self.options, self.job, self._offers = question.options, job, question.catalog.offers
        self._market, _ = markets_of(question, job=job)
        self.cheapest = KindMarket(self._market).cheapest

    def check_kinds(self) -> None:
        """Raise `NothingFitsError` if the limits leave one kind of device without an offer."""
        selection = self._market.selection
        may_win = selection.offers[: selection.may_win_count]
        for kind, name in KIND_NAMES.items():
            if not any(offer.kind == kind for offer in may_win):
                flags = " and ".join(map(flag_name, self._excluding(kind)))
                raise NothingFitsError(
                    f"no {name} is left to compare with{' after ' if flags else ''}{flags}",
                    hint="let both kinds of device in; `advise rank` ranks one alone",
                )

    def _excluding(self, kind: DeviceKind) -> Sequence[str]:
        """Return the flags each of which alone leaves this kind of device out; all that are given if none does."""
        given = [name for name in _FILTERS if getattr(self.options, name)]
        offers = [offer for offer in self._offers if offer.kind == kind]

        def lets_in(name: str) -> bool:
            why_excluded = offer_filter(replace(self.options, **{name: getattr(_DEFAULTS, name)}))
            return any(why_excluded(offer) is None for offer in offers)

        return list(filter(lets_in, given)) or given

    def predict(self, question: Question, batches: IndexArray) -> Predictions:
        """Predict one step on every device at these batch sizes."""
        devices, terms = self._market.fleet.devices, self._market.on_devices(self.job)
        return predict_at(question, batches, devices=devices, job=self.job, terms=terms)

    def for_any_job(self, question: Question) -> Callable[[Job], ByKind]:
        """Return the function that finds the cheapest offers for a job, at the batch sizes that it may choose from.

        Under limits on the whole job, each size of it has its own plans over GPUs and machines.
        """
        kept, limits = KeptSteps(), self.job.limits
        of_whole_job = (limits.deadline_s, limits.max_usd, limits.max_usd_per_hour, limits.max_co2_kg)
        is_planned_anew = self.job.generation is None and any(limit is not None for limit in of_whole_job)
        alike = None if is_planned_anew else predict_asked(question, self._market, job=self.job)

        def cheapest(job: Job) -> ByKind:
            return self.cheapest(alike or predict_asked(question, self._market, job=job, kept=kept), job)

        return cheapest


def _over_batch(question: Question, market: _Market) -> Curve | str:
    workload = question.workload
    if not workload.batch_is_affine:
        return (
            "over the batch: how the step grows with it is not known, because its dimensions do not grow linearly "
            "or its batch is fixed"
        )
    asked = market.options.batch
    batches = batch_candidates(
        asked if ".." in asked or "," in asked else "auto", mode=market.options.mode, source_batch=workload.batch
    )
    predictions = market.predict(question, batches)

    def cheapest(batch: int) -> ByKind:
        one = np.array([batch], dtype=np.intp)
        at = at_batches(predictions, one) if batch in batches else market.predict(question, one)
        return market.cheapest(at, market.job)

    return curve_of("batch", batches.tolist(), cheapest)


def _over_requests(market: _Market, at_best: Callable[[Job], ByKind]) -> Curve | str:
    if market.options.mode == "training":
        return "over requests per day: a service cannot run training"
    if market.job.limits.deadline_s is not None:
        return "over requests per day: a service never ends, so --deadline does not apply"
    return requests_curve(at_best, job=market.job)


def _over_parameter(variation: Variation, question: Question, market: _Market) -> Curve:
    def cheapest(value: int, workload: Workload) -> ByKind:
        varied = replace(question, workload=workload, trace_at=variation.trace_at.get(value), correct=uncorrected)
        return market.for_any_job(varied)(job_for(workload, market.options))

    found = {value: cheapest(value, workload) for value, workload in variation.workloads.items()}
    return parameter_curve(variation.parameter, found)
