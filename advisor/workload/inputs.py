"""Makes the forward's arguments for any batch size, from the user's `example_inputs` or `--input`."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from advisor.errors import LoadError
from advisor.records.sample_words import ASSUMED_BATCH, DEFAULT_BATCH
from advisor.workload.input_spec import InputSpec
from advisor.workload.loaded import Inputs
from advisor.workload.user_error import passes_arguments_on

_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True, slots=True, kw_only=True)
class InputPlan:
    """How to make the forward's arguments."""

    make: Callable[[int], Inputs]
    batch: int
    """The default batch size."""
    notes: tuple[str, ...] = ()


def plan_from_example(example: Any, *, model: nn.Module) -> InputPlan:
    """Plan from `example_inputs`: a function of the batch size, or a value whose leading dimension is the batch.

    A tuple holds positional arguments, and a mapping of parameter names holds keyword arguments. Anything else, also a
    list, is the only argument.
    """
    if not callable(example) or isinstance(example, torch.Tensor):
        return _plan_from_value(example, model)
    parameters = list(inspect.signature(example).parameters.values())
    if not parameters:
        return _plan_from_value(example(), model)

    @passes_arguments_on
    def make(batch: int) -> Inputs:
        inputs = arguments_of(example(batch), model=model)
        sized = [tensor for tensor in _tensors(inputs) if tensor.dim() > 0]
        if sized and not any(tensor.size(0) for tensor in sized):
            raise LoadError(f"example_inputs({batch}) has no samples", hint="return as many as it is asked for")
        return inputs

    default = parameters[0].default
    if isinstance(default, int):
        return InputPlan(make=make, batch=default)
    return InputPlan(make=make, batch=DEFAULT_BATCH, notes=(ASSUMED_BATCH,))


def plan_from_specs(specs: Sequence[InputSpec]) -> InputPlan:
    """Plan from `--input`: zeros, or ones for masks and booleans. Unnamed inputs are positional, in their order."""

    def make(batch: int) -> Inputs:
        args = tuple(_blank(spec, batch) for spec in specs if spec.name is None)
        return args, {spec.name: _blank(spec, batch) for spec in specs if spec.name is not None}

    return InputPlan(make=make, batch=DEFAULT_BATCH, notes=(ASSUMED_BATCH,))


def arguments_of(example: Any, *, model: nn.Module) -> Inputs:
    """Return the forward's positional and keyword arguments that `example` describes."""
    if example is None:
        raise LoadError("example_inputs returned None", hint="return the tensors that the model takes")
    if isinstance(example, Mapping):
        parameters = inspect.signature(model.forward).parameters
        open_ended = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
        if example and all(isinstance(key, str) and (open_ended or key in parameters) for key in example):
            return (), dict(example)
    return (example if type(example) is tuple else (example,)), {}


def resized(value: Any, batch: int, size: int) -> Any:
    """Return `value` with the leading dimension of its tensors changed from `batch` to `size`.

    Tensors are cut or repeated, so that values such as indices stay in range.
    """
    if isinstance(value, torch.Tensor):
        if size == batch or value.dim() == 0 or value.shape[0] != batch:
            return value
        return value[torch.arange(size, device=value.device) % batch]
    if isinstance(value, Mapping):
        return {key: resized(item, batch, size) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(resized(item, batch, size) for item in value))
    if isinstance(value, (tuple, list)):
        return type(value)(resized(item, batch, size) for item in value)
    return value


def describe_inputs(inputs: Inputs) -> str:
    """Describe the arguments for error messages, as in `(32, 3, 224, 224) float32, mask=(32, 128) bool`."""
    args, kwargs = inputs
    return ", ".join([*map(_describe, args), *(f"{name}={_describe(value)}" for name, value in kwargs.items())])


def tensors_not_given(model: nn.Module, given: Collection[str]) -> str:
    """Return the end of a hint: the tensors that the forward takes beside `given`, if its annotations name any."""
    parameters = inspect.signature(model.forward).parameters.values()
    others = [one.name for one in parameters if one.name not in given and "Tensor" in str(one.annotation)]
    return f"; its forward also takes {', '.join(others)}" if others else ""


def suggest_inputs(model: nn.Module) -> str:
    """Return an `--input` for each argument that the forward requires, with sizes from the first layer if known."""
    shape = _first_layer_shape(model)
    parameters = inspect.signature(model.forward).parameters.values()
    required = [p.name for p in parameters if p.kind in _POSITIONAL and p.default is inspect.Parameter.empty]
    names = required or ["x"]
    return " ".join(["--input " + (shape if len(names) == 1 else f"{name}={shape}") for name in names])


def _plan_from_value(value: Any, model: nn.Module) -> InputPlan:
    inputs = arguments_of(value, model=model)
    sized = [tensor for tensor in _tensors(inputs) if tensor.dim() > 0]
    if not sized:
        raise LoadError(
            "example_inputs has no tensor with a batch dimension",
            hint="provide the tensors that the model takes, or a function of the batch size that returns them",
        )
    batch = sized[0].shape[0]
    kept = [tuple(tensor.shape) for tensor in sized if tensor.shape[0] != batch]
    notes = (f"inputs of shape {', '.join(map(str, kept))} stay the same at every batch size",) if kept else ()
    return InputPlan(make=lambda size: resized(inputs, batch, size), batch=batch, notes=notes)


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Mapping):
        value = list(value.values())
    return [tensor for item in value for tensor in _tensors(item)] if isinstance(value, (tuple, list)) else []


def _blank(spec: InputSpec, batch: int) -> torch.Tensor:
    dtype: torch.dtype = getattr(torch, spec.dtype)
    # A mask of zeros would mask everything; an index of zero is always valid.
    make = torch.ones if dtype == torch.bool or (spec.name or "").endswith("mask") else torch.zeros
    return make((batch, *spec.shape), dtype=dtype)


def _first_layer_shape(model: nn.Module) -> str:
    for layer in model.modules():
        if isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            sizes = {1: "16000", 2: "224x224", 3: "16x112x112"}[len(layer.kernel_size)]
            return f"{layer.in_channels}x{sizes}"
        if isinstance(layer, nn.Embedding):
            return "128:int64"
        if isinstance(layer, nn.RNNBase):
            return f"128x{layer.input_size}"
        if isinstance(layer, nn.Linear):
            return f"{layer.in_features}"
    return "3x224x224"


def _describe(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_describe, value))}]"
    return type(value).__name__
