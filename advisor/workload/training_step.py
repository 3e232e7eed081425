"""How a loaded model is trained: its parameters, its optimizer, its loss, each its own or the default."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from advisor.errors import TraceError
from advisor.workload.loaded import Inputs, LoadedModel


def batch_value(inputs: Inputs) -> Any:
    """What `example_inputs` gave: the dict, the tuple or the one tensor."""
    args, kwargs = inputs
    if kwargs:
        return dict(kwargs)
    return args[0] if len(args) == 1 else args


def trained_parameters(loaded: LoadedModel) -> list[nn.Parameter]:
    """Those that want a gradient; raise `TraceError` where none does."""
    trained = [parameter for parameter in loaded.model.parameters() if parameter.requires_grad]
    if not trained:
        raise TraceError(
            f"{loaded.name} has no parameter to train",
            hint="use --mode inference, or set requires_grad on what you train",
        )
    return trained


def optimizer_of(loaded: LoadedModel) -> torch.optim.Optimizer:
    """The file's own, else AdamW, on the parameters that are trained."""
    return (loaded.optimizer or torch.optim.AdamW)(trained_parameters(loaded))


def loss_of(loaded: LoadedModel, output: Any, batch: Any) -> torch.Tensor:
    """The file's own, else the output's, else the mean of the float outputs; raise `TraceError` for no number."""
    return _default_loss(output) if loaded.loss is None else _checked_loss(loaded.loss(output, batch))


def own_loss(output: Any) -> torch.Tensor | None:
    """What the model computed as its loss, as the models of transformers do: `output.loss` or `output["loss"]`."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return loss if isinstance(loss, torch.Tensor) and loss.is_floating_point() else None


def _checked_loss(loss: Any) -> torch.Tensor:
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss
    found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
    raise TraceError(f"loss(output, batch) gave {found}, not a tensor with one element", hint="return loss.mean()")


def _default_loss(output: Any) -> torch.Tensor:
    loss = own_loss(output)
    if loss is not None:
        return loss.mean()  # DataParallel gives one for each GPU
    kind = type(output).__name__
    if is_dataclass(output) and not isinstance(output, Mapping):
        output = [getattr(output, part.name) for part in fields(output)]
    leaves = [
        leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    ]
    if not leaves:
        raise TraceError(
            f"the model's output, {kind}, holds no float tensor to train on",
            hint="define loss(output, batch) in the file, or return an output with a `loss`",
        )
    return torch.stack([leaf.float().mean() for leaf in leaves]).mean()
