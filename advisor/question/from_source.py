"""Builds a question from a source: a file, a named model or a saved workload."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from advisor.calibrate.in_force import calibrations_in_force, with_calibrations
from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.step_process import MeasureRequest, measure_source
from advisor.calibrate.store import Stored
from advisor.catalog.find import device_ids
from advisor.catalog.overlay import load_catalog
from advisor.cost.job import SIZES, check_effects
from advisor.errors import CoverageError, UsageError
from advisor.machine.this_machine import this_machine
from advisor.predict.batches import batch_candidates
from advisor.question.early_trace import differs_under_fsdp, request_of
from advisor.question.fine_tuning import as_fine_tuned, as_sharded, check_fine_tuning
from advisor.question.lengths import at_batches, check_lengths, of_trace, sequence_of, settled
from advisor.question.recipe import resolved
from advisor.question.record import Question, TraceAt, other_batch
from advisor.question.served_model import as_served, check_generation
from advisor.records.answer import Group, GroupBy, WorkloadSummary
from advisor.records.flag_values import is_workload_file, single_batch_of
from advisor.records.machine import LOCAL, Machine
from advisor.records.options import GivenOptions, Options, ScriptOptions
from advisor.records.price import Catalog
from advisor.records.sample_words import ASSUMED_BATCH
from advisor.records.workload import Attention, SecondCount, Workload
from advisor.workload.file import read_workload
from advisor.workload.source_trace import SourceTrace
from advisor.workload.sources import kind_of
from advisor.workload.spawn import ProfileRequest
from advisor.workload.summary import group_rows, summarize

MAX_DEVICES = 6
"""The most devices that `--on` may name: side by side, each needs columns of its own."""
CHOOSE_AN_OFFER = ("provider", "region", "tier", "device")
"""Options that choose among the offers."""

ReadMachine = Callable[[], Machine]
ReadCalibrations = Callable[[Machine, Catalog], Stored]
"""Returns the calibrations of this machine: those made before, or one that is made now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One step of a source at the batch of its workload, and fvcore's count of it where asked for."""

    workload: Workload
    second_count: SecondCount | None

    @property
    def summary(self) -> WorkloadSummary:
        """Return totals, coverage and assumptions."""
        return summarize(self.workload, batch=self.workload.batch)

    def groups(self, by: GroupBy) -> tuple[Group, ...]:
        """Return the step by family, module or phase."""
        return group_rows(self.workload, by=by, batch=self.workload.batch)


def question_from_source(
    source: str,
    options: Options,
    *,
    run: bool = False,
    script_args: tuple[str, ...] = (),
    on: Sequence[str] = (),
    trace: SourceTrace | None = None,
    catalog: Catalog | None = None,
    read_machine: ReadMachine | None = this_machine,
    read_calibrations: ReadCalibrations = calibrations_in_force,
) -> Question:
    """Trace the model in `source`, or read a saved workload, and collect everything else that an answer needs.

    `on` are the devices to explain. `trace` is the trace that `early_trace` has started. `catalog` is the one of
    `options`, if it is at hand. `read_machine` None leaves this machine out. The answer for a saved workload is the
    same on every machine, so this one is read only if `on` or `--device` says `local`.
    """
    source, options, recipe_notes = resolved(source, options)
    check_named(on, options)
    check_source(source, options, run=run)
    is_here_named = any(name.casefold() == LOCAL for name in (*on, *options.device))
    if is_workload_file(source):
        workload = read_workload(Path(source))
        machine = read_machine() if read_machine and is_here_named else None
        options = as_saved(options, workload, where=source)
        return question_of(workload, options, catalog=catalog or catalog_of(options), machine=machine)

    def request_at(batch: int | None, attention: Attention = options.attention) -> ProfileRequest:
        asked = replace(options, attention=attention)
        return request_of(source, asked, batch=batch, run=run, script_args=script_args)

    batch, kind = single_batch_of(options.batch), kind_of(source)
    measuring = _measuring(source, options, run=run) if options.measure else None
    with trace or SourceTrace.start(request_at(batch)) as started:
        catalog = catalog or catalog_of(options)  # while a child imports torch
        machine = read_machine() if read_machine and (is_here_named or not options.no_local) else None
        workload = started.workload()
    at_lengths, longest = at_lengths_of(workload, source, options), None
    if differs_under_fsdp(options):
        workload, at_lengths = _with_fsdp(workload, at_lengths, source=source, options=options, batch=batch)
    if at_lengths is not None:
        longest = sequence_of(workload)
        workload = at_lengths(batch or workload.batch)
    workload, options = settled(workload, options, longest=longest)
    if isinstance(options, ScriptOptions):
        workload, options = as_script(workload, options)
    workload = replace(workload, assumptions=(*workload.assumptions, *recipe_notes))
    chunked = replace(options, trainer_kernels="liger")
    can_chunk = (
        workload.fine_tuning is not None
        and chunked != options
        and kind is not None
        and kind.takes_tokens
        and at_lengths is None
    )
    return question_of(
        workload,
        options,
        catalog=catalog,
        machine=machine,
        calibrated=calibrations_for(machine, catalog, options, read=read_calibrations),
        measuring=measuring,
        trace_at=at_lengths or (lambda batch: traced(request_at(batch))),
        trace_fused=(lambda batch: traced(request_at(batch, "fused")))
        if kind and kind.has_attention_forms and at_lengths is None
        else None,
        trace_chunked=(lambda: as_fine_tuned(traced(request_of(source, chunked, batch=batch)), options)[0])
        if can_chunk
        else None,
    )


