"""Prepares a model object, with its inputs and training functions, for tracing."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from advisor.errors import LoadError, UsageError
from advisor.records.workload import Mode
from advisor.workload.input_spec import InputSpec
from advisor.workload.inputs import InputPlan, plan_from_example, plan_from_specs, suggest_inputs
from advisor.workload.lightning_module import is_lightning_class, lightning_train_step
from advisor.workload.loaded import AS_EXPORTED, LoadedModel, is_compiled, is_exported, trained, unwrapped

_ARGUMENTS = {"loss": ("output", "batch"), "optimizer": ("parameters",), "train_step": ("model", "batch")}

_NOT_FOLLOWED = (
    "the model's own torch.compile is not followed: the whole model is predicted as compiled with --compile compile, "
    "and as eager without"
)


def load_live(
    model: nn.Module,
    example_inputs: Any = None,
    *,
    specs: Sequence[InputSpec] = (),
    name: str | None = None,
    loss: Any = None,
    optimizer: Any = None,
    train_step: Any = None,
    mode: Mode = "inference",
    notes: Sequence[str] = (),
) -> LoadedModel:
    """Return the model ready to be traced; `specs` take precedence over `example_inputs`.

    Wrappers as of DDP are left out. A LightningModule trains by its own step, unless `train_step` is given. Its
    `example_input_array` is the input of its forward, and of its step if there are no `example_inputs`.

    `optimizer` is a function of the parameters, or an optimizer whose kind, settings and parameters are taken over. A
    file may use these names for something else, so objects that cannot be called as needed are ignored with a note.
    Raise `LoadError` if there are no inputs, and in training for a function with other parameters than it is called
    with.
    """
    if not isinstance(model, nn.Module):
        found = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise LoadError(f"the model is {found}, not a torch.nn.Module", hint="pass the model itself")
    compiled = any(map(is_compiled, model.modules()))
    model = unwrapped(model)
    if is_lightning_class(type(model)):
        getattr(model, "configure_model", lambda: None)()
        train_step = train_step or lightning_train_step
        own = getattr(model, "example_input_array", None)
        example_inputs = own if example_inputs is None or (mode == "inference" and own is not None) else example_inputs
    plan = _plan(model, example_inputs, specs)
    if isinstance(optimizer, torch.optim.Optimizer):
        optimizer = _same_kind_of(optimizer, model)
    functions = {"loss": loss, "optimizer": optimizer, "train_step": train_step}
    used = {role: function for role, function in functions.items() if _takes(function, _ARGUMENTS[role])}
    ignored = [role for role, function in functions.items() if function is not None and role not in used]
    if mode == "training":
        _check_parameters({role: functions[role] for role in ignored}, name=name or type(model).__name__)
    left_out = [f"`{role}` is not a function of ({', '.join(_ARGUMENTS[role])}): ignored" for role in ignored]
    not_followed = [_NOT_FOLLOWED] if compiled else []
    exported = [AS_EXPORTED] if any(map(is_exported, model.modules())) else []
    return LoadedModel(
        name=name or type(model).__name__,
        model=model,
        make_inputs=plan.make,
        batch=plan.batch,
        notes=(*notes, *plan.notes, *left_out, *not_followed, *exported),
        **used,
    )


def check_given(functions: Mapping[str, Any]) -> None:
    """Raise `UsageError` for a loss, optimizer or train_step of the caller that no training step can call.

    Unlike the names in a file, they cannot be meant for something else.
    """
    for role, function in functions.items():
        is_optimizer = role == "optimizer" and isinstance(function, torch.optim.Optimizer)
        if function is not None and not is_optimizer and not _takes(function, _ARGUMENTS[role]):
            called = f"{role}({', '.join(_ARGUMENTS[role])})"
            also = " or an optimizer of torch" if role == "optimizer" else ""
            raise UsageError(
                f"{role}: {function!r:.60} cannot be called as {called}",
                hint=f"pass a function that is called as {called}{also}",
            )


def _plan(model: nn.Module, example_inputs: Any, specs: Sequence[InputSpec]) -> InputPlan:
    if specs:
        return plan_from_specs(specs)
    if example_inputs is not None:
        return plan_from_example(example_inputs, model=model)
    signature = inspect.signature(model.forward)
    raise LoadError(
        f"the inputs of {type(model).__name__}.forward{signature} are unknown: there are no `example_inputs`",
        hint=f"add `example_inputs(batch)` to the file, or pass inputs: for example {suggest_inputs(model)}, or in "
        "Python example_inputs; if it is a script that runs its model, add --run",
    )


def _takes(function: Any, arguments: tuple[str, ...]) -> bool:
    """Return True if `function` can be called with these arguments by position."""
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError:
        return False
    return True


def _check_parameters(unusable: Mapping[str, Any], *, name: str) -> None:
    """Raise `LoadError` for the first that is a function: it was written for the training step."""
    for role, function in unusable.items():
        if inspect.isroutine(function):
            called = f"{role}({', '.join(_ARGUMENTS[role])})"
            raise LoadError(
                f"{name}: {role}{inspect.signature(function)} cannot be called as {called}",
                hint=f"write `def {called}`, or rename the function if it is for something else",
            )


def _same_kind_of(optimizer: torch.optim.Optimizer, model: nn.Module) -> Callable[[Any], torch.optim.Optimizer]:
    """Return a function of the trained parameters that makes such an optimizer on those of them that it holds.

    One that holds none of them, such as one made for a copy of the model, gets all.
    """
    kind = type(optimizer)
    accepted = inspect.signature(kind).parameters
    settings = {name: value for name, value in optimizer.defaults.items() if name in accepted}
    places = {id(parameter): place for place, parameter in enumerate(trained(model))}
    groups = [
        group | {"params": [places[id(parameter)] for parameter in group["params"] if id(parameter) in places]}
        for group in optimizer.param_groups
    ]

    def made(parameters: Any) -> torch.optim.Optimizer:
        own = list(parameters)
        held = [group | {"params": [own[place] for place in group["params"]]} for group in groups if group["params"]]
        if len(held) > 1:
            return kind(held, **settings)
        return kind(held[0]["params"] if held else own, **settings)

    return made
