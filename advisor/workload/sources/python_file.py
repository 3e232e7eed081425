"""Loads `FILE.py[::NAME]`: imports the file, finds the model and builds it, without weights if its code allows."""

import functools
import inspect
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import nn

from advisor.errors import LoadError
from advisor.files.regular_file import read_regular_file
from advisor.records.workload import Attention, Mode
from advisor.workload.factory import FACTORIES, Arguments, split_call
from advisor.workload.input_spec import InputSpec
from advisor.workload.lightning_module import is_lightning_class
from advisor.workload.loaded import LoadedModel
from advisor.workload.patching import patched, switched
from advisor.workload.sources.installed import declare_operators_on_import
from advisor.workload.sources.live import load_live
from advisor.workload.user_error import place_now

SOURCE = {
    "usage": "FILE.py[::NAME]",
    "suffix": ".py",
    "is_path": True,
}


def load(reference: str, *, mode: Mode, specs: Sequence[InputSpec], attention: Attention = "auto") -> LoadedModel:
    """Load a model from a Python file; `specs` take precedence over the file's `example_inputs`.

    Arguments of NAME that `example_inputs` accepts too are passed to both.
    """
    path, _, call = reference.partition("::")
    name, arguments = split_call(call)
    module = import_file(Path(path))
    found = _named(module, name, path) if name else _only(module, path)
    example_inputs = getattr(module, "example_inputs", None)
    if arguments:
        found = _with_arguments(found, arguments, path)
        example_inputs = _with_accepted_arguments(example_inputs, arguments)
    return load_live(
        build(found, path),
        example_inputs,
        specs=specs,
        name=call or Path(path).stem,
        loss=getattr(module, "loss", None),
        optimizer=getattr(module, "optimizer", None),
        train_step=getattr(module, "train_step", None),
        mode=mode,
    )


def import_file(path: Path, *, name: str | None = None) -> types.ModuleType:
    """Run the file as a module called `name` (default: the file's name), without writing bytecode.

    Raises `LoadError` at a backward pass unless the name is "__main__": a file that trains while it is loaded is a
    script.
    """
    try:
        code = compile(read_regular_file(path), str(path), "exec")
    except (OSError, ValueError) as error:  # not readable, or not Python source
        raise LoadError(f"{path}: {error}", hint="name a Python file") from error
    if name is None:
        name = path.stem if path.stem not in sys.modules else f"_advised_{path.stem}"
    declare_operators_on_import()
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module  # dataclasses and pickle look modules up by name
    with patched([] if name == "__main__" else [(torch.autograd, "backward", _refuse_training)]):
        exec(code, module.__dict__)  # noqa: S102 - running the file is the purpose, and the help says so
    return module


def _refuse_training(*_: Any, **__: Any) -> None:
    raise LoadError(
        f"{place_now()} trains while the file is loaded",
        hint='run the file as a script with --run, or train under `if __name__ == "__main__":`',
    )


_BUILD: ContextVar[Callable[[Callable[[], Any]], Any] | None] = ContextVar("build", default=None)
"""Calls a factory instead of `build_without_weights`."""


def with_weights() -> AbstractContextManager[None]:
    """Build models inside with the weights that their code makes, so that they can run."""
    return switched(_BUILD.get, _BUILD.set, lambda factory: factory())


def with_fakes(mode: Callable[[], AbstractContextManager[Any]]) -> AbstractContextManager[None]:
    """Let `build_without_weights` make fake tensors inside, of the mode that `mode` returns."""

    def build_fake(factory: Callable[[], Any]) -> Any:
        with mode():
            return factory()

    return switched(_BUILD.get, _BUILD.set, build_fake)


def build(found: Any, path: str) -> nn.Module:
    """Return the model of `found` (a module, a class or a factory), without weights if its code allows."""
    if isinstance(found, nn.Module):
        return found
    required = [parameter.name for parameter in _parameters(found) if _is_required(parameter)]
    if required:
        raise LoadError(
            f"{path}: {_call_text(found)} requires {', '.join(required)}",
            hint=f"add this to {path} and fill in the dots:\n{_get_model_text(found)}",
        )
    model = build_without_weights(found)
    if not isinstance(model, nn.Module):
        raise LoadError(
            f"{path}: {_call_text(found)} returned {type(model).__name__}, not a torch.nn.Module",
            hint="return the model itself",
        )
    return model


def build_without_weights(factory: Callable[[], Any]) -> Any:
    """Return the factory's result, without weights if its code allows; inside `with_weights` with them."""
    if (build_otherwise := _BUILD.get()) is not None:
        return build_otherwise(factory)
    model = build_on_meta(factory)
    return factory() if model is None else model


def build_on_meta(factory: Callable[[], Any]) -> Any:
    """Return the factory's result under the meta device, or None if its code needs real tensors."""
    with torch.device("meta"), warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*meta")
        try:
            model = factory()
        except Exception:  # noqa: BLE001 - the user's code; if it also fails without the meta device, that is reported
            return None
    return None if isinstance(model, nn.Module) and _holds_loose_meta_tensors(model) else model