def question_of(
    workload: Workload,
    options: Options,
    *,
    catalog: Catalog,
    machine: Machine | None = None,
    calibrated: Stored | None = None,
    measuring: Measuring | None = None,
    trace_at: TraceAt | None = None,
    trace_fused: TraceAt | None = None,
    trace_chunked: Callable[[], Workload] | None = None,
) -> Question:
    """Build the question about a workload; `catalog` is without the calibrations.

    Raises `CoverageError` under --strict, and `UsageError` for options that do not suit the workload and for unknown
    devices.
    """
    check_coverage(workload, options)
    check_effects(options)
    given = options

    def run_with(traced: Workload) -> tuple[Workload, Options]:
        served = as_served(_without_batch_note(traced, given), given, engines=catalog.engines)
        return as_fine_tuned(*served)

    def again(trace: TraceAt) -> TraceAt:
        return cache(lambda batch: run_with(trace(batch))[0])

    workload, options = run_with(workload)
    options = replace(options, device=device_ids(catalog, options.device))
    calibrated = calibrated or Stored()
    return Question(
        workload=workload,
        options=options,
        catalog=with_calibrations(catalog, calibrated.calibrations),
        machine=machine,
        calibrated=calibrated,
        measuring=measuring,
        trace_at=again(trace_at) if trace_at else None,
        trace_fused=again(trace_fused) if trace_fused else None,
        trace_chunked=trace_chunked,
    )


def _without_batch_note(workload: Workload, options: Options) -> Workload:
    """Return the workload without the note on the assumed batch size if `--batch` gives one."""
    if not options.batch.strip():
        return workload
    return replace(workload, assumptions=tuple(note for note in workload.assumptions if note != ASSUMED_BATCH))


def traced(request: ProfileRequest) -> Workload:
    """Trace in a child process."""
    with SourceTrace.start(request) as trace:
        return trace.workload()


def at_lengths_of(first: Workload, source: str, options: Options) -> TraceAt | None:
    """Return the function that gives the step with `--lengths` at a batch size; None for a job without them.

    `first` is the trace at the longest.
    """
    lengths = of_trace(options)
    return None if lengths is None else at_batches(first, options, lengths, partial(_traced_at, source, options))


def _with_fsdp(
    workload: Workload, at_lengths: TraceAt | None, *, source: str, options: Options, batch: int | None
) -> tuple[Workload, TraceAt | None]:
    """Return the workload, and the function that gives it at a batch of `--lengths`, with the step under FSDP."""
    options = replace(options, sharding="zero3")
    first = traced(request_of(source, options, batch=batch))
    workload, fsdp_at = replace(workload, under_fsdp=as_sharded(first, options)), at_lengths_of(first, source, options)
    if at_lengths is None or fsdp_at is None:
        return workload, None
    return workload, lambda size: replace(at_lengths(size), under_fsdp=as_sharded(fsdp_at(size), options))


def _traced_at(source: str, options: Options, lengths: Sequence[int]) -> list[Workload]:
    """Trace the source at other lengths of its sequences; raise the first error."""
    from advisor.workload.trace_many import trace_many

    requests = [request_of(source, options, batch=None, length=length) for length in lengths]
    outcomes = trace_many(requests)
    found = []
    for request in requests:
        outcome = outcomes[request]
        if not isinstance(outcome, Workload):
            raise outcome
        found.append(outcome)
    return found


def _measuring(source: str, options: Options, *, run: bool) -> Measuring:
    if run:
        raise UsageError(
            f"--measure: {source} is a script, and one step of a script cannot be run again and again",
            hint="time its own steps: `with advisor.observe(model) as seen:` around its loop",
        )
    traced = request_of(source, options, batch=None)
    asked = {field.name: getattr(traced, field.name) for field in fields(traced)}
    request = MeasureRequest(**asked, layout=options.layout, compile=options.compile)
    return Measuring(request=request, time_it=measure_source, precision=options.precision)


def calibrations_for(
    machine: Machine | None, catalog: Catalog, options: Options, *, read: ReadCalibrations = calibrations_in_force
) -> Stored:
    """Return the calibrations of this machine; none where it, or its calibrations, are to be left out."""
    return Stored() if machine is None or options.no_calibrate else read(machine, catalog)


