"""Builds a question from a source that a user names: a file, a named model or a saved workload."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from advisor.calibrate.in_force import calibrations_in_force
from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.step_process import measure_source
from advisor.calibrate.step_request import MeasureRequest
from advisor.calibrate.store import Stored
from advisor.catalog.load import load_catalog
from advisor.errors import CoverageError, UsageError
from advisor.machine.this_machine import this_machine
from advisor.question.record import Question, ReadCalibrations
from advisor.question.served_model import check_generation
from advisor.records.answer import Group, GroupBy, WorkloadSummary
from advisor.records.flag_values import is_workload_file, single_batch_of
from advisor.records.machine import LOCAL, Machine
from advisor.records.options import Options
from advisor.records.price import Catalog
from advisor.records.workload import SecondCount, Workload
from advisor.workload.file import read_workload, workload_from_json
from advisor.workload.spawn import PendingProfile, ProfileRequest, start_profile
from advisor.workload.summary import group_rows, summarize


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
        workload = read_saved(source, options)
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
        workload, count = read_saved(source, options), None
    else:
        request = request_of(source, options, batch=wanted, run=run, script_args=script_args, second_count=second_count)
        with start_profile(request) as pending:
            workload = workload_from_json(pending.result(), where=source)
            count = SecondCount(**pending.second_count) if pending.second_count else None
    check_coverage(workload, options)
    return Profile(workload=replace(workload, batch=profiled_batch(workload, wanted)), second_count=count)


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


def read_saved(source: str, options: Options) -> Workload:
    """Read a saved workload; raise `UsageError` where the options contradict it."""
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


def profiled_batch(workload: Workload, wanted: int | None) -> int:
    """The batch to count at; raise `UsageError` where the workload cannot have it."""
    if wanted is None or workload.batch_is_affine:
        return wanted or workload.batch
    if wanted != workload.batch:
        raise other_batch(workload, wanted)
    return wanted


def other_batch(workload: Workload, batch: int) -> UsageError:
    """Return the error for a batch size that the workload cannot have."""
    return UsageError(
        f"{workload.name} can be predicted at batch {workload.batch} alone, not at {batch}: its dimensions do "
        "not grow with the batch in a straight line, or its batch is fixed",
        hint=f"leave --batch out, or make the source's own batch {batch}",
    )


def check_coverage(workload: Workload, options: Options) -> None:
    """Raise `CoverageError` under --strict if an operator has no formula."""
    if options.strict and workload.unknown_ops:
        listed = ", ".join(sorted(workload.unknown_ops))
        raise CoverageError(
            f"{workload.name}: no formula for {listed}", hint="leave --strict out to count their bytes without FLOP"
        )
