"""A model that the user holds as an object, with its inputs and training functions, in; a `LoadedModel` out."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from advisor.errors import LoadError
from advisor.workload.input_spec import InputSpec
from advisor.workload.inputs import InputPlan, plan_from_example, plan_from_specs, suggest_inputs
from advisor.workload.loaded import LoadedModel


def load_live(
    model: nn.Module,
    example_inputs: Any = None,
    *,
    specs: Sequence[InputSpec] = (),
    name: str | None = None,
    loss: Any = None,
    optimizer: Any = None,
    train_step: Any = None,
    notes: Sequence[str] = (),
) -> LoadedModel:
    """Make a model and its inputs ready to be traced. `specs`, where given, win over `example_inputs`.

    `optimizer` is a function of the parameters, or an optimizer whose settings are taken over. What is no function is
    left out with a note. Raise `LoadError` without any inputs.
    """
    plan = _plan(model, example_inputs, specs)
    if isinstance(optimizer, torch.optim.Optimizer):
        optimizer = _same_kind_of(optimizer)
    functions = {"loss": loss, "optimizer": optimizer, "train_step": train_step}
    ignored = [name for name, function in functions.items() if function is not None and not callable(function)]
    used = {name: None if name in ignored else function for name, function in functions.items()}
    return LoadedModel(
        name=name or type(model).__name__,
        model=model,
        make_inputs=plan.make,
        batch=plan.batch,
        batch_is_fixed=plan.batch_is_fixed,
        loss=used["loss"],
        optimizer=used["optimizer"],
        train_step=used["train_step"],
        notes=(*notes, *plan.notes, *(f"`{name}` is not a function: left out" for name in ignored)),
    )


def _plan(model: nn.Module, example_inputs: Any, specs: Sequence[InputSpec]) -> InputPlan:
    if specs:
        return plan_from_specs(specs)
    if example_inputs is not None:
        return plan_from_example(example_inputs, model=model)
    signature = inspect.signature(model.forward)
    raise LoadError(
        f"what {type(model).__name__}.forward{signature} takes is not known: there are no `example_inputs`",
        hint=f"add `example_inputs(batch)` to the file, or pass for instance {suggest_inputs(model)}",
    )


def _same_kind_of(optimizer: torch.optim.Optimizer) -> Callable[[Any], torch.optim.Optimizer]:
    kind = type(optimizer)
    accepted = inspect.signature(kind).parameters
    settings = {name: value for name, value in optimizer.defaults.items() if name in accepted}
    return lambda parameters: kind(parameters, **settings)
