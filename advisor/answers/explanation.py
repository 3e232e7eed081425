"""Explains why a step takes as long as it does, on one or several devices."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from advisor import units
from advisor.answers.ranking import rank
from advisor.answers.savings import saving_changes
from advisor.catalog.find import overlay_notes
from advisor.cost.batch_choice import choose_batches
from advisor.devices.named_machine import NamedMachine, machine_at_hand, named_machine, quoted_machine
from advisor.errors import NothingFitsError, UsageError
from advisor.predict.batches import batch_candidates
from advisor.predict.loader import loading_s
from advisor.predict.step_time import predict
from advisor.predict.time_breakdown import explain_step
from advisor.question.record import Question
from advisor.records.answer import BOUNDS, Interval, Job, JobLimits, Quote, Recommendation
from advisor.records.device import Device
from advisor.records.explained_step import EXPLANATION_SCHEMA_VERSION, Explanation, PredictedStep
from advisor.records.generation import Generation
from advisor.records.machine import LOCAL, Machine
from advisor.records.options import Options
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.price import Catalog
from advisor.records.sample_words import samples_text
from advisor.records.scale import Plan


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A machine to explain the step on, and its quote if it is in the ranking."""

    machine: NamedMachine
    quote: Quote | None

    @property
    def device(self) -> Device:
        return self.machine.device


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
    subjects = [_named(name, recommendation, machine, catalog) for name in on] or [
        _best(recommendation, machine, catalog)
    ]
    steps = []
    for subject in subjects:
        step = explain_step(
            workload,
            _step_of(subject, question, job=recommendation.job),
            name=subject.machine.name,
            device=subject.device,
            device_count=subject.machine.device_count,
            efficiencies=catalog.efficiencies,
            layout=options.layout,
            compile_mode=options.compile,
        )
        quote = subject.quote
        if quote is not None and quote.plan is None and quote.provider != LOCAL:
            step = replace(step, job_usd=quote.job_usd, changes=saving_changes(quote, recommendation, question))
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
            does = "does" if quote.plan.tensor * quote.plan.pipeline == 1 else "by itself would do"
            gpus = f"{quote.gpus_used} GPU{'s' if quote.gpus_used > 1 else ''}"
            yield (
                f"{subject.machine.name} runs a step of {samples_text(quote.batch, generation)} on {gpus}: shown is "
                f"what one {does} in a pass of {_pass_batch(quote, quote.plan):,}"
            )


def _pass_batch(quote: Quote, plan: Plan) -> int:
    return math.ceil(quote.batch / (plan.data * plan.accumulate))


def _named(name: str, recommendation: Recommendation, machine: Machine | None, catalog: Catalog) -> _Subject:
    """Return the machine that `--on` names; for "local" the device here that finishes the job first."""
    if name.casefold() == LOCAL:
        here = recommendation.at_hand
        if machine is None or here is None:
            raise UsageError("--on local: no device of this machine does the job", hint="`advise devices` lists them")
        return _Subject(machine=machine_at_hand(here, machine, catalog), quote=here)
    found = named_machine(name, catalog)
    quoted = (quote for quote in recommendation.quotes if quote.id in found.offer_ids)
    return _Subject(machine=found, quote=next(quoted, None))


def _best(recommendation: Recommendation, machine: Machine | None, catalog: Catalog) -> _Subject:
    best = recommendation.best
    if best is None:
        raise NothingFitsError("no instance does this job within the limits", hint="`advise rank` says why of each")
    if machine is not None and best.provider == LOCAL:
        return _Subject(machine=machine_at_hand(best, machine, catalog), quote=best)
    return _Subject(machine=quoted_machine(best, catalog), quote=best)


def _step_of(subject: _Subject, question: Question, *, job: Job) -> PredictedStep:
    """Return the step of the quote, or one GPU's pass of it; without a quote, predict the step as the ranking would."""
    quote, options = subject.quote, question.options
    if quote is None:
        return _chosen_step(subject, question, job=job)
    if quote.plan is not None:  # one pass of one of the GPUs that share a step, without communication
        batches = np.array([_pass_batch(quote, quote.plan)], dtype=np.intp)
        return _step_at(_predictions(subject, question, batches=batches), 0, options=options)
    return PredictedStep(
        batch=quote.batch,
        precision=quote.precision,
        step_s=quote.step_s,
        bound=quote.bound,
        time_source=quote.time_source,
        loading_s=_loading_s(subject.device, batch=quote.batch, options=options),
    )


def _loading_s(device: Device, *, batch: int, options: Options) -> float:
    if options.loader_s_per_sample is None:
        return 0.0
    seconds = loading_s(
        [device],
        batches=np.array([batch], dtype=np.intp),
        loader_s_per_sample=options.loader_s_per_sample,
        loader_workers=options.loader_workers,
    )
    return float(seconds[0, 0])


def _chosen_step(subject: _Subject, question: Question, *, job: Job) -> PredictedStep:
    """Predict the step on a device that is not in the ranking, at the batch size that the ranking would choose.

    The limits of the job do not count: an explanation may say why a device breaks them.
    """
    workload, options, name = question.workload, question.options, subject.machine.name
    is_loader_known = options.loader_s_per_sample is not None and options.loader_workers is None
    if is_loader_known and subject.device.vcpu_count is None:
        raise UsageError(f"--loader-s-per-sample: how many vCPUs {name} has is not known", hint="name an instance")
    asked = batch_candidates(options.batch, mode=options.mode, source_batch=workload.batch)
    batches = asked if workload.batch_is_affine else np.array([workload.batch], dtype=np.intp)
    predictions = _predictions(subject, question, batches=batches)
    choice = choose_batches(predictions, job=replace(job, limits=JobLimits(), requests_per_day=None))
    at = int(choice.index[0])
    if not choice.is_possible[0]:
        needed, has = float(predictions.peak_memory_bytes.min()), subject.device.memory_bytes
        raise NothingFitsError(
            f"{name}: the step needs {units.format_bytes(needed)}, the device has {units.format_bytes(has)}",
            hint="choose a smaller batch, a half precision or another device",
        )
    return _step_at(predictions, at, options=options)


def _predictions(subject: _Subject, question: Question, *, batches: IndexArray) -> Predictions:
    """Predict the step on one device; raise `UsageError` if it cannot run the step."""
    options = question.options
    predictions = predict(
        question.workload,
        devices=[subject.device],
        efficiencies=question.catalog.efficiencies,
        batches=batches,
        precision=options.precision,
        layout=options.layout,
        compile_mode=options.compile,
        loader_s_per_sample=options.loader_s_per_sample,
        loader_workers=options.loader_workers,
    )
    if predictions.precisions[0, 0] is None:
        raise UsageError(
            f"{subject.machine.name} has no unit for {options.precision}, or no kernels for the step",
            hint="choose another precision or device",
        )
    return predictions


def _step_at(predictions: Predictions, at: int, *, options: Options) -> PredictedStep:
    """Return the step of the only device at the batch size with that index."""
    (device,), precision = predictions.devices, predictions.precisions[0, at]
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
        time_source=predictions.time_sources[0, at],
        loading_s=_loading_s(device, batch=batch, options=options),
    )
