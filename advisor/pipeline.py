"""The program on one page: source -> workload -> predictions -> quotes -> recommendation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from advisor.calibrate.in_force import calibration_notes, calibrations_in_force, with_calibrations
from advisor.calibrate.store import Stored
from advisor.catalog.find import device_ids, exchange_rate_of, overlay_notes
from advisor.catalog.invariants import catalog_warnings
from advisor.catalog.load import load_catalog
from advisor.cost.at_hand import fleet_at_hand, join, join_fleets, notes_at_hand, selection_at_hand, soonest
from advisor.cost.batch_sweep import batch_sweeps
from advisor.cost.job import job_of
from advisor.cost.offer_terms import latest_starts_s
from advisor.cost.payback import payback_notes
from advisor.cost.price_marks import mark_warnings
from advisor.cost.ranking import rank
from advisor.cost.selection import select_offers
from advisor.errors import CoverageError, TraceError, UsageError
from advisor.flag_values import is_workload_file, option_value, single_batch_of
from advisor.generating import as_served, asks_for_tokens, check_generation, config_source
from advisor.local_device import local_devices
from advisor.machine.this_machine import this_machine
from advisor.measure.beside import Measuring, measure_here
from advisor.measure.process import measure_source
from advisor.measure.request import MeasureRequest
from advisor.predict.anchor import at_timed_batch
from advisor.predict.batches import batch_candidates
from advisor.predict.capability import fleet_of
from advisor.predict.join import join_batches
from advisor.predict.memory_notes import memory_notes
from advisor.records.answer import (
    ANSWER_SCHEMA_VERSION,
    Group,
    GroupBy,
    Job,
    Quote,
    Recommendation,
    WorkloadSummary,
)
from advisor.records.device import Device
from advisor.records.machine import LOCAL, Machine
from advisor.records.options import Options
from advisor.records.prediction import Anchor, FloatArray, IndexArray, Predictions
from advisor.records.price import Catalog
from advisor.records.workload import SecondCount, Workload
from advisor.scaling import predict_on_all
from advisor.sweeping import sweep_machines
from advisor.workload.file import read_workload, workload_from_json
from advisor.workload.spawn import PendingProfile, ProfileRequest, start_profile
from advisor.workload.summary import group_rows, summarize

if TYPE_CHECKING:
    import torch
    from torch import nn

TraceAt = Callable[[int], Workload]
"""Traces the source anew at a batch size, for models whose dimensions are not affine in it."""
ReadCalibrations = Callable[[Machine, Catalog], Stored]
"""What was timed on the machine at hand, or is timed now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One step of a source at the batch of its workload, and fvcore's count of it where asked for."""

    workload: Workload
    second_count: SecondCount | None

    @property
    def summary(self) -> WorkloadSummary:
        """Totals, coverage and assumptions."""
        return summarize(self.workload, batch=self.workload.batch)

    def groups(self, by: GroupBy) -> tuple[Group, ...]:
        """The step by family, module or phase."""
        return group_rows(self.workload, by=by, batch=self.workload.batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What an answer is made from: a step, the options, every profile and price, and what is known of this machine."""

    workload: Workload
    options: Options
    catalog: Catalog
    trace_at: TraceAt | None = None
    machine: Machine | None = None
    calibrated: Stored | None = None
    measuring: Measuring | None = None


def rank_source(
    source: str,
    options: Options,
    *,
    run: bool = False,
    script_args: tuple[str, ...] = (),
    today: date | None = None,
    read_machine: Callable[[], Machine] = this_machine,
    read_calibrations: ReadCalibrations = calibrations_in_force,
) -> Recommendation:
    """Rank every offer for the model in `source`, a file, a named model or a saved workload.

    The age of prices is that of `today` (default: by the clock). The machine at hand stands beside the offers, but for
    a saved workload, whose answer is the same everywhere, only where `--device local` asks for it.
    """
    question = question_of(
        source,
        options,
        run=run,
        script_args=script_args,
        read_machine=read_machine,
        read_calibrations=read_calibrations,
    )
    return rank_question(question, today=today)


def rank_question(question: Question, *, today: date | None = None) -> Recommendation:
    """Rank every offer for the step that `question` holds."""
    return rank_workload(
        question.workload,
        question.options,
        catalog=question.catalog,
        trace_at=question.trace_at,
        machine=question.machine,
        calibrated=question.calibrated,
        measuring=question.measuring,
        today=today,
    )


def question_of(
    source: str,
    options: Options,
    *,
    run: bool = False,
    script_args: tuple[str, ...] = (),
    read_machine: Callable[[], Machine] = this_machine,
    read_calibrations: ReadCalibrations = calibrations_in_force,
) -> Question:
    """Trace the model in `source`, or read it where it is saved, and all that its answer is made from."""
    check_source(source, options, run=run)
    if is_workload_file(source):
        workload = _read_saved(source, options)
        return Question(
            workload=workload,
            options=as_saved(options, workload, where=source),
            catalog=catalog_of(options),
            machine=read_machine() if LOCAL in options.device else None,
        )

    def start(batch: int | None) -> PendingProfile:
        return start_profile(request_of(source, options, batch=batch, run=run, script_args=script_args))

    measuring = _measuring(source, options, run=run) if options.measure else None
    with start(single_batch(options)) as pending:
        catalog = catalog_of(options)  # while the child imports torch
        machine = None if options.no_local else read_machine()
        workload = workload_from_json(pending.result(), where=source)
    return Question(
        workload=workload,
        options=options,
        catalog=catalog,
        trace_at=lambda batch: workload_from_json(start(batch).result()),
        machine=machine,
        calibrated=calibrations_for(machine, catalog, options, read=read_calibrations),
        measuring=measuring,
    )


def _measuring(source: str, options: Options, *, run: bool) -> Measuring:
    if run:
        raise UsageError(
            f"--measure: {source} is a script, of which one step alone cannot be run over and over",
            hint="time its own steps: `with advisor.observe(model) as seen:` around its loop",
        )
    traced = asdict(request_of(source, options, batch=None))
    request = MeasureRequest(**traced, layout=options.layout, compile=options.compile)
    return Measuring(request=request, time_it=measure_source, precision=options.precision)


def calibrations_for(
    machine: Machine | None, catalog: Catalog, options: Options, *, read: ReadCalibrations = calibrations_in_force
) -> Stored:
    """Those of the machine at hand, where the answer may depend on it."""
    return Stored() if machine is None or options.no_calibrate else read(machine, catalog)


def profile_source(
    source: str,
    options: Options,
    *,
    run: bool = False,
    script_args: tuple[str, ...] = (),
    second_count: bool = False,
) -> Profile:
    """Count one step of the model in `source` at `options.batch`, or at the source's own batch."""
    check_source(source, options, run=run)
    wanted = single_batch(options)
    if wanted is None and options.batch not in ("", "auto"):
        raise UsageError(
            f"--batch {options.batch}: a profile is of one batch", hint="write one number, or leave it out"
        )
    if is_workload_file(source):
        if second_count:
            raise UsageError(f"{source} is a saved workload: fvcore needs the model", hint="name the model's own file")
        workload, count = _read_saved(source, options), None
    else:
        request = request_of(source, options, batch=wanted, run=run, script_args=script_args, second_count=second_count)
        with start_profile(request) as pending:
            workload = workload_from_json(pending.result(), where=source)
            count = SecondCount(**pending.second_count) if pending.second_count else None
    _check_coverage(workload, options)
    return Profile(workload=replace(workload, batch=profiled_batch(workload, wanted)), second_count=count)


def recommend(
    model: "nn.Module",
    example_inputs: Any = None,
    *,
    loss: Callable[[Any, Any], "torch.Tensor"] | None = None,
    optimizer: Callable[[Iterable[Any]], "torch.optim.Optimizer"] | None = None,
    train_step: Callable[["nn.Module", Any], Any] | None = None,
    mode: Literal["inference", "training"] = "inference",
    precision: Literal["auto", "half", "fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"] = "auto",
    batch: str | int = "",
    prompt_tokens: int | None = None,
    output_tokens: int | None = None,
    concurrency: str | int = "",
    weights: Literal["auto", "bf16", "fp8", "int8", "int4"] = "auto",
    layout: Literal["nchw", "nhwc"] = "nchw",
    compile: Literal["eager", "compile"] = "eager",  # noqa: A002 - the flag's name
    attention: Literal["auto", "eager", "fused"] = "auto",
    accumulate: int = 1,
    checkpoint_activations: bool = False,
    gpus: int | None = None,
    max_gpus: int | None = None,
    max_machines: int = 1,
    sharding: Literal["auto", "none", "zero1", "zero2", "zero3"] = "auto",
    samples: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    tokens: int | None = None,
    requests_per_day: int | None = None,
    requests_per_second: float | None = None,
    checkpoint_every: str | float | None = None,
    loader_s_per_sample: str | float | None = None,
    provider: str | Sequence[str] = (),
    region: str | Sequence[str] = (),
    tier: str | Sequence[str] = (),
    device: str | Sequence[str] = (),
    no_local: bool = False,
    no_calibrate: bool = False,
    measure: bool = False,
    price: Literal["on-demand", "spot", "commit-1y", "commit-3y"] = "on-demand",
    objective: Literal["cost", "time", "cost-time"] = "cost",
    deadline: str | float | None = None,
    max_usd: float | None = None,
    max_hourly: float | None = None,
    max_latency: str | float | None = None,
    max_ttft: str | float | None = None,
    max_tpot: str | float | None = None,
    min_throughput: float | None = None,
    max_price_age: int = 180,
    drop_prices: Literal["none", "flagged", "old"] = "flagged",
    currency: str = "USD",
    top: int = 10,
    strict: bool = False,
    profiles: str | Path | None = None,
    prices: str | Path | Sequence[str | Path] = (),
) -> Recommendation:
    """Rank every offer for one step of `model`; the same answer as `advise` gives for a file that holds it.

    `example_inputs` is what the model is called with (a tensor, a tuple, a dict of keyword arguments), or a function of
    the batch size that gives it; the leading dimension is the batch. `loss(output, batch)`, `optimizer(parameters)` and
    `train_step(model, batch)` are as in a model file. The keywords are the flags of `advise`, by the same names; times
    are seconds, or text such as "24h". With `prompt_tokens` and `output_tokens` a causal model of transformers is a
    service, made from its config; inputs, loss, optimizer and step say nothing then.
    Prints nothing and leaves the model as it was, wherever it lies. Raises `AdvisorError`, and what the model's own
    code raises.
    """
    from advisor.measure.step import time_loaded
    from advisor.workload.live_trace import gradients_allowed, trace_live
    from advisor.workload.sources.live import load_live

    options = checked_options(
        mode=mode,
        precision=precision,
        batch=batch,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        concurrency=concurrency,
        weights=weights,
        layout=layout,
        compile=compile,
        attention=attention,
        accumulate=accumulate,
        checkpoint_activations=checkpoint_activations,
        gpus=gpus,
        max_gpus=max_gpus,
        max_machines=max_machines,
        sharding=sharding,
        samples=samples,
        epochs=epochs,
        steps=steps,
        tokens=tokens,
        requests_per_day=requests_per_day,
        requests_per_second=requests_per_second,
        checkpoint_every=checkpoint_every,
        loader_s_per_sample=loader_s_per_sample,
        provider=provider,
        region=region,
        tier=tier,
        device=device,
        no_local=no_local,
        no_calibrate=no_calibrate,
        measure=measure,
        price=price,
        objective=objective,
        deadline=deadline,
        max_usd=max_usd,
        max_hourly=max_hourly,
        max_latency=max_latency,
        max_ttft=max_ttft,
        max_tpot=max_tpot,
        min_throughput=min_throughput,
        max_price_age=max_price_age,
        drop_prices=drop_prices,
        currency=currency,
        top=top,
        strict=strict,
        profiles=profiles,
        prices=prices,
    )
    if asks_for_tokens(options):
        with config_source(model) as source:
            return rank_source(source, options)
    catalog = catalog_of(options)
    loaded = load_live(model, example_inputs, loss=loss, optimizer=optimizer, train_step=train_step)

    def trace_at(batch: int | None) -> Workload:
        return trace_live(loaded, mode=mode, batch=batch, attention=attention)

    machine = None if no_local else this_machine()
    request = MeasureRequest(source=loaded.name, mode=mode, attention=attention, layout=layout, compile=compile)
    return rank_workload(
        trace_at(single_batch(options)),
        options,
        catalog=catalog,
        trace_at=trace_at,
        machine=machine,
        calibrated=calibrations_for(machine, catalog, options),
        measuring=Measuring(
            request=request, time_it=gradients_allowed()(partial(time_loaded, loaded)), precision=precision
        )
        if measure
        else None,
    )


def rank_workload(
    workload: Workload,
    options: Options,
    *,
    catalog: Catalog,
    trace_at: TraceAt | None = None,
    machine: Machine | None = None,
    calibrated: Stored | None = None,
    measuring: Measuring | None = None,
    today: date | None = None,
) -> Recommendation:
    """Predict the workload on every device on offer, price the job, and rank.

    `machine` is the one at hand, `calibrated` what was timed on it, `measuring` who times the step itself there.
    """
    _check_coverage(workload, options)
    _check_local(options, machine)
    _check_measuring(options, machine, measuring)
    if not workload.rows:
        raise TraceError(
            f"{workload.name} calls no operator that computes or copies: there is nothing to predict",
            hint="check that its forward does something with its inputs",
        )
    workload, options = as_served(workload, options)
    calibrated = calibrated or Stored()
    catalog = with_calibrations(catalog, calibrated.calibrations)
    job = job_of(options, source_batch=workload.batch, inputs=workload.inputs, generation=workload.generation)
    if job.batch == "auto" and not workload.batch_is_affine:
        job = replace(job, batch=str(workload.batch))
    wanted = batch_candidates(options.batch, mode=options.mode, source_batch=workload.batch)
    selection = select_offers(
        catalog.offers,
        options=replace(options, device=device_ids(catalog, options.device)),
        price_kind=job.price,
        today=today,
    )
    fleet = fleet_of(selection.offers, gpus=catalog.gpus, cpus=catalog.cpus)
    here = local_devices(machine, catalog) if machine else ()
    own, own_fleet = selection_at_hand(here, offers=catalog.offers), fleet_at_hand(fleet, here)
    measured = measure_here(workload, here, measuring, batches=wanted, efficiencies=catalog.efficiencies)
    start_up_s = latest_starts_s(
        selection.priced, fleet, device_count=len(own_fleet.devices), billing=catalog.billing, job=job
    )
    predictions, warnings = _predict(
        workload,
        wanted,
        own_fleet.devices,
        catalog,
        options,
        trace_at,
        job=job,
        start_up_s=start_up_s,
        anchors=measured.anchors,
    )
    predictions = at_timed_batch(predictions, own_fleet.device_index)
    at_hand = rank(own, fleet=own_fleet, predictions=predictions, job=job, billing=catalog.billing)
    if LOCAL in options.device:
        selection, fleet = join(own, selection), join_fleets(own_fleet, fleet)
    ranking = rank(selection, fleet=fleet, predictions=predictions, job=job, billing=catalog.billing)
    exchange_rate = exchange_rate_of(catalog, options.currency)
    return Recommendation(
        schema_version=ANSWER_SCHEMA_VERSION,
        job=job,
        workload=summarize(workload, batch=_summary_batch(workload, options)),
        best=ranking.quotes[0] if ranking.quotes else None,
        quotes=ranking.quotes,
        at_hand=soonest(at_hand.quotes),
        measured=measured.steps,
        batch_sweeps=batch_sweeps(
            ranking.quotes,
            selection=selection,
            fleet=fleet,
            predictions=predictions,
            named=device_ids(catalog, options.device),
        ),
        machine_sweep=sweep_machines(
            workload,
            ranking,
            selection=selection,
            fleet=fleet,
            batches=wanted,
            catalog=catalog,
            options=options,
            job=job,
            anchors=measured.anchors,
        ),
        rejected=(*catalog.rejected, *ranking.rejected),
        notes=(
            *overlay_notes(catalog),
            *ranking.notes,
            *memory_notes(workload, predictions),
            *calibration_notes(calibrated, used=_calibrated_devices((*ranking.quotes, *at_hand.quotes))),
            *notes_at_hand(here, at_hand),
            *payback_notes(ranking.quotes, catalog.offers, rate=exchange_rate),
        ),
        warnings=(
            *warnings,
            *measured.problems,
            *_unknown_warnings(workload),
            *mark_warnings(ranking.quotes, max_age_days=options.max_price_age),
            *catalog_warnings(catalog, today=today or date.today()),
        ),
        exchange_rate=exchange_rate,
    )


def _calibrated_devices(quotes: Iterable[Quote]) -> frozenset[str]:
    return frozenset(quote.device.id for quote in quotes if quote.time_source == "calibrated")


def _predict(
    workload: Workload,
    batches: IndexArray,
    devices: Sequence[Device],
    catalog: Catalog,
    options: Options,
    trace_at: TraceAt | None,
    *,
    job: Job,
    start_up_s: FloatArray,
    anchors: Sequence[Anchor],
) -> tuple[Predictions, tuple[str, ...]]:
    """The predictions at `batches`, from one trace where the dimensions are affine in the batch, else from one each."""

    def at(traced: Workload, sizes: IndexArray) -> Predictions:
        return predict_on_all(
            traced,
            devices=devices,
            efficiencies=catalog.efficiencies,
            batches=sizes,
            options=options,
            job=job,
            start_up_s=start_up_s,
            anchors=anchors,
        )

    if workload.batch_is_affine:
        return at(workload, batches), ()
    asked = [int(batch) for batch in batches] if options.batch not in ("", "auto") else [workload.batch]
    traced = {workload.batch: workload}
    for batch in asked:
        if batch not in traced and trace_at is not None:
            again = trace_at(batch)
            traced[again.batch] = again
    missing = [batch for batch in asked if batch not in traced]
    if missing:
        raise _other_batch(workload, missing[0])
    parts = [at(traced[batch], np.array([batch], dtype=np.intp)) for batch in sorted(asked)]
    listed = ", ".join(map(str, sorted(asked)))
    return join_batches(parts), (f"how the step grows with the batch is not known: predicted at batch {listed} alone",)


def check_source(source: str, options: Options, *, run: bool) -> None:
    """Refuse what would otherwise be ignored: the source has settled it."""
    if run and not source.endswith(".py"):
        raise UsageError(f"--run: {source} is no script", hint="name a Python file, without ::NAME, or leave --run out")
    check_generation(source, options, run=run)
    if options.attention != "auto" and is_workload_file(source):
        raise UsageError(f"--attention: {source} is a saved workload", hint="save it anew with the attention you mean")
    if options.measure and is_workload_file(source):
        raise UsageError(f"--measure: {source} is a saved workload, not a model", hint="name the model's own source")
    if options.input and (run or is_workload_file(source)):
        kind = "a script" if run else "a saved workload"
        raise UsageError(f"--input: {source} is {kind} and has inputs of its own", hint="leave --input out")


def _read_saved(source: str, options: Options) -> Workload:
    workload = read_workload(Path(source))
    as_saved(options, workload, where=source)
    return workload


def as_saved(options: Options, workload: Workload, *, where: str) -> Options:
    """The options with the mode of a saved workload, which is the job's; `--mode training` may not contradict it."""
    if options.mode == "training" and workload.mode == "inference":
        raise UsageError(
            f"--mode training: {where} is a saved step of inference",
            hint="save it with `advise profile SOURCE --mode training -o workload.json`",
        )
    return replace(options, mode=workload.mode)


def request_of(source: str, options: Options, *, batch: int | None, **how: Any) -> ProfileRequest:
    """What the child that traces the source is asked for."""
    return ProfileRequest(
        source=source,
        mode=options.mode,
        batch=batch,
        inputs=options.input,
        attention=options.attention,
        timeout_s=options.timeout,
        prompt_tokens=options.prompt_tokens,
        output_tokens=options.output_tokens,
        **how,
    )


def catalog_of(options: Options) -> Catalog:
    """All profiles and prices in force, the user's own included."""
    return load_catalog(
        profiles=Path(options.profiles) if options.profiles else None, prices=[Path(path) for path in options.prices]
    )


def single_batch(options: Options) -> int | None:
    """The batch where one number was asked for."""
    return single_batch_of(options.batch)


def _summary_batch(workload: Workload, options: Options) -> int:
    """The job's batch where it has one, else the source's own."""
    return (single_batch(options) if workload.batch_is_affine else None) or workload.batch


def profiled_batch(workload: Workload, wanted: int | None) -> int:
    """The batch to count at; raise `UsageError` where the workload cannot have it."""
    if wanted is None or workload.batch_is_affine:
        return wanted or workload.batch
    if wanted != workload.batch:
        raise _other_batch(workload, wanted)
    return wanted


def _other_batch(workload: Workload, batch: int) -> UsageError:
    return UsageError(
        f"{workload.name} can be predicted at batch {workload.batch} alone, not at {batch}: its dimensions do "
        "not grow with the batch in a straight line, or its batch is fixed",
        hint=f"leave --batch out, or make the source's own batch {batch}",
    )


def checked_options(**given: Any) -> Options:
    """The options that keywords give, None being the default; raise `UsageError` as the command line does."""
    known = Options.__dataclass_fields__
    return Options(
        **{name: option_value(known[name], value, called=name) for name, value in given.items() if value is not None}
    )


def names_of(value: Any) -> tuple[str, ...]:
    """One name or several, as the flags take them."""
    if isinstance(value, (str, Path)):
        return (str(value),)
    return tuple(str(name) for name in value)


def _check_local(options: Options, machine: Machine | None) -> None:
    if LOCAL in options.device and (options.no_local or machine is None):
        hint = "leave --no-local out" if options.no_local else "name a device: `advise devices` says which are where"
        raise UsageError("--device local: the machine at hand is left out", hint=hint)


def _check_measuring(options: Options, machine: Machine | None, measuring: Measuring | None) -> None:
    if options.measure and (options.no_local or machine is None or measuring is None):
        hint = "leave --no-local out" if options.no_local else "name the model itself, where its step can be run"
        raise UsageError("--measure: there is no machine at hand, or no model to run", hint=hint)


def _check_coverage(workload: Workload, options: Options) -> None:
    if options.strict and workload.unknown_ops:
        listed = ", ".join(sorted(workload.unknown_ops))
        raise CoverageError(
            f"{workload.name}: no formula for {listed}", hint="leave --strict out to count their bytes without FLOP"
        )


def _unknown_warnings(workload: Workload) -> tuple[str, ...]:
    if not workload.unknown_ops:
        return ()
    listed = ", ".join(f"{op} ({count} calls)" for op, count in sorted(workload.unknown_ops.items()))
    return (f"no formula, so no FLOP counted, for {listed}",)
