"""The program on one page: source -> workload -> predictions -> quotes -> recommendation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from advisor.catalog.find import find_devices
from advisor.catalog.load import load_catalog
from advisor.cost.job import job_of
from advisor.cost.ranking import rank
from advisor.cost.selection import select_offers
from advisor.errors import CoverageError, TraceError, UsageError
from advisor.predict.batches import batch_candidates
from advisor.predict.capability import fleet_of
from advisor.predict.join import join_batches
from advisor.predict.step_time import predict
from advisor.records.answer import (
    ANSWER_SCHEMA_VERSION,
    Group,
    GroupBy,
    Recommendation,
    WorkloadSummary,
)
from advisor.records.device import Device
from advisor.records.options import Options
from advisor.records.prediction import IndexArray, Predictions
from advisor.records.price import Catalog
from advisor.records.workload import SecondCount, Workload
from advisor.workload.file import read_workload, workload_from_json
from advisor.workload.spawn import PendingProfile, ProfileRequest, start_profile
from advisor.workload.summary import group_rows, summarize

if TYPE_CHECKING:
    import torch
    from torch import nn

TraceAt = Callable[[int], Workload]
"""Traces the source anew at a batch size, for models whose dimensions are not affine in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One step of a source at one batch size, and fvcore's count of it where asked for."""

    workload: Workload
    batch: int
    second_count: SecondCount | None

    @property
    def summary(self) -> WorkloadSummary:
        """Totals, coverage and assumptions."""
        return summarize(self.workload, batch=self.batch)

    def groups(self, by: GroupBy) -> tuple[Group, ...]:
        """The step by family, module or phase."""
        return group_rows(self.workload, by=by, batch=self.batch)


def rank_source(
    source: str, options: Options, *, run: bool = False, script_args: tuple[str, ...] = ()
) -> Recommendation:
    """Rank every offer for the model in `source`, a file, a named model or a saved workload."""
    _check_source(source, options, run=run)
    if _is_workload_file(source):
        workload = _read_saved(source, options)
        return rank_workload(workload, replace(options, mode=workload.mode), catalog=catalog_of(options))

    def start(batch: int | None) -> PendingProfile:
        return start_profile(_request(source, options, batch=batch, run=run, script_args=script_args))

    with start(single_batch(options)) as pending:
        catalog = catalog_of(options)  # while the child imports torch
        workload = workload_from_json(pending.result(), where=source)
    return rank_workload(
        workload, options, catalog=catalog, trace_at=lambda batch: workload_from_json(start(batch).result())
    )


def profile_source(
    source: str,
    options: Options,
    *,
    run: bool = False,
    script_args: tuple[str, ...] = (),
    second_count: bool = False,
) -> Profile:
    """Count one step of the model in `source` at `options.batch`, or at the source's own batch."""
    _check_source(source, options, run=run)
    wanted = single_batch(options)
    if wanted is None and options.batch not in ("", "auto"):
        raise UsageError(
            f"--batch {options.batch}: a profile is of one batch", hint="write one number, or leave it out"
        )
    if _is_workload_file(source):
        if second_count:
            raise UsageError(f"{source} is a saved workload: fvcore needs the model", hint="name the model's own file")
        workload, count = _read_saved(source, options), None
    else:
        request = _request(source, options, batch=wanted, run=run, script_args=script_args, second_count=second_count)
        with start_profile(request) as pending:
            workload = workload_from_json(pending.result(), where=source)
            count = SecondCount(**pending.second_count) if pending.second_count else None
    _check_coverage(workload, options)
    return Profile(workload=workload, batch=_profiled_batch(workload, wanted), second_count=count)