def _holds_loose_meta_tensors(model: nn.Module) -> bool:
    """Return True if a module keeps a meta tensor outside its parameters and buffers; tracing would not replace it."""
    registered = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return any(
        tensor.is_meta and id(tensor) not in registered
        for module in model.modules()
        for value in vars(module).values()
        for tensor in _tensors(value)
    )


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, dict):
        value = list(value.values())
    values = value if isinstance(value, (list, tuple)) else [value]
    return [item for item in values if isinstance(item, torch.Tensor)]


def _with_arguments(found: Any, arguments: Arguments, path: str) -> Callable[[], Any]:
    """Return a factory or class with some of its arguments set."""
    if isinstance(found, nn.Module):
        raise LoadError(f"{path}: arguments were given, but this is already a model", hint="name a class or a factory")
    parameters = {parameter.name: parameter for parameter in _parameters(found)}
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = [name for name in arguments if name not in parameters and not takes_any]
    if unknown:
        raise LoadError(
            f"{path}: {_call_text(found)} has no parameter {unknown[0]}", hint="use the parameters of its signature"
        )
    return functools.partial(found, **arguments)


def _with_accepted_arguments(example_inputs: Any, arguments: Arguments) -> Any:
    if not callable(example_inputs) or isinstance(example_inputs, torch.Tensor):
        return example_inputs
    names = {parameter.name for parameter in _parameters(example_inputs)[1:]}  # the first is the batch
    taken = {name: value for name, value in arguments.items() if name in names}
    return functools.partial(example_inputs, **taken) if taken else example_inputs


def _named(module: types.ModuleType, name: str, path: str) -> Any:
    found = getattr(module, name, None)
    if isinstance(found, nn.Module) or callable(found):
        return found
    choices = [*_instances(module), *_factories(module), *(kind.__name__ for kind in _classes(module))]
    if inspect.isfunction(getattr(module, "model", None)):
        choices.append("model")
    close = get_close_matches(name, choices, n=1)
    hint = f"did you mean {path}::{close[0]}?" if close else f"the file has {', '.join(choices) or 'no model'}"
    problem = f"has no {name}" if found is None else f"{name} is {type(found).__name__}, not a model"
    raise LoadError(f"{path}: {problem}", hint=hint)


def _only(module: types.ModuleType, path: str) -> Any:
    """Return `model`, or the only factory, LightningModule or class that needs no arguments."""
    model = getattr(module, "model", None)
    if isinstance(model, nn.Module) or callable(model):
        return model
    classes = _classes(module)
    ready = [kind for kind in classes if not any(map(_is_required, _parameters(kind)))]
    learners = [kind for kind in ready if is_lightning_class(kind)]  # beside the networks that they train
    found = _factories(module) or [kind.__name__ for kind in (learners if len(learners) == 1 else ready)]
    if len(found) == 1:
        return getattr(module, found[0])
    if found:
        raise LoadError(
            f"{path} has several models: {', '.join(found)}", hint=f"choose one, for example {path}::{found[-1]}"
        )
    instances = _instances(module)
    if instances:
        raise LoadError(
            f"{path} has no `model`, but it has {', '.join(instances)}",
            hint=f"choose one, for example {path}::{instances[-1]}",
        )
    if classes:
        listed = "\n".join(f"  {_call_text(kind)}" for kind in classes)
        raise LoadError(
            f"{path}: every class requires arguments:\n{listed}",
            hint=f"add this to {path} and fill in the dots:\n{_get_model_text(classes[-1])}",
        )
    raise LoadError(
        f"{path} has no model: neither `model`, `get_model` nor a torch.nn.Module class",
        hint="add `def get_model(): return ...`, or use --run if it is a script",
    )


def _instances(module: types.ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if isinstance(value, nn.Module)]


def _factories(module: types.ModuleType) -> list[str]:
    return [name for name in FACTORIES if callable(getattr(module, name, None))]


def _classes(module: types.ModuleType) -> list[type[nn.Module]]:
    """Return the module classes defined in the file, in order, each once; imported classes are left out."""
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, nn.Module) and value.__module__ == module.__name__
    ]
    return list(dict.fromkeys(found))  # a class may have a second name


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _is_required(parameter: inspect.Parameter) -> bool:
    open_ended = parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return parameter.default is inspect.Parameter.empty and not open_ended


def _call_text(function: Callable[..., Any]) -> str:
    name = _name_of(function)
    signature = inspect.signature(function)
    return f"{name}{signature.replace(return_annotation=inspect.Signature.empty)}"


def _name_of(function: Callable[..., Any]) -> str:
    """Return the function's name, also if some of its arguments are set."""
    return getattr(getattr(function, "func", function), "__name__", type(function).__name__)


def _get_model_text(function: Callable[..., Any]) -> str:
    """Return the text of a `get_model()` that calls `function` with its required arguments."""
    name = _name_of(function)
    arguments = [
        "..." if parameter.kind is inspect.Parameter.POSITIONAL_ONLY else f"{parameter.name}=..."
        for parameter in _parameters(function)
        if _is_required(parameter)
    ]
    return f"def get_model():\n    return {name}({', '.join(arguments)})"
