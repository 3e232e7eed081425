"""Defines the loaded model that tracing takes: the model, its inputs for any batch size, and how it is trained."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

Inputs = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of the model's forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to be traced."""

    name: str
    model: nn.Module
    make_inputs: Callable[[int], Inputs]
    """Returns the forward's arguments for a batch size; raises `LoadError` if the batch is fixed at another size."""
    batch: int
    """The default batch size."""
    batch_is_fixed: bool = False
    """No other batch size works."""
    loss: Callable[[Any, Any], torch.Tensor] | None = None
    """`loss(output, batch)` returns a scalar; `batch` is what `example_inputs` returned. None: see `loss_of`."""
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None
    """`optimizer(parameters)` returns a torch optimizer. None: AdamW."""
    train_step: Callable[[nn.Module, Any], Any] | None = None
    """`train_step(model, batch)` runs the whole step. None: forward, loss, backward, optimizer step."""
    notes: tuple[str, ...] = ()
    """Tell the user what was assumed."""