def recommend(
    model: "nn.Module",
    example_inputs: Any,
    *,
    loss: Callable[[Any, Any], "torch.Tensor"] | None = None,
    optimizer: Callable[[Iterable[Any]], "torch.optim.Optimizer"] | None = None,
    train_step: Callable[["nn.Module", Any], Any] | None = None,
    mode: Literal["inference", "training"] = "inference",
    precision: Literal["auto", "fp32", "tf32", "amp-fp16", "amp-bf16", "bf16", "fp16"] = "auto",
    batch: str | int = "",
    layout: Literal["nchw", "nhwc"] = "nchw",
    compile: Literal["eager", "compile"] = "eager",  # noqa: A002 - the flag's name
    attention: Literal["auto", "eager", "fused"] = "auto",
    samples: int | None = None,
    epochs: int | None = None,
    steps: int | None = None,
    provider: str | Sequence[str] = (),
    region: str | Sequence[str] = (),
    tier: str | Sequence[str] = (),
    device: str | Sequence[str] = (),
    price: Literal["on-demand", "spot", "commit-1y", "commit-3y"] = "on-demand",
    top: int = 10,
    strict: bool = False,
    profiles: str | Path | None = None,
    prices: str | Path | Sequence[str | Path] = (),
) -> Recommendation:
    """Rank every offer for one step of `model`; the same answer as `advise` gives for a file that holds it.

    `example_inputs` is what the model is called with (a tensor, a tuple, a dict of keyword arguments), or a function of
    the batch size that gives it; the leading dimension is the batch. `loss(output, batch)`, `optimizer(parameters)` and
    `train_step(model, batch)` are as in a model file. The keywords are the flags of `advise`, by the same names.
    Prints nothing and leaves the model as it was, wherever it lies. Raises `AdvisorError`, and what the model's own
    code raises.
    """
    from advisor.workload.cuda_redirect import cuda_redirected
    from advisor.workload.sources.live import load_live
    from advisor.workload.torch_log import fake_tensor_log_silenced
    from advisor.workload.trace import trace

    options = checked_options(
        mode=mode,
        precision=precision,
        batch=str(batch),
        layout=layout,
        compile=compile,
        attention=attention,
        samples=samples,
        epochs=epochs,
        steps=steps,
        provider=names_of(provider),
        region=names_of(region),
        tier=names_of(tier),
        device=names_of(device),
        price=price,
        top=top,
        strict=strict,
        profiles=None if profiles is None else str(profiles),
        prices=names_of(prices),
    )
    catalog = catalog_of(options)
    loaded = load_live(model, example_inputs, loss=loss, optimizer=optimizer, train_step=train_step)

    def trace_at(batch: int | None) -> Workload:
        with cuda_redirected(), fake_tensor_log_silenced():
            return trace(loaded, mode=mode, batch=batch, attention=attention)

    return rank_workload(trace_at(single_batch(options)), options, catalog=catalog, trace_at=trace_at)


def rank_workload(
    workload: Workload, options: Options, *, catalog: Catalog, trace_at: TraceAt | None = None
) -> Recommendation:
    """Predict the workload on every device on offer, price the job, and rank."""
    _check_coverage(workload, options)
    if not workload.rows:
        raise TraceError(
            f"{workload.name} calls no operator that computes or copies: there is nothing to predict",
            hint="check that its forward does something with its inputs",
        )
    job = job_of(options, source_batch=workload.batch)
    if job.batch == "auto" and not workload.batch_is_affine:
        job = replace(job, batch=str(workload.batch))
    wanted = batch_candidates(options.batch, mode=options.mode, source_batch=workload.batch)
    selection = select_offers(
        catalog.offers, options=replace(options, device=_device_ids(catalog, options.device)), price_kind=job.price
    )
    fleet = fleet_of(selection.offers, gpus=catalog.gpus, cpus=catalog.cpus)
    predictions, warnings = _predict(workload, wanted, fleet.devices, catalog, options, trace_at)
    ranking = rank(selection, fleet=fleet, predictions=predictions, job=job)
    return Recommendation(
        schema_version=ANSWER_SCHEMA_VERSION,
        job=job,
        workload=summarize(workload, batch=_summary_batch(workload, options)),
        best=ranking.quotes[0] if ranking.quotes else None,
        quotes=ranking.quotes,
        rejected=(*catalog.rejected, *ranking.rejected),
        notes=(*(f"overlay in force: {path}" for path in catalog.overlays), *ranking.notes),
        warnings=(*warnings, *_unknown_warnings(workload)),
    )


