"""Explains why a step takes as long as it does, on one or several devices."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor import units
from advisor.answers.ranking import rank
from advisor.answers.savings import saving_changes
from advisor.catalog.find import overlay_notes
from advisor.devices.named_machine import NamedMachine, machine_at_hand, named_machine, quoted_machine
from advisor.errors import NothingFitsError, UsageError
from advisor.predict.batches import batch_candidates
from advisor.predict.loader import loading_s
from advisor.predict.step_time import predict
from advisor.predict.time_breakdown import explain_step
from advisor.question.record import Question
from advisor.records.answer import BOUNDS, Interval, Quote, Recommendation
from advisor.records.device import Device
from advisor.records.explained_step import EXPLANATION_SCHEMA_VERSION, Explanation, PredictedStep
from advisor.records.generation import Generation
from advisor.records.machine import LOCAL, Machine
from advisor.records.options import Options
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.price import Catalog
from advisor.records.sample_words import samples_text
from advisor.records.scale import Plan
from advisor.records.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A device to explain the step on, and its quote if it is in the ranking."""

    name: str
    device: Device
    device_count: int
    quote: Quote | None


def explain(question: Question, *, on: Sequence[str] = (), recommendation: Recommendation | None = None) -> Explanation:
    """Explain why the step takes as long as the ranking says, on each of `on`, or on the best offer.

    `on` names offers by id or instance, and devices by id or alias, with `@N` for N physical cores of a CPU.
    `recommendation` is the ranking of the question, if it is known already. Raises `AdvisorError` for a device that
    cannot run the step.
    """
    question = replace(question, trace_at=None)  # one step is explained, that of the workload
    workload, options, catalog, machine = question.workload, question.options, question.catalog, question.machine
    if recommendation is None:
        recommendation = rank(question)
    subjects = [
        _at_hand(recommendation, machine, catalog)
        if name.casefold() == LOCAL
        else _named(name, recommendation, catalog)
        for name in on
    ] or [_best(recommendation, machine, catalog)]
    steps = []
    for subject in subjects:
        step = explain_step(
            workload,
            _step_of(subject, workload, options, catalog, samples=recommendation.job.samples),
            name=subject.name,
            device=subject.device,
            device_count=subject.device_count,
            efficiencies=catalog.efficiencies,
            layout=options.layout,
            compile_mode=options.compile,
        )
        if subject.quote is not None and subject.quote.plan is None and subject.quote.provider != LOCAL:
            changes = saving_changes(subject.quote, recommendation, question)
            step = replace(step, job_usd=subject.quote.job_usd, changes=changes)
        steps.append(step)
    return Explanation(
        schema_version=EXPLANATION_SCHEMA_VERSION,
        workload=workload.name,
        mode=workload.mode,
        layout=options.layout,
        compile=options.compile,
        samples=recommendation.job.samples,
        steps=tuple(steps),
        notes=overlay_notes(catalog),
        warnings=(*recommendation.warnings, *_pass_warnings(subjects, workload.generation)),
        exchange_rate=recommendation.exchange_rate,
        generation=workload.generation,
    )


def _pass_warnings(subjects: Iterable[_Subject], generation: Generation | None) -> Iterator[str]:
    for subject in subjects:
        quote = subject.quote
        if quote is not None and quote.plan is not None:
            plan, batch = quote.plan, _pass_batch(quote, quote.plan)
            does = "does" if plan.tensor * plan.pipeline == 1 else "by itself would do"
            gpus = f"{quote.gpus_used} GPU{'s' if quote.gpus_used > 1 else ''}"
            yield (
                f"{subject.name} runs a step of {samples_text(quote.batch, generation)} on {gpus}: shown is what "
                f"one {does} in a pass of {batch:,}"
            )


def _pass_batch(quote: Quote, plan: Plan) -> int:
    return math.ceil(quote.batch / (plan.data * plan.accumulate))


def _best(recommendation: Recommendation, machine: Machine | None, catalog: Catalog) -> _Subject:
    best = recommendation.best
    if best is None:
        raise NothingFitsError("no instance does this job within the limits", hint="`advise rank` says why of each")
    if machine is not None and best.provider == LOCAL:
        return _here(best, machine, catalog)
    return _subject(quoted_machine(best, catalog), recommendation)


def _at_hand(recommendation: Recommendation, machine: Machine | None, catalog: Catalog) -> _Subject:
    """Return the device of this machine that finishes the job first."""
    quote = recommendation.at_hand
    if machine is None or quote is None:
        raise UsageError("--on local: no device of this machine does the job", hint="`advise devices` lists them")
    return _here(quote, machine, catalog)


def _here(quote: Quote, machine: Machine, catalog: Catalog) -> _Subject:
    here = machine_at_hand(quote, machine, catalog)
    return _Subject(name=here.name, device=here.device, device_count=here.device_count, quote=quote)


