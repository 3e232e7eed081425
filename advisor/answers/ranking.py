"""Ranks every offer by what the job costs on it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import date
from functools import partial
from itertools import takewhile

from advisor.answers.alternatives import alternatives
from advisor.answers.market import markets_of
from advisor.answers.predicted_steps import predict_asked
from advisor.calibrate.in_force import calibration_notes
from advisor.calibrate.measured_beside import MeasuredHere, measure_here
from advisor.catalog.find import exchange_rate_of, overlay_notes
from advisor.catalog.invariants import catalog_warnings
from advisor.cost.api_comparison import compare_with_api
from advisor.cost.at_hand import fastest
from advisor.cost.batch_choice import choose_batches
from advisor.cost.batch_sweep import batch_sweeps
from advisor.cost.by_kind import KindMarket
from advisor.cost.cheapest import chances_by_device
from advisor.cost.job import job_for, require_size, service_limit_notes
from advisor.cost.leading import best_by_tier, best_of
from advisor.cost.market import Market
from advisor.cost.payback import best_rented, owned_notes
from advisor.cost.power import grids_of
from advisor.cost.rank_offers import rank as rank_offers
from advisor.cost.selection import mark_warnings
from advisor.cost.situations import choices_of, situations_of
from advisor.devices.local_device import local_devices
from advisor.errors import TraceError, UsageError
from advisor.predict.anchor import at_timed_batch
from advisor.predict.batches import batches_of
from advisor.predict.precision import refuses_autocast_on_cpus
from advisor.question.record import Question
from advisor.records.answer import ANSWER_SCHEMA_VERSION, ContextSweep, Job, Quote, Recommendation
from advisor.records.flag_values import own_batch, single_batch_of, takes_own_batch
from advisor.records.machine import LOCAL
from advisor.records.options import Options
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.rejection import local_notes, rejections
from advisor.records.workload import Workload
from advisor.report.device_notes import device_notes, leading_devices
from advisor.scale.context_sweep import sweep_contexts
from advisor.scale.kept_steps import KeptSteps
from advisor.scale.machine_sweep import sweep_machines
from advisor.scale.memory_notes import memory_notes
from advisor.workload.summary import summarize

_LEAST_PRECISION_SAVING_RATIO = 0.05
"""Least saving by another precision that is worth a line in the answer on a script. Chosen, not measured."""


def rank(question: Question, *, today: date | None = None) -> Recommendation:
    """Predict the step on every device on offer, price the job there, and rank the offers.

    The age of prices is counted from `today` (default: by the clock). A script's job is ranked as the script runs, and
    once more in the precision that would be cheapest.
    """
    question = prepared(question)
    answer = _ranked(question, today=today)
    script = question.workload.script
    is_settled = question.options.precision == "auto" and answer.job.precision != "auto"
    if script is None or answer.best is None or not is_settled or LOCAL in question.options.device:
        return answer
    free = replace(script, gpu_precision=None, cpu_precision=None)
    alone = replace(question, workload=replace(question.workload, script=free)).without_machine()
    best = _ranked(alone, today=today).best
    is_cheaper = best is not None and best.job_usd.mid < (1 - _LEAST_PRECISION_SAVING_RATIO) * answer.best.job_usd.mid
    return replace(answer, best_in_auto=best) if is_cheaper else answer


def prepared(question: Question) -> Question:
    """Return the question with the step timed on this machine, if it asks for that; all its predictions rest on it.

    Raises `AdvisorError` for a question that cannot be answered.
    """
    workload, options, catalog, machine = question.workload, question.options, question.catalog, question.machine
    _check_machine(question)
    if not workload.rows:
        raise TraceError(
            f"{workload.name} calls no operator that computes or copies: there is nothing to predict",
            hint="check that its forward does something with its inputs",
        )
    require_size(options, job_for(workload, options))
    if machine is None or question.measured is not None:
        return question
    measured = measure_here(
        workload,
        local_devices(machine, catalog),
        question.measuring,
        batches=batches_of(workload, options),
        efficiencies=catalog.efficiencies,
    )
    return replace(question, measured=measured, correct=measured.correct)


def _ranked(question: Question, *, today: date | None) -> Recommendation:
    workload, options, catalog, machine = question.workload, question.options, question.catalog, question.machine
    job = job_for(workload, options)
    if job.batch == "auto" and not workload.batch_is_affine:
        job = replace(job, batch=str(own_batch(workload, options)))
    wanted = batches_of(workload, options)
    here = local_devices(machine, catalog) if machine else ()
    market, own = markets_of(question, job=job, here=here, today=today)
    kept = KeptSteps()

    def predicted_for(job: Job) -> Predictions:
        predictions = predict_asked(question, market, job=job, kept=kept)
        return at_timed_batch(predictions, own.fleet.device_index)

    predictions = predicted_for(job)
    choice = choose_batches(predictions, job=job, terms=market.on_devices(job))
    at_hand = rank_offers(own, predictions=predictions, job=job, choice=choice)
    ranking = rank_offers(market, predictions=predictions, job=job, choice=choice)
    to_choose, by_cost, cheap = ranking.quotes, replace(job, objective="cost"), predictions
    if job.objective != "cost":  # with the batches, machines and instances that cost least
        cheap = predicted_for(by_cost)
        if not job.assumed:
            to_choose += rank_offers(market, predictions=cheap, job=by_cost).quotes
    job_batch = single_batch_of(options.batch) if workload.batch_is_affine else None
    quotes = (*ranking.quotes, *at_hand.quotes)
    calibrated = frozenset(quote.device.id for quote in quotes if quote.time_source == "calibrated")
    leading = leading_devices(ranking.quotes)
    exchange_rate = exchange_rate_of(catalog, options.currency)
    best = best_of(ranking.quotes)
    rented = best_rented(market, ranking.quotes, predictions=predictions, job=job, choice=choice)
    by_kind, measured = KindMarket(market), question.measured or MeasuredHere()
    situations = () if LOCAL in options.device else situations_of(by_kind, cheap, job=by_cost)
    return Recommendation(
        schema_version=ANSWER_SCHEMA_VERSION,
        job=job,
        workload=summarize(workload, batch=job_batch or workload.batch),
        best=best,
        better_if_price_holds=_first_ahead(ranking.quotes, best, lambda quote: not quote.price_is_trusted),
        better_if_prediction_holds=_first_ahead(ranking.quotes, best, lambda quote: quote.needs_measurement),
        chance_by_device=chances_by_device(ranking.quotes),
        best_by_tier=best_by_tier(ranking.quotes),
        best_rented=rented,
        quotes=ranking.quotes,
        situations=situations,
        api=compare_with_api(
            options.api_usd_per_mtok,
            partial(by_kind.cheapest, cheap),
            known=catalog.api_prices,
            job=by_cost,
            tax_percent=catalog.billing.extras.tax_percent,
        ),
        choices=choices_of(to_choose, job=job),
        alternatives=() if best is not None and best.may_lead else alternatives(question, today=today),
        at_hand=fastest(at_hand.quotes),
        measured=measured.steps,
        batch_sweeps=batch_sweeps(
            ranking.quotes,
            selection=market.selection,
            fleet=market.fleet,
            predictions=predictions,
            named=options.device,
        ),
        machine_sweep=sweep_machines(
            question.at_batch,
            ranking,
            market=market,
            batches=wanted,
            efficiencies=catalog.efficiencies,
            options=options,
            job=job,
            correct=question.correct,
        ),
        context_sweeps=_contexts(question, ranking.quotes, best, market=market, job=job),
        rejected=(*catalog.rejected, *rejections(ranking.rejected, workload.generation, rate=exchange_rate)),
        notes=(
            *overlay_notes(catalog),
            *service_limit_notes(options, situations),
            *ranking.notes,
            *device_notes(leading, catalog.gpus),
            *memory_notes(question.at_batch, predictions),
            *calibration_notes(question.calibrated, used=calibrated),
            *local_notes(here, rejections(at_hand.rejected, workload.generation, rate=exchange_rate)),
            *owned_notes(ranking.quotes, catalog.offers, rented=rented, job=job, rate=exchange_rate),
        ),
        warnings=(
            *_batch_warnings(workload, options, wanted),
            *measured.problems,
            *_unknown_warnings(workload),
            *_refused_warnings(workload, ranking.quotes),
            *mark_warnings(ranking.quotes, max_age_days=options.max_price_age, sources=catalog.price_sources),
            *catalog_warnings(catalog, today=today or date.today()),
        ),
        exchange_rate=exchange_rate,
        grids=grids_of(catalog.billing.energy, (*own.selection.offers, *market.selection.offers)),
    )


def _contexts(
    question: Question, quotes: Sequence[Quote], best: Quote | None, *, market: Market, job: Job
) -> tuple[ContextSweep, ...]:
    """Return users by context on the best machine, and on the best of the other kind of device."""
    kinds = (best_of(quote for quote in quotes if quote.device.kind == kind) for kind in ("gpu", "cpu"))
    wanted = {quote.id: quote for quote in (best, *kinds) if quote is not None}
    fleet, offers = market.fleet, market.selection.offers
    devices = dict(zip((offer.id for offer in offers), fleet.device_index.tolist(), strict=True))
    return sweep_contexts(
        question.workload,
        tuple(wanted.values()),
        [fleet.devices[devices[name]] for name in wanted],
        efficiencies=question.catalog.efficiencies,
        options=question.options,
        job=job,
    )


def _first_ahead(quotes: Sequence[Quote], best: Quote | None, condition: Callable[[Quote], bool]) -> Quote | None:
    """Return the first quote before `best` that satisfies the condition."""
    return next(filter(condition, takewhile(lambda quote: quote is not best, quotes)), None)


def _batch_warnings(workload: Workload, options: Options, batches: IndexArray) -> tuple[str, ...]:
    if workload.batch_is_affine:
        return ()
    listed, where = ", ".join(map(str, batches)), "alone"
    if takes_own_batch(workload, options):
        own, listed = own_batch(workload, options), str(workload.batch)
        where = "alone" if own == workload.batch else f"for each pass of each GPU, {own} in all"
    return (f"how the step grows with the batch is not known: predicted at batch {listed} {where}",)


def _check_machine(question: Question) -> None:
    """Raise `UsageError` if the options need this machine, and it is left out or cannot run the model."""
    options = question.options
    is_left_out = options.no_local or question.machine is None
    included = "leave --no-local out" if options.no_local else ""
    if LOCAL in options.device and is_left_out:
        hint = included or "name another device: `advise devices` lists them"
        raise UsageError("--device local: the machine at hand is left out", hint=hint)
    if options.measure and (is_left_out or question.measuring is None):
        hint = included or "name the model's own file, on a machine that can run its step"
        raise UsageError("--measure: there is no machine at hand, or no model to run", hint=hint)


def _unknown_warnings(workload: Workload) -> tuple[str, ...]:
    if not workload.unknown_ops:
        return ()
    listed = ", ".join(f"{op} ({count} calls)" for op, count in sorted(workload.unknown_ops.items()))
    return (f"no formula, so no FLOP counted, for {listed}",)


def _refused_warnings(workload: Workload, quotes: Iterable[Quote]) -> tuple[str, ...]:
    is_asked = any(quote.device.kind == "cpu" and quote.precision.startswith("amp") for quote in quotes)
    if not is_asked or not refuses_autocast_on_cpus(workload.rows):
        return ()
    return (
        "torch refuses autocast on CPUs for nn.TransformerEncoder with a src_key_padding_mask in inference: use fp32, "
        "or build it with enable_nested_tensor=False",
    )