def _predict(
    workload: Workload,
    batches: IndexArray,
    devices: Sequence[Device],
    catalog: Catalog,
    options: Options,
    trace_at: TraceAt | None,
) -> tuple[Predictions, tuple[str, ...]]:
    """The predictions at `batches`, from one trace where the dimensions are affine in the batch, else from one each."""

    def at(traced: Workload, sizes: IndexArray) -> Predictions:
        return predict(
            traced,
            devices=devices,
            efficiencies=catalog.efficiencies,
            batches=sizes,
            precision=options.precision,
            layout=options.layout,
            compile_mode=options.compile,
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


def _is_workload_file(source: str) -> bool:
    return source.endswith(".json") and not source.startswith("hf:")


def _check_source(source: str, options: Options, *, run: bool) -> None:
    """Refuse what would otherwise be ignored: the source has settled it."""
    if run and not source.endswith(".py"):
        raise UsageError(f"--run: {source} is no script", hint="name a Python file, without ::NAME, or leave --run out")
    if options.attention != "auto" and _is_workload_file(source):
        raise UsageError(f"--attention: {source} is a saved workload", hint="save it anew with the attention you mean")
    if options.input and (run or _is_workload_file(source)):
        kind = "a script" if run else "a saved workload"
        raise UsageError(f"--input: {source} is {kind} and has inputs of its own", hint="leave --input out")


def _read_saved(source: str, options: Options) -> Workload:
    """The saved workload; its mode is the job's, so `--mode training` may not contradict it."""
    workload = read_workload(Path(source))
    if options.mode == "training" and workload.mode == "inference":
        raise UsageError(
            f"--mode training: {source} is a saved step of inference",
            hint="save it with `advise profile SOURCE --mode training -o workload.json`",
        )
    return workload


def _request(source: str, options: Options, *, batch: int | None, **how: Any) -> ProfileRequest:
    return ProfileRequest(
        source=source,
        mode=options.mode,
        batch=batch,
        inputs=options.input,
        attention=options.attention,
        timeout_s=options.timeout,
        **how,
    )


def catalog_of(options: Options) -> Catalog:
    """All profiles and prices in force, the user's own included."""
    return load_catalog(
        profiles=Path(options.profiles) if options.profiles else None, prices=[Path(path) for path in options.prices]
    )


def single_batch(options: Options) -> int | None:
    """The batch where one number was asked for."""
    return int(options.batch) if options.batch.isascii() and options.batch.isdigit() else None


def _summary_batch(workload: Workload, options: Options) -> int:
    """The job's batch where it has one, else the source's own."""
    return (single_batch(options) if workload.batch_is_affine else None) or workload.batch


def _profiled_batch(workload: Workload, wanted: int | None) -> int:
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


def _device_ids(catalog: Catalog, names: Sequence[str]) -> tuple[str, ...]:
    return tuple(
        identifier
        for name in names
        for identifier in ([name] if name in ("cpu", "gpu") else [device.id for device in find_devices(catalog, name)])
    )


def checked_options(**given: Any) -> Options:
    """The options that keywords give; raise `UsageError` as the command line does."""
    from pydantic import TypeAdapter, ValidationError

    try:
        options = TypeAdapter(Options).validate_python(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        raise UsageError(
            f"{first['loc'][0]}: {first['msg'].lower()}, found {first['input']!r}",
            hint="`advise rank --help` lists them",
        ) from None
    if options.top < 1:
        raise UsageError(f"top: {options.top} is not a whole number from 1", hint="leave it out or write 1 or more")
    return options


def names_of(value: Any) -> tuple[str, ...]:
    """One name or several, as the flags take them."""
    if isinstance(value, (str, Path)):
        return (str(value),)
    return tuple(str(name) for name in value)


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
