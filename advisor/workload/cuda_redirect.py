"""Redirects requests for CUDA and other accelerators to the CPU, so that models for GPUs run without one.

These stay unchanged, because they already do the right thing without a GPU: `torch.cuda.is_available()` and
`device_count()` return False and 0, so most code then chooses the CPU itself; autocast for CUDA and GradScaler are off,
so the trace is in the model's own precision, which `--precision` then changes.
"""

import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from advisor.workload.loaded import COMPILED
from advisor.workload.patching import Patch, caller, patched
from advisor.workload.user_error import passes_arguments_on

_CPU = torch.device("cpu")
_ACCELERATORS = ("cuda", "mps", "xpu", "hip")
_NAMED = re.compile(rf"(?:{'|'.join(_ACCELERATORS)})(?::\d+)?")


@contextmanager
def cuda_redirected(*, in_all_threads: bool = True) -> Iterator[None]:
    """Send every device request to the CPU, and make `torch.compile` and `torch.jit` return the model unchanged.

    `torch.compile` gives the modules that it would compile the attribute `COMPILED`.
    With `in_all_threads` the redirection holds for all threads, for a process that exists only for the trace.
    """
    with warnings.catch_warnings(), patched(_patches(), in_all_threads=in_all_threads), _RedirectMode():
        warnings.filterwarnings("ignore", message=".*CUDA is not available")
        warnings.filterwarnings("ignore", message=".*no accelerator is found")
        yield


class _RedirectMode(TorchFunctionMode):
    """Rewrites the device arguments of every torch function and tensor method."""

    @passes_arguments_on
    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in _NO_OPS:
            return args[0]
        # Constructing a device requests nothing: autocast for CUDA must stay off, not become autocast for the CPU.
        if func is torch.device:
            return func(*args, **kwargs)
        if func is torch.Tensor.to:
            args = tuple(map(_device_or_index, args))
        elif kwargs or len(args) > 1:
            args = tuple(map(_device, args))
        if kwargs:
            kwargs = {
                name: _device_or_index(value) if name == "device" else _device(value) for name, value in kwargs.items()
            }
        return func(*args, **kwargs)


_NO_OPS = {torch.Tensor.cuda, torch.Tensor.pin_memory}


def _device(value: Any) -> Any:
    """Return the CPU for an accelerator, and any other value unchanged."""
    if isinstance(value, torch.device) and value.type in _ACCELERATORS:
        return _CPU
    if isinstance(value, str) and _NAMED.fullmatch(value):
        return _CPU
    return value


def _device_or_index(value: Any) -> Any:
    """Return `_device(value)`, taking an integer as a GPU index."""
    return _CPU if type(value) is int else _device(value)


class _Idle:
    """Replaces a CUDA stream or event; its work counts as finished at once."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def query(self) -> bool:
        return True

    def elapsed_time(self, _: Any) -> float:
        return 1.0  # milliseconds; not 0, because scripts divide by it

    def _nothing(self, *_: Any, **__: Any) -> None:
        pass

    record = wait = synchronize = wait_stream = wait_event = record_event = _nothing


def _nothing() -> Callable[..., None]:
    return lambda *_, **__: None


def _identity() -> Callable[..., Any]:
    """Return an identity that works as `torch.compile(model)` and as `@torch.compile(...)`."""
    return lambda model=None, *_, **__: (lambda function: function) if model is None else model


def _marking(compile_it: Callable[..., Any]) -> Callable[..., Any]:
    """Return `compile_it`, which compiles nothing, in a function that also marks the module."""

    def marking(model: Any = None, *args: Any, **kwargs: Any) -> Any:
        if isinstance(model, nn.Module):
            setattr(model, COMPILED, True)
        return compile_it(model, *args, **kwargs)

    return marking


def _script(script: Callable[..., Any]) -> Callable[..., Any]:
    """Return a `torch.jit.script` that leaves the user's code as it is; torch compiles its own derivative formulas."""
    unchanged = _identity()

    def redirected(*args: Any, **kwargs: Any) -> Any:
        is_of_torch = caller(skipping=(__file__,)).startswith(os.path.dirname(torch.__file__))
        return (script if is_of_torch else unchanged)(*args, **kwargs)

    return redirected


def _patches() -> Iterator[Patch]:
    """Yield (owner, name, replacement) for functions that do not pass through `__torch_function__`.

    Each replacement is a separate object, because torch._dynamo requires distinct ones if it is imported meanwhile.
    """
    for name in ("init", "set_device", "synchronize", "ipc_collect", "reset_peak_memory_stats"):
        yield torch.cuda, name, _nothing()
    yield torch.cuda, "current_device", lambda: 0
    for name in ("Stream", "Event", "stream", "current_stream", "default_stream", "device"):
        yield torch.cuda, name, type(name, (_Idle,), {})
    for name in ("range_push", "range_pop", "mark"):
        yield torch.cuda.nvtx, name, _nothing()
    yield torch.cuda.nvtx, "range", type("range", (_Idle,), {})

    load, set_default_device = torch.load, torch.set_default_device
    yield nn.Module, "to", _module_to(nn.Module.to)
    yield nn.Module, "_apply", _apply_to_fakes(nn.Module._apply)
    yield nn.Module, "cuda", lambda module, device=None: module
    yield nn.Module, "compile", _marking(_nothing())
    yield torch, "compile", _marking(_identity())
    yield torch.jit, "script", _script(torch.jit.script)
    yield torch.jit, "trace", _identity()
    yield torch, "load", lambda file, map_location=None, **kwargs: load(file, map_location="cpu", **kwargs)
    yield torch, "set_default_device", lambda device: set_default_device(_device_or_index(device))


def _module_to(to: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return a redirected `Module.to`, which parses its device before it calls any tensor method."""

    def redirected(module: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
        return to(module, *map(_device_or_index, args), **{name: _device_or_index(kwargs[name]) for name in kwargs})

    return redirected


def _apply_to_fakes(apply: Callable[..., nn.Module]) -> Callable[..., nn.Module]:
    """Return a `Module._apply` that sets the data of fake parameters; torch would swap them, which fails."""

    @passes_arguments_on
    def applied(module: nn.Module, function: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> nn.Module:
        parameters = [parameter for parameter in module._parameters.values() if parameter is not None]
        if not any(hasattr(parameter, "fake_mode") for parameter in parameters):
            return apply(module, function, recurse)
        for child in module.children() if recurse else ():
            child._apply(function)
        for parameter in parameters:
            changed = function(parameter.detach())
            if changed.dtype is not parameter.dtype:
                parameter.data = changed
        for name, buffer in module._buffers.items():
            module._buffers[name] = buffer if buffer is None else function(buffer)
        return module

    return applied
