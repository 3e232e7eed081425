"""Where a CPU and a GPU cost the same, on one page: source -> workload -> the cheapest of each kind -> crossings."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor.answers.ranking import rank_workload
from advisor.calibrate.in_force import with_calibrations
from advisor.catalog.find import device_ids, overlay_notes
from advisor.cost.by_kind import cheapest_by_kind
from advisor.cost.crossing_curve import ByKind, curve_of, folk_rule_of, parameter_curve
from advisor.cost.job import job_of
from advisor.cost.selection import Selection, select_offers
from advisor.cost.service import requests_per_month
from advisor.errors import NothingFitsError, UsageError
from advisor.machine.this_machine import this_machine
from advisor.predict.batches import batch_candidates
from advisor.predict.capability import fleet_of
from advisor.predict.join import at_batches
from advisor.question.from_model import trace_live
from advisor.question.from_source import calibrations_for, catalog_of
from advisor.question.option_values import options_of
from advisor.question.served_model import as_served
from advisor.question.variations import Variation, trace_base, trace_variations
from advisor.records.answer import Job
from advisor.records.break_even_curves import BREAK_EVEN_SCHEMA_VERSION, BreakEven, Curve
from advisor.records.device import DeviceKind
from advisor.records.flag_values import is_workload_file
from advisor.records.machine import LOCAL
from advisor.records.options import Options
from advisor.records.prediction import Fleet, IndexArray, Predictions
from advisor.records.price import Catalog
from advisor.records.workload import Workload
from advisor.scale.predict_on_all import predict_on_all

if TYPE_CHECKING:
    import torch
    from torch import nn

_KINDS: Mapping[DeviceKind, str] = {"cpu": "CPU", "gpu": "GPU"}
_CHOOSE_AN_OFFER = ("provider", "region", "tier", "device")
_POINTS_PER_DECADE = 4
_DECADE_COUNT = 9
"""Of the requests of a day and of the samples of a job, from 1 on."""


def breakeven_source(
    source: str, options: Options, *, vary: Sequence[str] = (), run: bool = False, script_args: tuple[str, ...] = ()
) -> BreakEven:
    """Find where the cheapest CPU and the cheapest GPU for the model in `source` cost the same.

    `vary` names parameters of its factory with their values, "width=64..4096"; without it, a width and a depth are
    varied that the factory takes.
    """
    workload = trace_base(source, options, run=run, script_args=script_args)
    variations = trace_variations(source, options, vary=vary, run=run)
    return breakeven_workload(
        workload,
        replace(options, mode=workload.mode),
        catalog=catalog_of(options) if is_workload_file(source) else _calibrated_catalog(options),
        variations=variations,
    )


def breakeven(
    model: "nn.Module",
    example_inputs: Any = None,
    *,
    loss: Callable[[Any, Any], "torch.Tensor"] | None = None,
    optimizer: Callable[[Iterable[Any]], "torch.optim.Optimizer"] | None = None,
    train_step: Callable[["nn.Module", Any], Any] | None = None,
    **flags: Any,
) -> BreakEven:
    """Find where the cheapest CPU and the cheapest GPU for `model` cost the same. All is as `recommend` takes it."""
    options = options_of(flags, function="breakeven")
    workload = trace_live(model, example_inputs, options, loss=loss, optimizer=optimizer, train_step=train_step)
    return breakeven_workload(workload, options, catalog=_calibrated_catalog(options))


def _calibrated_catalog(options: Options) -> Catalog:
    """With what was timed on the machine at hand, which holds for offers of the same device too."""
    catalog, machine = catalog_of(options), None if options.no_local else this_machine()
    return with_calibrations(catalog, calibrations_for(machine, catalog, options).calibrations)


def breakeven_workload(
    workload: Workload, options: Options, *, catalog: Catalog, variations: Sequence[Variation] = ()
) -> BreakEven:
    """Find where the cheapest CPU and the cheapest GPU cost the same. Raises `AdvisorError` where one has no offer."""
    if LOCAL in options.device:
        raise UsageError("--device local: what is at hand is not rented", hint="name kinds or devices to rent")
    workload, options = as_served(workload, options)
    recommendation = rank_workload(workload, replace(options, objective="cost"), catalog=catalog)
    market = _Market(options=options, catalog=catalog, job=recommendation.job)
    market.check_kinds()
    if recommendation.best is None:
        raise NothingFitsError("no instance does this job within the limits", hint="`advise rank` says why of each")
    found = [over(workload, market) for over in (_over_batch, _over_requests, _over_samples)]
    return BreakEven(
        schema_version=BREAK_EVEN_SCHEMA_VERSION,
        workload=workload.name,
        job=recommendation.job,
        folk_rule=folk_rule_of(market.cheapest(market.predict(workload, market.candidates(workload)), market.job)),
        curves=(
            *(curve for curve in found if isinstance(curve, Curve)),
            *(_over_parameter(variation, market) for variation in variations),
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
    """The offers that the options leave, and what they cost for any step and job."""

    def __init__(self, *, options: Options, catalog: Catalog, job: Job) -> None:
        self.options, self.job = options, job
        self._catalog = catalog
        self._selection: Selection = select_offers(
            catalog.offers,
            options=replace(options, device=device_ids(catalog, options.device)),
            price_kind=job.price,
        )
        self._fleet: Fleet = fleet_of(self._selection.offers, gpus=catalog.gpus, cpus=catalog.cpus)

    def check_kinds(self) -> None:
        """Raise `NothingFitsError` where the limits leave one kind of device without an offer."""
        may_win = self._selection.offers[: self._selection.may_win_count]
        for kind, name in _KINDS.items():
            if not any(("cpu" if offer.gpu is None else "gpu") == kind for offer in may_win):
                flags = [f"--{flag}" for flag in _CHOOSE_AN_OFFER if getattr(self.options, flag)]
                raise NothingFitsError(
                    f"no {name} is left to compare with{' after ' if flags else ''}{' and '.join(flags)}",
                    hint="let both kinds of device in; `advise rank` ranks one alone",
                )

    def predict(self, workload: Workload, batches: IndexArray) -> Predictions:
        """One step on every device."""
        return predict_on_all(
            workload,
            devices=self._fleet.devices,
            efficiencies=self._catalog.efficiencies,
            batches=batches,
            options=self.options,
            job=self.job,
        )

    def candidates(self, workload: Workload) -> IndexArray:
        """The batches that a device may choose from."""
        if not workload.batch_is_affine:
            return np.array([workload.batch], dtype=np.intp)
        return batch_candidates(self.options.batch, mode=self.options.mode, source_batch=workload.batch)

    def cheapest(self, predictions: Predictions, job: Job) -> ByKind:
        """The cheapest CPU and the cheapest GPU, where there are."""
        return cheapest_by_kind(
            self._selection, fleet=self._fleet, predictions=predictions, job=job, billing=self._catalog.billing
        )


def _over_batch(workload: Workload, market: _Market) -> Curve | str:
    if not workload.batch_is_affine:
        return (
            "over the batch: how the step grows with it is not known, because its dimensions do not grow in a "
            "straight line or its batch is fixed"
        )
    asked = market.options.batch
    batches = batch_candidates(
        asked if ".." in asked or "," in asked else "auto", mode=market.options.mode, source_batch=workload.batch
    )
    predictions = market.predict(workload, batches)

    def cheapest(batch: int) -> ByKind:
        one = np.array([batch], dtype=np.intp)
        at = at_batches(predictions, one) if batch in batches else market.predict(workload, one)
        return market.cheapest(at, market.job)

    return curve_of("batch", batches.tolist(), cheapest)


def _over_requests(workload: Workload, market: _Market) -> Curve | str:
    if market.options.mode == "training":
        return "over requests a day: nobody serves a step of training"
    if market.job.limits.deadline_s is not None:
        return "over requests a day: a service is never done, so it keeps no --deadline"
    predictions = market.predict(workload, market.candidates(workload))
    job = _of_no_size(market.job)

    def cheapest(requests: int) -> ByKind:
        return market.cheapest(
            predictions, replace(job, requests_per_day=requests, samples=requests_per_month(requests))
        )

    return curve_of("requests_per_day", _decades(), cheapest)


def _over_samples(workload: Workload, market: _Market) -> Curve:
    predictions = market.predict(workload, market.candidates(workload))
    job = _of_no_size(market.job)
    return curve_of("samples", _decades(), lambda samples: market.cheapest(predictions, replace(job, samples=samples)))


def _over_parameter(variation: Variation, market: _Market) -> Curve:
    return parameter_curve(
        variation.parameter,
        {
            value: market.cheapest(
                market.predict(workload, market.candidates(workload)),
                job_of(
                    market.options,
                    source_batch=workload.batch,
                    inputs=workload.inputs,
                    generation=workload.generation,
                ),
            )
            for value, workload in variation.workloads.items()
        },
    )


def _of_no_size(job: Job) -> Job:
    return replace(
        job, assumed=False, epochs=None, steps=None, tokens=None, requests_per_day=None, requests_per_second=None
    )


def _decades() -> Sequence[int]:
    numbers = np.logspace(0, _DECADE_COUNT, _DECADE_COUNT * _POINTS_PER_DECADE + 1)
    return [round(number) for number in numbers.tolist()]