def _named(name: str, recommendation: Recommendation, catalog: Catalog) -> _Subject:
    return _subject(named_machine(name, catalog), recommendation)


def _subject(machine: NamedMachine, recommendation: Recommendation) -> _Subject:
    """Return the machine with its quote, if one of its offers is in the ranking."""
    return _Subject(
        name=machine.name,
        device=machine.device,
        device_count=machine.device_count,
        quote=next((quote for quote in recommendation.quotes if quote.id in machine.offer_ids), None),
    )


def _step_of(
    subject: _Subject, workload: Workload, options: Options, catalog: Catalog, *, samples: int
) -> PredictedStep:
    """Return the step of the quote, or one GPU's pass of it; without a quote, predict the step as the ranking would."""
    quote = subject.quote
    if quote is None:
        return _predicted_step(workload, subject, options, catalog, samples=samples)
    if quote.plan is None:
        return _quoted_step(quote, device=subject.device, options=options)
    return _pass_step(workload, subject, _pass_batch(quote, quote.plan), options, catalog)


def _quoted_step(quote: Quote, *, device: Device, options: Options) -> PredictedStep:
    return PredictedStep(
        batch=quote.batch,
        precision=quote.precision,
        step_s=quote.step_s,
        bound=quote.bound,
        time_source=quote.time_source,
        loading_s=_loading_s(device, batch=quote.batch, options=options),
    )


def _loading_s(device: Device, *, batch: int, options: Options) -> float:
    if options.loader_s_per_sample is None:
        return 0.0
    batches = np.array([batch], dtype=np.intp)
    return float(loading_s([device], batches=batches, loader_s_per_sample=options.loader_s_per_sample)[0, 0])


def _predicted_step(
    workload: Workload, subject: _Subject, options: Options, catalog: Catalog, *, samples: int
) -> PredictedStep:
    """Predict the step on a device that is not in the ranking, at the batch size that finishes the job first."""
    if options.loader_s_per_sample is not None and subject.device.vcpu_count is None:
        raise UsageError(
            f"--loader-s-per-sample: how many vCPUs {subject.name} has is not known", hint="name an instance"
        )
    asked = batch_candidates(options.batch, mode=options.mode, source_batch=workload.batch)
    batches = asked if workload.batch_is_affine else np.array([workload.batch], dtype=np.intp)
    predictions = _predictions(workload, subject, options, catalog, batches=batches)
    job_s = np.where(predictions.fits[0], np.ceil(samples / batches) * predictions.step_s[0], np.inf)
    at = int(np.argmin(job_s))
    if not np.isfinite(job_s[at]):
        needed, has = float(predictions.peak_memory_bytes.min()), subject.device.memory_bytes
        raise NothingFitsError(
            f"{subject.name}: the step needs {units.format_bytes(needed)}, the device has {units.format_bytes(has)}",
            hint="choose a smaller batch, a half precision or another device",
        )
    return _step_at(predictions, at, options=options)


def _pass_step(workload: Workload, subject: _Subject, batch: int, options: Options, catalog: Catalog) -> PredictedStep:
    """Predict one pass of one of the GPUs that share a step, without communication."""
    batches = np.array([batch], dtype=np.intp)
    return _step_at(_predictions(workload, subject, options, catalog, batches=batches), 0, options=options)


def _predictions(
    workload: Workload, subject: _Subject, options: Options, catalog: Catalog, *, batches: IndexArray
) -> Predictions:
    """Predict the step on one device; raise `UsageError` if it cannot run the step."""
    predictions = predict(
        workload,
        devices=[subject.device],
        efficiencies=catalog.efficiencies,
        batches=batches,
        precision=options.precision,
        layout=options.layout,
        compile_mode=options.compile,
        loader_s_per_sample=options.loader_s_per_sample,
    )
    if predictions.precisions[0] is None:
        raise UsageError(
            f"{subject.name} has no unit for {options.precision}, or no kernels for the step",
            hint="choose another precision or device",
        )
    return predictions


def _step_at(predictions: Predictions, at: int, *, options: Options) -> PredictedStep:
    """Return the step of the only device at the batch size with that index."""
    (device,), (precision,) = predictions.devices, predictions.precisions
    if precision is None:
        raise ValueError(f"{device.id} was predicted without a precision")
    mid, low, high = (
        float(times[0, at]) for times in (predictions.step_s, predictions.step_low_s, predictions.step_high_s)
    )
    batch = int(predictions.batches[at])
    return PredictedStep(
        batch=batch,
        precision=precision,
        step_s=Interval(mid=mid, low=low, high=high),
        bound=BOUNDS[predictions.bound[0, at]],
        time_source=predictions.time_sources[0],
        loading_s=_loading_s(device, batch=batch, options=options),
    )
