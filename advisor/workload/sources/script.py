"""Runs an ordinary script (`SCRIPT.py --run -- ARGS`) as `__main__` until its first step is captured."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from advisor.errors import LoadError
from advisor.workload.sources.python_file import import_file

FirstForward = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]


class StepCaptured(BaseException):
    """Ends the script once the step is captured. Not an `Exception`, so that the script's handlers do not catch it."""


def run_script(
    path: Path, argv: Sequence[str], *, on_first_forward: FirstForward, with_gradients: bool = False
) -> None:
    """Run `path` as `__main__` with `argv`; call `on_first_forward(module, args, kwargs)` before its first model call.

    The model is the first called module that has parameters, so a criterion or an augmentation before it is skipped,
    and so is a call under `no_grad` if `with_gradients` is set. Returns when `StepCaptured` is raised, or when the
    script exits after calling its model. Raise `LoadError` if it ends without calling a model; other exceptions of the
    script pass through.
    """
    call = nn.Module.__call__
    called = False

    def watched_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal called
        is_step = torch.is_grad_enabled() or not with_gradients
        if not called and is_step and next(module.parameters(), None) is not None:
            called = True
            nn.Module.__call__ = call  # type: ignore[method-assign]
            on_first_forward(module, args, kwargs)
        return call(module, *args, **kwargs)

    sys.argv = [str(path), *argv]
    nn.Module.__call__ = watched_call  # type: ignore[method-assign]
    try:
        import_file(path, name="__main__")
    except StepCaptured:
        return
    except SystemExit as end:
        if not called and end.code not in (None, 0):
            raise
    finally:
        nn.Module.__call__ = call  # type: ignore[method-assign]
    if not called:
        raise LoadError(
            f"{path} ended without calling a model",
            hint="pass the script's training arguments after `--`, or name the model: FILE.py::NAME",
        )
