"""`SCRIPT.py --run -- ARGS`: run an ordinary script as `__main__` until its first step is captured."""

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
    """Ends the script: the step is known. Not an `Exception`, so that the script's own handlers let it pass."""


def run_script(
    path: Path, argv: Sequence[str], *, on_first_forward: FirstForward, with_gradients: bool = False
) -> None:
    """Run `path` as `__main__` with `argv`; call `on_first_forward(module, args, kwargs)` before its first model call.

    The first model is the first called module that has parameters: a criterion or an augmentation before it is passed
    over, and `with_gradients` a call under `no_grad`. Returns when the script raises `StepCaptured` or, its model
    called, ends in any other way. Raise `LoadError`
    if it ends without calling a model; what the script raises before that passes through.
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
            hint="pass the arguments with which it trains after `--`, or name the model: FILE.py::NAME",
        )
