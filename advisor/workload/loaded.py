"""What loading hands to tracing: a model, its inputs for any batch size, and how it is trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Inputs = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of the model's forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to be traced.

    `make_inputs(batch)` gives the forward's arguments with `batch` samples; it raises `LoadError` when `batch_is_fixed`
    and another batch is asked for. `loss(output, batch)` gives a scalar, `optimizer(parameters)` a torch optimizer,
    `train_step(model, batch)` does the whole step; `batch` there is what `example_inputs` gave. None: the tracer's own
    defaults (mean of the float outputs; AdamW). `notes` tell the user what was assumed.
    """

    name: str
    model: nn.Module
    make_inputs: Callable[[int], Inputs]
    batch: int
    batch_is_fixed: bool
    loss: Callable[[Any, Any], torch.Tensor] | None
    optimizer: Callable[[Any], torch.optim.Optimizer] | None
    train_step: Callable[[nn.Module, Any], Any] | None
    notes: tuple[str, ...]
