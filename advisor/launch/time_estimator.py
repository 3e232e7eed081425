"""Tells SkyPilot's optimizer how long a task takes on each of its resources, from the answer about its model."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from advisor.errors import UsageError, did_you_mean
from advisor.launch.engines import skypilot
from advisor.launch.launchable import own_type
from advisor.records.answer import Quote, Recommendation

_KNOWN_GPUS = frozenset(map(str.casefold, skypilot.known_gpu_names()))


class Resources(Protocol):
    """The attributes of `sky.Resources` that are read: the cloud, the instance type, and the GPUs (name -> count)."""

    @property
    def cloud(self) -> Any: ...  # noqa: D102

    @property
    def instance_type(self) -> str | None: ...  # noqa: D102

    @property
    def accelerators(self) -> Mapping[str, float] | None: ...  # noqa: D102


def skypilot_time_estimator(recommendation: Recommendation, *, num_nodes: int = 1) -> Callable[[Resources], float]:
    """Return a function for `sky.Task.set_time_estimator`: resources -> predicted seconds of the job.

    `recommendation` is the answer about the task's model, with the size of the job and the batch of the script;
    `num_nodes` is that of the task. Resources are identified by their instance type, or else by the name and number of
    their GPUs; of several such offers in the answer, the cheapest counts. Resources that the answer has left out,
    because the model does not fit or because of a limit, take infinitely long, so that the optimizer chooses others.
    Raises `UsageError` for an answer without a job size.

    The function raises `UsageError` for an accelerator that is not predicted, and for resources that name neither a
    type nor a GPU: the optimizer asks for the time before it chooses the type. SkyPilot does not catch it, so that
    `sky.optimize` ends with its message instead of ranking by a guess.
    """
    if recommendation.job.assumed or recommendation.job.requests_per_day is not None:
        hint = "pass samples=, epochs= or steps= to recommend()"
        raise UsageError("this answer is not about a job of a given size, so it has no time for SkyPilot", hint=hint)
    quotes = [quote for quote in recommendation.quotes if quote.instance_count == num_nodes]

    def estimate_s(resources: Resources) -> float:
        _check(resources)
        found = [quote for quote in quotes if _is_of(quote, resources)]
        cheapest = min(found, key=lambda quote: quote.job_usd.mid, default=None)
        return math.inf if cheapest is None else cheapest.job_s.mid

    return estimate_s


def _check(resources: Resources) -> None:
    """Raise `UsageError` for resources of which no answer knows the time."""
    name = next(iter(resources.accelerators or {}), None)
    if name is not None and name.casefold() not in _KNOWN_GPUS:
        hint = did_you_mean(name, skypilot.known_gpu_names())
        raise UsageError(f"{name}: no time is predicted for this accelerator", hint=hint)
    if name is None and resources.instance_type is None:
        raise UsageError(
            f"{resources}: without a GPU, a time is known only for an instance type",
            hint="list the types: resources: {any_of: [{infra: aws, instance_type: c8a.xlarge}, {accelerators: L4}]}",
        )


def _is_of(quote: Quote, resources: Resources) -> bool:
    cloud = "" if resources.cloud is None else str(resources.cloud).casefold()
    if cloud and quote.provider != cloud:
        return False
    gpus, wanted_type = resources.accelerators or {}, resources.instance_type
    offered_type = own_type(quote)
    if offered_type is not None and wanted_type is not None and offered_type != wanted_type:
        return False
    return _has(quote, gpus) if gpus else offered_type == wanted_type


def _has(quote: Quote, gpus: Mapping[str, float]) -> bool:
    (name, count), *_ = gpus.items()
    own = skypilot.gpu_name(quote.provider, quote.device.id)
    return own is not None and own.casefold() == name.casefold() and quote.device.count == count
