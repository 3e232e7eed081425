"""Finds the objects that training functions use besides the model: other networks, optimizers, schedulers, scalers."""

from collections.abc import Iterable, Iterator
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

_KINDS = (nn.Module, Optimizer, LRScheduler, torch.amp.GradScaler)
_LIBRARIES = ("torch", "builtins", "numpy", "transformers", "timm", "torchvision")
_LONGEST = 1000
"""Longer collections are taken to be data and are not searched."""


def companions_of(model: nn.Module, roots: Iterable[Any]) -> list[Any]:
    """Return the objects that `roots` (mostly functions) can reach and a step may change, without parts of the model.

    Follows the globals that a function names, its closure and defaults, the object it is bound to, and the attributes
    of objects of the user's own classes.
    """
    known = {id(module) for module in model.modules()}
    seen: set[int] = set()
    waiting, found = list(roots), []
    while waiting:
        value = waiting.pop()
        if id(value) in seen or id(value) in known:
            continue
        seen.add(id(value))
        if isinstance(value, _KINDS):
            found.append(value)
        else:
            waiting.extend(_reached_from(value))
    inside = {id(part) for module in found if isinstance(module, nn.Module) for part in list(module.modules())[1:]}
    return [value for value in found if id(value) not in inside]


def _reached_from(value: Any) -> Iterator[Any]:
    if isinstance(value, FunctionType):
        yield from (value.__globals__[name] for name in _names(value.__code__) & value.__globals__.keys())
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # the name is not bound yet
                continue
        yield from value.__defaults__ or ()
        yield from (value.__kwdefaults__ or {}).values()
    elif isinstance(value, MethodType):
        yield value.__func__
        yield value.__self__
    elif isinstance(value, dict):
        yield from value.values() if len(value) <= _LONGEST else ()
    elif isinstance(value, (list, tuple, set)):
        yield from value if len(value) <= _LONGEST else ()
    elif not isinstance(value, type) and type(value).__module__.partition(".")[0] not in _LIBRARIES:
        yield from getattr(value, "__dict__", {}).values()


def _names(code: CodeType) -> set[str]:
    """Return the names that a function and its inner functions look up."""
    inner = [_names(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return set(code.co_names).union(*inner)
