"""Defines the loaded model that tracing takes, and chooses its trained parameters, optimizer and loss."""

import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from advisor.errors import LoadError, TraceError
from advisor.records.workload import Mode

Inputs = tuple[tuple[Any, ...], Mapping[str, Any]]
"""Positional and keyword arguments of the model's forward."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to be traced; raises `LoadError` for a batch without samples."""

    name: str
    model: nn.Module
    make_inputs: Callable[[int], Inputs]
    """Returns the forward's arguments for a batch size; raises `LoadError` if the batch is fixed at another size."""
    batch: int
    """The default batch size."""
    batch_is_fixed: bool = False
    """No other batch size works."""
    is_affine: bool = False
    """All dimensions are known to grow as a + b x batch, so a third trace need not check it."""
    loss: Callable[[Any, Any], torch.Tensor] | None = None
    """`loss(output, batch)` returns a scalar; `batch` is what `example_inputs` returned. None: see `loss_of`."""
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None
    """`optimizer(parameters)` returns a torch optimizer. None: AdamW."""
    train_step: Callable[[nn.Module, Any], Any] | None = None
    """`train_step(model, batch)` runs the whole step. None: forward, loss, backward, optimizer step."""
    frees_output: bool = False
    """The step drops the model's output before backward, as transformers' Trainer does."""
    notes: tuple[str, ...] = ()
    """Tell the user what was assumed."""

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise LoadError(
                f"{self.name}: its inputs have a batch of {self.batch}", hint="give inputs with at least one sample"
            )


_WRAPPERS = {
    "DataParallel": "module", "DistributedDataParallel": "module", "FullyShardedDataParallel": "module",
    "OptimizedModule": "_orig_mod", "_FabricModule": "_forward_module",
}  # fmt: skip
"""Classes of torch and Lightning that pass calls on to the model in this attribute."""


def unwrapped(model: nn.Module) -> nn.Module:
    """Return the model inside of wrappers that would only lengthen the names of its parts."""
    while (name := _WRAPPERS.get(type(model).__name__)) and isinstance(inner := getattr(model, name, None), nn.Module):
        model = inner
    return model


COMPILED = "advisor_compiled"
"""Attribute of a module that the user's code compiles while `torch.compile` is replaced."""


def is_compiled(model: nn.Module) -> bool:
    """Return True if torch.compile compiled the calls of `model`, and would compile hooks inside it too."""
    is_wrapped = hasattr(model, "_orig_mod") or getattr(model, "_compiled_call_impl", None) is not None
    return is_wrapped or hasattr(model, COMPILED)


AS_EXPORTED = "exported program: dropout and batch norm as they were on export"


def is_exported(module: nn.Module) -> bool:
    """Return True if torch.export made the module, whose own `train` and `eval` raise."""
    return isinstance(module, torch.fx.GraphModule) and "train" in vars(module)


def keep_as_exported(model: nn.Module) -> None:
    """Let `train` and `eval` do nothing in the parts of the model that torch.export made."""
    for part in filter(is_exported, model.modules()):
        for name in ("train", "eval"):
            setattr(part, name, types.MethodType(lambda self, *_: self, part))


def in_mode(model: nn.Module, mode: Mode) -> nn.Module:
    """Switch the model to training or to evaluation and return it; exported parts stay as they are."""
    keep_as_exported(model)
    return model.train(mode == "training")


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Return the tensors in nested dicts, lists and tuples, in order."""
    return [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def batch_value(inputs: Inputs) -> Any:
    """Return the batch as `example_inputs` gave it: a dict, a tuple or a single value."""
    args, kwargs = inputs
    if kwargs:
        return dict(kwargs)
    return args[0] if len(args) == 1 else args


def trained(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters that require gradients, in order."""
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def trained_parameters(loaded: LoadedModel) -> list[nn.Parameter]:
    """Return the parameters that require gradients; raise `TraceError` if there are none."""
    found = trained(loaded.model)
    if not found:
        raise TraceError(
            f"{loaded.name} has no trainable parameters",
            hint="use --mode inference, or set requires_grad on the parameters to train",
        )
    return found


def optimizer_of(loaded: LoadedModel) -> torch.optim.Optimizer:
    """Return the file's optimizer, or else AdamW, on the trained parameters; raise `TraceError` if it is none."""
    made = (loaded.optimizer or torch.optim.AdamW)(trained_parameters(loaded))
    if not hasattr(made, "step"):
        raise TraceError(
            f"optimizer(parameters) returned a {type(made).__name__}, not an optimizer", hint="return the optimizer"
        )
    return made


def loss_of(loaded: LoadedModel, output: Any, batch: Any) -> torch.Tensor:
    """Return the file's loss, else the output's, else the mean of the float outputs.

    Raise `TraceError` if the loss is not a single number.
    """
    return _default_loss(output) if loaded.loss is None else _checked_loss(loaded.loss(output, batch))


def own_loss(output: Any) -> torch.Tensor | None:
    """Return the loss that the model computed itself, `output.loss` or `output["loss"]` (as transformers), or None."""
    loss = output.get("loss") if isinstance(output, Mapping) else getattr(output, "loss", None)
    return loss if isinstance(loss, torch.Tensor) and loss.is_floating_point() else None


def _checked_loss(loss: Any) -> torch.Tensor:
    if isinstance(loss, torch.Tensor) and loss.numel() == 1:
        return loss
    found = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, torch.Tensor) else f"a {type(loss).__name__}"
    raise TraceError(f"loss(output, batch) returned {found}, not a tensor with one element", hint="return loss.mean()")


def _default_loss(output: Any) -> torch.Tensor:
    loss = own_loss(output)
    if loss is not None:
        return loss.mean()  # DataParallel returns one loss per GPU
    kind = type(output).__name__
    if is_dataclass(output) and not isinstance(output, Mapping):
        output = [getattr(output, part.name) for part in fields(output)]
    leaves = [leaf for leaf in tensors_in(output) if leaf.is_floating_point()]
    if not leaves:
        raise TraceError(
            f"the model's output ({kind}) has no float tensor to train on",
            hint="define loss(output, batch) in the file, or return an output with a `loss`",
        )
    return torch.stack([leaf.float().mean() for leaf in leaves]).mean()