def profile_source(
    source: str,
    options: Options,
    *,
    run: bool = False,
    script_args: tuple[str, ...] = (),
    second_count: bool = False,
) -> Profile:
    """Count one step of the model in `source` at `options.batch`, or at the source's own batch size."""
    source, options, _ = resolved(source, options)
    check_source(source, options, run=run)
    wanted = single_batch_of(options.batch)
    if wanted is None and options.batch.strip() not in ("", "auto"):
        batch_candidates(options.batch, mode=options.mode, source_batch=1)  # says what is wrong with it
        raise UsageError(
            f"--batch {options.batch}: a profile takes one batch size", hint="write one number, or leave it out"
        )
    if is_workload_file(source):
        if second_count:
            raise UsageError(f"{source} is a saved workload: fvcore needs the model", hint="name the model's own file")
        workload, count = read_workload(Path(source)), None
        as_saved(options, workload, where=source)
    else:
        request = request_of(source, options, batch=wanted, run=run, script_args=script_args, second_count=second_count)
        with SourceTrace.start(request) as trace:
            workload, count = trace.counted()
        if (at_lengths := at_lengths_of(workload, source, options)) is not None:
            workload = at_lengths(wanted or workload.batch)
    check_coverage(workload, options)
    workload = _without_batch_note(workload, options)
    return Profile(workload=replace(workload, batch=profiled_batch(workload, wanted)), second_count=count)


def check_named(on: Sequence[str], options: Options) -> None:
    """Raise `UsageError` if `on`, the devices to explain, are too many or would make other options useless."""
    chosen_by = next((flag for flag in CHOOSE_AN_OFFER if getattr(options, flag)), None)
    if on and chosen_by:
        raise UsageError(f"--on and --{chosen_by} both choose the device", hint="keep one of them")
    if len(on) > MAX_DEVICES:
        raise UsageError(f"--on: {len(on)} devices, at most {MAX_DEVICES} stand side by side", hint="ask for fewer")


def check_source(source: str, options: Options, *, run: bool) -> None:
    """Raise `UsageError` for options that this kind of source would ignore."""
    if run and not source.endswith(".py"):
        raise UsageError(f"--run: {source} is not a script", hint="name a Python file, without ::NAME, or omit --run")
    check_generation(source, options, run=run)
    check_fine_tuning(source, options, run=run)
    if options.lengths is not None:
        check_lengths(source, options, run=run)
    if options.attention != "auto" and is_workload_file(source):
        raise UsageError(f"--attention: {source} is a saved workload", hint="save it again with the attention you mean")
    if options.measure and is_workload_file(source):
        raise UsageError(f"--measure: {source} is a saved workload, not a model", hint="name the model's own source")
    if options.measure and (counted := kind_of(source)) is not None and counted.is_counted_only:
        raise UsageError(f"--measure: {source} is counted, not run", hint="name the model's own source, or omit it")
    if options.input and (run or is_workload_file(source)):
        kind = "a script" if run else "a saved workload"
        raise UsageError(f"--input: {source} is {kind} and has inputs of its own", hint="leave --input out")


def as_saved(options: Options, workload: Workload, *, where: str) -> Options:
    """Return the options with the mode of the saved workload; raise `UsageError` if they contradict it."""
    is_default = options.mode == "inference" and not (isinstance(options, GivenOptions) and "mode" in options.given)
    if options.mode != workload.mode and not is_default:
        raise UsageError(
            f"--mode {options.mode}: {where} is a saved {workload.mode} step",
            hint=f"save it with `advise profile SOURCE --mode {options.mode} -o workload.json`",
        )
    return replace(options, mode=workload.mode)


def as_script(workload: Workload, options: ScriptOptions) -> tuple[Workload, Options]:
    """Return the workload and the options as the script runs, except for the options that the user has given."""
    script = workload.script
    if script is None:
        return workload, options
    own: dict[str, Any] = {
        "mode": workload.mode,
        "compile": script.compile,
        "layout": script.layout,
        "loader_s_per_sample": script.loader_s_per_sample,
        "loader_workers": script.worker_count,
    }
    if workload.mode == "training" and script.sample_count is not None and not options.given.intersection(SIZES):
        own["samples"] = script.sample_count
    if "precision" in options.given:
        workload = replace(workload, script=replace(script, gpu_precision=None, cpu_precision=None))
    elif script.unused_autocast:
        workload = replace(workload, assumptions=(*workload.assumptions, script.unused_autocast))
    return workload, replace(options, **{name: value for name, value in own.items() if name not in options.given})


def catalog_of(options: Options) -> Catalog:
    """Load all profiles and prices, the user's own included."""
    return load_catalog(
        profiles=Path(options.profiles) if options.profiles else None, prices=[Path(path) for path in options.prices]
    )


def profiled_batch(workload: Workload, wanted: int | None) -> int:
    """Return the batch size to count at; raise `UsageError` where the workload cannot have it."""
    if wanted is None or workload.batch_is_affine:
        return wanted or workload.batch
    if wanted != workload.batch:
        raise other_batch(workload, wanted)
    return wanted


def check_coverage(workload: Workload, options: Options) -> None:
    """Raise `CoverageError` under --strict if an operator has no formula."""
    if options.strict and workload.unknown_ops:
        listed = ", ".join(sorted(workload.unknown_ops))
        raise CoverageError(
            f"{workload.name}: no formula for {listed}", hint="leave --strict out to count their bytes without FLOP"
        )
