"""Why a step takes that long, on one page: source -> workload -> ranking -> device -> where the time goes."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from advisor import units
from advisor.errors import NothingFitsError, UsageError
from advisor.named_device import named_device
from advisor.pipeline import catalog_of, checked_options, names_of, profile_source, rank_workload, single_batch
from advisor.predict.batches import batch_candidates
from advisor.predict.capability import fleet_of
from advisor.predict.explain import explain_step
from advisor.predict.step_time import predict
from advisor.records.answer import BOUNDS, Interval, Quote, Recommendation
from advisor.records.device import Device
from advisor.records.explanation import EXPLANATION_SCHEMA_VERSION, Explanation, PredictedStep
from advisor.records.options import Options
from advisor.records.price import Catalog, Offer, Rejection
from advisor.records.workload import Workload

if TYPE_CHECKING:
    import torch
    from torch import nn

MAX_DEVICES = 6
"""Side by side, each needs columns of its own."""
_CHOOSE_AN_OFFER = ("provider", "region", "tier", "device")
_TAKES_SEVERAL = frozenset({*_CHOOSE_AN_OFFER, "prices"})
_OF_SOURCES_ALONE = ("input", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject:
    """A device to explain the step on, and its quote in the ranking where it has one."""

    name: str
    device: Device
    device_count: int
    quote: Quote | None


def explain_source(
    source: str, options: Options, *, on: Sequence[str] = (), run: bool = False, script_args: tuple[str, ...] = ()
) -> Explanation:
    """Say why a step of the model in `source` takes as long as `advise` says it does.

    `on` names offers by id or instance, and devices by id or alias, with `@N` for N physical cores of a CPU. Without
    it, the best offer of the ranking is explained.
    """
    _check_named(on, options)
    at_one_batch = options if single_batch(options) else replace(options, batch="")
    workload = profile_source(source, at_one_batch, run=run, script_args=script_args).workload
    return explain_workload(workload, replace(options, mode=workload.mode), on=on, catalog=catalog_of(options))


def explain(
    model: "nn.Module",
    example_inputs: Any,
    *,
    on: str | Sequence[str] = (),
    loss: Callable[[Any, Any], "torch.Tensor"] | None = None,
    optimizer: Callable[[Iterable[Any]], "torch.optim.Optimizer"] | None = None,
    train_step: Callable[["nn.Module", Any], Any] | None = None,
    **flags: Any,
) -> Explanation:
    """Say why a step of `model` takes as long as `recommend` says it does, on the best offer or on those named by `on`.

    All else is as `recommend` takes it, `flags` included.
    """
    from advisor.workload.cuda_redirect import cuda_redirected
    from advisor.workload.sources.live import load_live
    from advisor.workload.torch_log import fake_tensor_log_silenced
    from advisor.workload.trace import trace

    options, names = _options_of(flags), names_of(on)
    _check_named(names, options)
    loaded = load_live(model, example_inputs, loss=loss, optimizer=optimizer, train_step=train_step)
    with cuda_redirected(), fake_tensor_log_silenced():
        workload = trace(loaded, mode=options.mode, batch=single_batch(options), attention=options.attention)
    return explain_workload(workload, options, on=names, catalog=catalog_of(options))


def explain_workload(workload: Workload, options: Options, *, on: Sequence[str], catalog: Catalog) -> Explanation:
    """Explain the workload on each of `on`, or on the best offer. Raises `AdvisorError` where it does not run."""
    recommendation = rank_workload(workload, options, catalog=catalog)
    subjects = [_named(name, recommendation, catalog) for name in on] or [_best(recommendation, catalog)]
    steps = tuple(
        explain_step(
            workload,
            _quoted_step(subject.quote)
            if subject.quote
            else _predicted_step(workload, subject, options, catalog, samples=recommendation.job.samples),
            name=subject.name,
            device=subject.device,
            device_count=subject.device_count,
            efficiencies=catalog.efficiencies,
            layout=options.layout,
            compile_mode=options.compile,
        )
        for subject in subjects
    )
    return Explanation(
        schema_version=EXPLANATION_SCHEMA_VERSION,
        workload=workload.name,
        mode=workload.mode,
        layout=options.layout,
        compile=options.compile,
        steps=steps,
        warnings=recommendation.warnings,
    )


def _options_of(flags: Mapping[str, Any]) -> Options:
    """The options that the keywords of `recommend` say."""
    for name in flags:
        if name not in Options.__dataclass_fields__ or name in _OF_SOURCES_ALONE:
            raise TypeError(f"explain() got an unexpected keyword argument {name!r}")
    several = {name: names_of(flags[name]) for name in _TAKES_SEVERAL & flags.keys()}
    texts = {name: str(flags[name]) for name in ("batch", "profiles") if flags.get(name) is not None}
    return checked_options(**{**flags, **several, **texts})


def _check_named(on: Sequence[str], options: Options) -> None:
    """Refuse what would otherwise be ignored."""
    chosen_by = next((flag for flag in _CHOOSE_AN_OFFER if getattr(options, flag)), None)
    if on and chosen_by:
        raise UsageError(f"--on names the device, so --{chosen_by} has none to choose", hint="keep one of them")
    if len(on) > MAX_DEVICES:
        raise UsageError(f"--on: {len(on)} devices, at most {MAX_DEVICES} stand side by side", hint="ask for fewer")


def _best(recommendation: Recommendation, catalog: Catalog) -> _Subject:
    best = recommendation.best
    if best is None:
        raise NothingFitsError("no instance does this job within the limits", hint="`advise rank` says why of each")
    (offer,) = (offer for offer in catalog.offers if offer.id == best.id)
    return _offered([offer], recommendation, catalog)


def _named(name: str, recommendation: Recommendation, catalog: Catalog) -> _Subject:
    wanted = name.casefold()
    offers = [offer for offer in catalog.offers if wanted in _names_of(offer)]
    if offers:
        return _offered(offers, recommendation, catalog)
    unusable = next((offer for offer in catalog.rejected if wanted in _names_of(offer)), None)
    if unusable:
        raise UsageError(f"--on {name}: {unusable.reason}", hint="name another offer, or a device")
    try:
        device = named_device(name, catalog)[1]
    except UsageError as error:
        raise UsageError(f"--on {name}: no offer has this name, and {error.message}", hint=error.hint) from error
    return _Subject(name=name, device=device, device_count=1, quote=None)


def _names_of(offer: Offer | Rejection) -> tuple[str, ...]:
    names = (offer.id, offer.instance, f"{offer.provider} {offer.instance}")
    return tuple(name.casefold() for name in names)


def _offered(offers: Sequence[Offer], recommendation: Recommendation, catalog: Catalog) -> _Subject:
    """One instance type in some regions, the same machine in all: the one in the ranking speaks for them."""
    types = dict.fromkeys(f"{offer.provider} {offer.instance}" for offer in offers)
    if len(types) > 1:
        raise UsageError(f"--on {offers[0].instance}: {len(types)} providers have it", hint=f"say {' or '.join(types)}")
    fleet = fleet_of(offers, gpus=catalog.gpus, cpus=catalog.cpus)
    if not fleet.devices:
        raise UsageError(f"--on {offers[0].instance}: {fleet.problems[0]}", hint="name another offer, or a device")
    ids = {offer.id for offer in offers}
    return _Subject(
        name=next(iter(types)),
        device=fleet.devices[0],
        device_count=max(1, offers[0].gpu_count),
        quote=next((quote for quote in recommendation.quotes if quote.id in ids), None),
    )


def _quoted_step(quote: Quote) -> PredictedStep:
    return PredictedStep(
        batch=quote.batch,
        precision=quote.precision,
        step_s=quote.step_s,
        bound=quote.bound,
        time_source=quote.time_source,
    )


def _predicted_step(
    workload: Workload, subject: _Subject, options: Options, catalog: Catalog, *, samples: int
) -> PredictedStep:
    """What the ranking would say of a device that is not in it: at the batch that finishes the job soonest."""
    asked = batch_candidates(options.batch, mode=options.mode, source_batch=workload.batch)
    batches = asked if workload.batch_is_affine else np.array([workload.batch], dtype=np.intp)
    predictions = predict(
        workload,
        devices=[subject.device],
        efficiencies=catalog.efficiencies,
        batches=batches,
        precision=options.precision,
        layout=options.layout,
        compile_mode=options.compile,
    )
    (precision,) = predictions.precisions
    if precision is None:
        raise UsageError(
            f"{subject.name} has no unit for {options.precision}, or no kernels for the step",
            hint="choose another precision or device",
        )
    job_s = np.where(predictions.fits[0], np.ceil(samples / batches) * predictions.step_s[0], np.inf)
    at = int(np.argmin(job_s))
    if not np.isfinite(job_s[at]):
        needed, has = float(predictions.peak_memory_bytes.min()), subject.device.memory_bytes
        raise NothingFitsError(
            f"{subject.name}: the step needs {units.format_bytes(needed)}, the device has {units.format_bytes(has)}",
            hint="choose a smaller batch, a half precision or another device",
        )
    mid, low, high = (
        float(times[0, at]) for times in (predictions.step_s, predictions.step_low_s, predictions.step_high_s)
    )
    return PredictedStep(
        batch=int(batches[at]),
        precision=precision,
        step_s=Interval(mid=mid, low=low, high=high),
        bound=BOUNDS[predictions.bound[0, at]],
        time_source=predictions.time_sources[0],
    )
