"""Builds a question from a model that the caller holds."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from advisor.question.from_source import profile_source, single_batch
from advisor.question.served_model import asks_for_tokens, config_source
from advisor.records.options import Options
from advisor.records.workload import Workload

if TYPE_CHECKING:
    import torch
    from torch import nn


def trace_live(
    model: "nn.Module",
    example_inputs: Any,
    options: Options,
    *,
    loss: Callable[[Any, Any], "torch.Tensor"] | None = None,
    optimizer: "Callable[[Iterable[Any]], torch.optim.Optimizer] | torch.optim.Optimizer | None" = None,
    train_step: Callable[["nn.Module", Any], Any] | None = None,
) -> Workload:
    """One step of the model, which is left as it was; what is given is as `recommend` takes it.

    With `prompt_tokens` it is that of a service, made from the model's config alone.
    """
    if asks_for_tokens(options):
        with config_source(model) as source:
            at_one_batch = options if single_batch(options) else replace(options, batch="")
            return profile_source(source, at_one_batch).workload
    from advisor.workload import live_trace
    from advisor.workload.sources.live import load_live

    loaded = load_live(model, example_inputs, loss=loss, optimizer=optimizer, train_step=train_step)
    return live_trace.trace_live(loaded, mode=options.mode, batch=single_batch(options), attention=options.attention)
