"""A model that the caller holds and the keywords of `recommend` in, the options and one traced step out."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from advisor.generating import asks_for_tokens, config_source
from advisor.pipeline import checked_options, profile_source, single_batch
from advisor.records.options import Options
from advisor.records.workload import Workload

if TYPE_CHECKING:
    import torch
    from torch import nn

_NOT_TAKEN = ("input", "timeout", "measure")
"""Of sources alone, and what `recommend` alone does."""


def options_of(flags: Mapping[str, Any], *, function: str) -> Options:
    """The options that the keywords of `recommend` say, given to `function`."""
    for name in flags:
        if name not in Options.__dataclass_fields__ or name in _NOT_TAKEN:
            raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
    return checked_options(**flags)


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
