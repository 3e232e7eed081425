"""Explains why a step takes as long as it does, on one or several devices, and which changes make its job cheaper."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias, get_args

import numpy as np

from advisor import units
from advisor.answers.predicted_steps import predict_at
from advisor.answers.ranking import prepared, rank
from advisor.catalog.find import overlay_notes
from advisor.cost.batch_choice import choose_batches
from advisor.cost.job import job_for, service_limit_notes
from advisor.cost.quotes import plan_at
from advisor.cost.rank_offers import why_too_small
from advisor.cost.selection import mark_warnings
from advisor.devices.named_machine import NamedMachine, machine_at_hand, named_machine, quoted_machine
from advisor.errors import NothingFitsError, UsageError
from advisor.predict.anchor import scaled, uncorrected
from advisor.predict.batches import batches_of
from advisor.predict.loader import loading_s
from advisor.predict.narrow_kernels import formats_of
from advisor.predict.time_breakdown import explain_step
from advisor.predict.weights import narrower
from advisor.question.record import Question
from advisor.records.answer import BOUNDS, Interval, Job, JobLimits, Quote, Recommendation
from advisor.records.device import Device, Precision
from advisor.records.explained_step import EXPLANATION_SCHEMA_VERSION, Change, ChangeKind, Explanation, PredictedStep
from advisor.records.generation import Generation, WeightFormat
from advisor.records.machine import LOCAL, Machine
from advisor.records.options import Options
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.price import Catalog
from advisor.records.rejection import OTHER_FORMATS, no_kernels_text, sentence_of
from advisor.records.sample_words import samples_text
from advisor.records.scale import Plan
from advisor.records.workload import Workload
from advisor.report.device_notes import device_notes
from advisor.scale.served import exchange_ratio
from advisor.scale.spread_out import pass_batches

_Subject: TypeAlias = tuple[NamedMachine, Quote | None]
"""A machine to explain the step on, and its quote if it is in the ranking."""


def explain(question: Question, *, on: Sequence[str] = (), recommendation: Recommendation | None = None) -> Explanation:
    """Explain why the step takes as long as the ranking says, on each of `on`, or on the best offer.

    `on` names offers by id or instance, and devices by id or alias, with `@N` for N physical cores of a CPU.
    `recommendation` is the ranking of the question, if it is known already. Raises `AdvisorError` for a device that
    cannot run the step.
    """
    workload, options, catalog, machine = question.workload, question.options, question.catalog, question.machine
    own_notes = tuple(service_limit_notes(options)) if recommendation is None else ()
    if recommendation is None:
        question = prepared(question)
        recommendation = rank(question)
    subjects = [_named(name, recommendation, machine, catalog) for name in on] or [
        _best(recommendation, machine, catalog)
    ]
    steps = []
    for named, quote in subjects:
        predicted = _step_of((named, quote), question, job=recommendation.job)
        whole = question.at_batch(predicted.batch if quote is None else quote.batch)
        predicted = replace(predicted, timed_ratio=_timed_ratio(predicted, named, replace(question, workload=whole)))
        step = explain_step(
            whole,
            predicted,
            name=named.name,
            device=named.device,
            device_count=named.device_count,
            efficiencies=catalog.efficiencies,
            layout=options.layout,
            compile_mode=options.compile,
        )
        if quote is not None:
            step = replace(step, power=quote.power, energy_kwh=quote.energy_kwh, co2_kg=quote.co2_kg)
        if quote is not None and quote.provider != LOCAL:
            predicted_alike = replace(question, correct=partial(scaled, ratio=predicted.timed_ratio))
            changes = saving_changes(quote, recommendation, predicted_alike)
            step = replace(step, job_usd=quote.job_usd, changes=changes)
        steps.append(step)
    devices = [named.device.id for named, _ in subjects]
    return Explanation(
        schema_version=EXPLANATION_SCHEMA_VERSION,
        workload=workload.name,
        mode=workload.mode,
        layout=options.layout,
        compile=options.compile,
        samples=recommendation.job.samples,
        steps=tuple(steps),
        notes=(*own_notes, *overlay_notes(catalog), *device_notes(devices, catalog.gpus)),
        warnings=(
            *(_warnings_on(subjects, recommendation, question) if on else recommendation.warnings),
            *_pass_warnings(subjects, question),
        ),
        exchange_rate=recommendation.exchange_rate,
        generation=workload.generation,
    )


def is_explained_whole(quote: Quote, generation: Generation | None) -> bool:
    """Return whether the explanation covers the whole step of the quote, or only one pass of one of its GPUs."""
    return quote.plan is None or quote.plan.is_one_pass or generation is not None


def _warnings_on(subjects: Iterable[_Subject], recommendation: Recommendation, question: Question) -> Iterator[str]:
    """Yield the warnings of the ranking, with those on prices only for the named machines."""
    options, sources = question.options, question.catalog.price_sources
    of_all = mark_warnings(recommendation.quotes, max_age_days=options.max_price_age, sources=sources)
    yield from (warning for warning in recommendation.warnings if warning not in of_all)
    for machine, quote in subjects:
        if quote is not None and quote.price_marks:
            yield f"the price of {machine.name} is marked {', '.join(quote.price_marks)} ({quote.price_date})"


def _pass_warnings(subjects: Iterable[_Subject], question: Question) -> Iterator[str]:
    generation, accumulate = question.workload.generation, question.options.accumulate
    for machine, quote in subjects:
        if quote is None and accumulate > 1:
            yield f"{machine.name}: shown is one of the {accumulate} passes of a step, with the optimizer step"
        if quote is not None and quote.plan is not None and not is_explained_whole(quote, generation):
            does = "does" if quote.plan.tensor * quote.plan.pipeline == 1 else "by itself would do"
            gpus = f"{quote.gpus_used} GPU{'s' if quote.gpus_used > 1 else ''}"
            exchange = ", without the exchange between GPUs" if quote.plan.gpu_count > 1 else ""
            optimizer = " and with the whole optimizer step" if quote.plan.sharding != "none" else ""
            (of_pass,) = pass_batches(np.array([quote.batch]), quote.plan).tolist()
            yield (
                f"{machine.name} runs a step of {samples_text(quote.batch, generation)} on {gpus} in "
                f"{units.format_duration(quote.step_s.mid)}: shown is what one {does} in a pass of "
                f"{of_pass:,}{exchange}{optimizer}"
            )


def _named(name: str, recommendation: Recommendation, machine: Machine | None, catalog: Catalog) -> _Subject:
    """Return the machine that `--on` names; for "local" the device here that finishes the job first."""
    if name.casefold() == LOCAL:
        here = recommendation.at_hand
        if machine is None or here is None:
            raise UsageError("--on local: no device of this machine does the job", hint="`advise devices` lists them")
        return machine_at_hand(here, machine, catalog), here
    found = named_machine(name, catalog)
    quoted = (quote for quote in recommendation.quotes if quote.id in found.offer_ids)
    return found, next(quoted, None)


def _best(recommendation: Recommendation, machine: Machine | None, catalog: Catalog) -> _Subject:
    best = recommendation.best
    if best is None:
        raise NothingFitsError(
            "no instance does this job within the limits", hint="`advise rank` lists the reason for each offer"
        )
    if machine is not None and best.provider == LOCAL:
        return machine_at_hand(best, machine, catalog), best
    return quoted_machine(best, catalog), best


def _step_of(subject: _Subject, question: Question, *, job: Job) -> PredictedStep:
    """Return the step of the quote, or one GPU's pass of it; without a quote, predict the step as the ranking would."""
    (machine, quote), options = subject, question.options
    if quote is None:
        return _chosen_step(machine, question, job=job)
    if quote.plan is not None and not is_explained_whole(quote, question.workload.generation):
        batches = pass_batches(np.array([quote.batch], dtype=np.intp), quote.plan)
        # A pass is a part of the batch, and is padded as the whole.
        padded = replace(question, workload=question.at_batch(quote.batch), options=replace(options, lengths=None))
        return _step_at(predictions_on(machine, padded, batches=batches), 0, options=options)
    step = PredictedStep(
        batch=quote.batch,
        precision=quote.precision,
        step_s=quote.step_s,
        bound=quote.bound,
        time_source=quote.time_source,
        loading_s=_loading_s(machine.device, batch=quote.batch, options=options),
        checkpoint_activations=quote.plan is not None and quote.plan.checkpoint_activations,
    )
    return _under_plan(step, quote.plan, machine, question)


