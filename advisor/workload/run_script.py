"""Runs a script as `__main__` and reports its first call of a model."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from advisor.errors import LoadError, TraceError
from advisor.workload.sources.python_file import import_file
from advisor.workload.user_error import causes_of

OnCall = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]


class StepCaptured(BaseException):
    """Ends the script once the step is captured. Not an `Exception`, so that the script's handlers do not catch it."""


class NoTrainingStepError(TraceError):
    """The script ended before an optimizer's step."""


def _is_parametrization() -> bool:
    """Return whether torch.nn.utils.parametrize has made the call, as `spectral_norm` does when it is applied."""
    return sys._getframe(2).f_globals.get("__name__") == parametrize.__name__


def run_script(
    path: Path,
    argv: Sequence[str],
    *,
    on_first_forward: OnCall,
    on_skipped: OnCall | None = None,
    skipped_count: int = 0,
) -> None:
    """Run `path` as `__main__` with `argv`; call `on_first_forward(module, args, kwargs)` before its first model call.

    The model is the first called module that has parameters, so a loss or an augmentation before it is skipped. The
    parametrization of a weight is skipped too. With `on_skipped`, so is a call without gradients, after calling
    `on_skipped(module, args, kwargs)`. With `skipped_count`, all calls are skipped until the first model has been
    called that often.

    Returns when `StepCaptured` is raised, whatever the script's handlers raise then, or when the script exits after
    calling its model. Raise `LoadError` if it ends without calling a model, and `NoTrainingStepError` if it calls it
    without gradients only. Other exceptions of the script pass through.
    """
    call = nn.Module.__call__
    called = is_skipped = False
    tried: nn.Module | None = None

    def watched_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal called, is_skipped, skipped_count, tried
        if called or next(module.parameters(), None) is None or _is_parametrization():
            return call(module, *args, **kwargs)
        is_skipped = on_skipped is not None and not torch.is_grad_enabled()
        nn.Module.__call__ = call  # type: ignore[method-assign]
        if on_skipped is not None and is_skipped:
            on_skipped(module, args, kwargs)
        elif skipped_count:
            tried = tried or module
            skipped_count -= module is tried
        else:
            called = True
            on_first_forward(module, args, kwargs)
        try:
            return call(module, *args, **kwargs)
        finally:
            if not called:
                nn.Module.__call__ = watched_call  # type: ignore[method-assign]

    sys.argv = [str(path), *argv]
    nn.Module.__call__ = watched_call  # type: ignore[method-assign]
    try:
        import_file(path, name="__main__")
    except BaseException as end:
        if any(isinstance(error, StepCaptured) for error in causes_of(end)):
            return  # a trainer's own clean-up may fail on the tensors of the trace
        if not isinstance(end, SystemExit) or not (called or end.code in (None, 0)):
            raise
    finally:
        nn.Module.__call__ = call  # type: ignore[method-assign]
    if not called and is_skipped:
        raise NoTrainingStepError(
            f"{path} ended before an optimizer's step: it calls its model without gradients only",
            hint="use --mode inference, or pass arguments with which the script trains",
        )
    if not called:
        raise LoadError(
            f"{path} ended without calling a model",
            hint="pass the script's training arguments after `--`, or name the model: FILE.py::NAME",
        )