def _timed_ratio(step: PredictedStep, machine: NamedMachine, question: Question) -> float:
    """Return how much longer the step is than it would be predicted without the steps timed on this machine."""
    if question.measured is None or not question.measured.anchors:
        return 1.0
    # A part of a batch is padded as the whole.
    alone = replace(question.options, precision=step.precision, loader_s_per_sample=None, lengths=None)
    question, batches = replace(question, options=alone), np.array([step.batch], dtype=np.intp)
    corrected, plain = (
        float(predictions_on(machine, one, batches=batches).step_s[0, 0])
        for one in (question, replace(question, correct=uncorrected))
    )
    return corrected / plain


def _under_plan(step: PredictedStep, plan: Plan | None, machine: NamedMachine, question: Question) -> PredictedStep:
    """Return the step of a served model with its plan and the time that its GPUs take to exchange results."""
    if plan is None or question.workload.generation is None:
        return step
    ratio = exchange_ratio(
        question.workload,
        machine.device,
        precision=step.precision,
        plan=plan,
        batch=step.batch,
        efficiencies=question.catalog.efficiencies,
    )
    return replace(step, plan=plan, exchange_s=ratio * step.step_s.mid)


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


def _chosen_step(machine: NamedMachine, question: Question, *, job: Job) -> PredictedStep:
    """Predict the step on a device that is not in the ranking, at the batch size that the ranking would choose.

    The limits of the job do not count: an explanation may say why a device breaks them.
    """
    workload, options, device = question.workload, question.options, machine.device
    is_loader_known = options.loader_s_per_sample is not None and options.loader_workers is None
    if is_loader_known and device.vcpu_count is None:
        raise UsageError(
            f"--loader-s-per-sample: how many vCPUs {machine.name} has is not known", hint="name an instance"
        )
    batches = batches_of(workload, replace(options, gpus=None))
    batches = pass_batches(batches, Plan(accumulate=options.accumulate))
    predictions = predictions_on(machine, question, batches=np.unique(batches))
    choice = choose_batches(predictions, job=replace(job, limits=JobLimits(), requests_per_day=None))
    at = int(choice.index[0])
    if not choice.is_possible[0]:
        cause = why_too_small(0, predictions=predictions, generation=workload.generation)
        less = "a smaller batch, a half precision" if workload.generation is None else "a lower --concurrency"
        raise NothingFitsError(
            f"{machine.name}: {sentence_of(cause, workload.generation)}",
            hint=f"choose {less} or another device" if cause.needed else "choose a larger batch, or another plan",
        )
    return _under_plan(_step_at(predictions, at, options=options), plan_at(predictions, (0, at)), machine, question)


def predictions_on(machine: NamedMachine, question: Question, *, batches: IndexArray) -> Predictions:
    """Predict the step on one device, or a served model on a machine; raise `UsageError` if it cannot run the step."""
    options, generation = question.options, question.workload.generation
    of_one = replace(  # one pass on a device by itself, which has no plan
        options,
        gpus=None,
        max_gpus=1,
        max_machines=1,
        accumulate=1,
        sharding="auto",
        tensor_parallel=None,
        pipeline_parallel=None,
        expert_parallel=None,
    )
    options_used = of_one if generation is None or machine.device.gpu_count == 1 else options
    predictions = predict_at(
        replace(question, options=options_used),
        batches,
        devices=[machine.device],
        job=job_for(question.workload, options),
    )
    if predictions.precisions[0, 0] is None:
        if generation is not None and (missing := generation.missing_kernels(machine.device)):
            raise UsageError(no_kernels_text(missing, generation, on=machine.name), hint=OTHER_FORMATS)
        raise UsageError(
            f"{machine.name} has no unit for {options.precision}, or no kernels for the step",
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
    batch, plan = int(predictions.batches[at]), plan_at(predictions, (0, at))
    return PredictedStep(
        batch=batch,
        precision=precision,
        step_s=Interval(mid=mid, low=low, high=high),
        bound=BOUNDS[predictions.bound[0, at]],
        time_source=predictions.time_sources[0, at],
        loading_s=_loading_s(device, batch=batch, options=options),
        checkpoint_activations=plan is not None and plan.checkpoint_activations,
    )


MOST_SHOWN = 3
_LEAST_LISTED_SAVING_RATIO = 0.01
"""Smaller savings are not worth a line. Chosen, not measured."""


def saving_changes(quote: Quote, recommendation: Recommendation, question: Question) -> tuple[Change, ...]:
    """Return the changes that save most on the instance of `quote`, or the move to the best one; largest saving first.

    `recommendation` is the ranking of the same job. `question` predicts the changes as much too fast or too slow as the
    step of `quote`; otherwise the error of its prediction would count as a saving.
    """
    catalog = question.catalog
    same_offer = replace(catalog, offers=tuple(offer for offer in catalog.offers if offer.id == quote.id), rejected=())
    alone = replace(question.without_machine(), catalog=same_offer)
    # Other names in the options would not be found among one offer.
    nothing_named = replace(alone.options, provider=(), region=(), tier=(), device=(), arch=(), instance=())
    alone = replace(alone, options=nothing_named)
    best_of_kind: dict[ChangeKind, Change] = {}
    for kind, alternative in _alternatives(quote, _of_same_size(alone, recommendation)):
        changed = rank(alternative).best
        if changed is None:
            continue
        change = _change(kind, quote, changed, weights=alternative.options.weights)
        known = best_of_kind.get(kind)
        if known is None or change.saved_usd > known.saved_usd:
            best_of_kind[kind] = change
    if recommendation.quotes:
        trusted = [one for one in recommendation.quotes if one.may_lead]
        cheapest = min(trusted or recommendation.quotes, key=lambda one: one.job_usd.mid)
        best_of_kind["instance"] = _change("instance", quote, cheapest)
    saving = [change for change in best_of_kind.values() if change.saved_ratio >= _LEAST_LISTED_SAVING_RATIO]
    return tuple(sorted(saving, key=lambda change: -change.saved_usd)[:MOST_SHOWN])


def _of_same_size(question: Question, recommendation: Recommendation) -> Question:
    """Return the question with the job's size in samples: the same steps at another batch would be another job."""
    if question.options.steps is None:
        return question
    return replace(question, options=replace(question.options, steps=None, samples=recommendation.job.samples))


def _alternatives(quote: Quote, question: Question) -> Iterator[tuple[ChangeKind, Question]]:
    """Yield the same job with one thing changed."""
    workload, options = question.workload, question.options

    def changed(*, traced: Workload = workload, **options_changed: Any) -> Question:
        return replace(question, options=replace(options, **options_changed), workload=traced)

    if workload.generation is not None:
        engine = workload.generation.engine
        if workload.generation.has_default_weights and engine is not None:
            for weights, traced in narrower(workload, formats_of(engine, "weight_kernels")).items():
                yield "weights", changed(traced=traced, weights=weights)
        return
    for precision in get_args(Precision):
        if precision != quote.precision and workload.fine_tuning is None:  # whose trace depends on the precision
            yield "precision", changed(precision=precision)
    if options.compile == "eager":
        yield "compile", changed(compile="compile")
    if options.layout == "nchw" and any(row.family == "conv" for row in workload.rows):
        yield "layout", changed(layout="nhwc")
    if workload.batch_is_affine:
        yield "batch", changed(batch="auto")
    if question.trace_fused is not None and _has_plain_attention(workload, options):
        fused = changed(traced=question.trace_fused(workload.batch), attention="fused")
        yield "attention", replace(fused, trace_at=question.trace_fused)


def _has_plain_attention(workload: Workload, options: Options) -> bool:
    """Return whether the model may write attention scores to memory: it has a softmax, and no fused kernel."""
    ops = {row.op for row in workload.rows}
    return options.attention != "fused" and "attention" not in ops and any("softmax" in op for op in ops)


def _change(kind: ChangeKind, quote: Quote, changed: Quote, *, weights: WeightFormat = "auto") -> Change:
    to = {
        "precision": changed.precision,
        "batch": str(changed.batch),
        "layout": "nhwc",
        "compile": "compile",
        "attention": "fused",
        "weights": weights,
        "instance": f"{changed.provider} {changed.instance}",
    }
    saved_usd = quote.job_usd.mid - changed.job_usd.mid
    return Change(
        kind=kind,
        to=to[kind],
        step_s=changed.step_s,
        batch=changed.batch,
        job_usd=changed.job_usd,
        saved_usd=saved_usd,
        saved_ratio=saved_usd / quote.job_usd.mid if quote.job_usd.mid else 0.0,
    )
