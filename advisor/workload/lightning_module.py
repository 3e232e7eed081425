"""Trains a LightningModule by its own `training_step` and `configure_optimizers`, without Lightning's Trainer."""

import inspect
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from advisor.errors import TraceError

_STEPS = 1000
_TRAINER: Mapping[str, Any] = {
    "max_epochs": 1, "max_steps": _STEPS, "estimated_stepping_batches": _STEPS, "num_training_batches": _STEPS,
    "accumulate_grad_batches": 1, "world_size": 1, "num_devices": 1, "num_nodes": 1,
    "global_rank": 0, "local_rank": 0, "is_global_zero": True, "global_step": 0, "current_epoch": 0,
    "training": True, "sanity_checking": False, "logger": None, "loggers": [],
}  # fmt: skip
"""Attributes of the Trainer that a module may read. Numbers of steps set the learning rate, not the work of a step."""
_OPTIMIZERS = "_advisor_optimizers"


def is_lightning_class(kind: type) -> bool:
    """Return True for a LightningModule of either package, which need not be imported."""
    return any(base.__name__ == "LightningModule" for base in kind.__mro__)


def lightning_train_step(model: Any, batch: Any) -> None:
    """Run `training_step` on the batch, backward and the optimizers, as Lightning's Trainer does for a batch.

    The optimizers are made in the first step. Raises `TraceError` if `training_step` returns no loss, unless the module
    optimizes itself, or if `configure_optimizers` returns no optimizer.
    """
    if _OPTIMIZERS not in vars(model):
        _attach(model)
    optimizers = getattr(model, _OPTIMIZERS)
    takes_index = len(inspect.signature(model.training_step).parameters) > 1
    output = model.training_step(batch, 0) if takes_index else model.training_step(batch)
    if not getattr(model, "automatic_optimization", True):
        return
    loss = output.get("loss") if isinstance(output, Mapping) else output
    if not isinstance(loss, torch.Tensor) or not optimizers:
        what = "training_step returned no loss" if optimizers else "configure_optimizers returned no optimizer"
        raise TraceError(f"{type(model).__name__}: {what}", hint="Lightning would not train it either; return one")
    for optimizer in optimizers:
        optimizer.zero_grad()
    loss.backward()
    for optimizer in optimizers:
        optimizer.step()


def _attach(model: Any) -> None:
    """Give the module what its Trainer would: optimizers, and a log that keeps nothing."""
    model.trainer = SimpleNamespace(**_TRAINER)
    made = list(_parts(model.configure_optimizers()))
    optimizers = [part for part in made if isinstance(part, Optimizer)]
    schedulers = [part for part in made if isinstance(part, LRScheduler)]
    setattr(model, _OPTIMIZERS, optimizers)
    model.optimizers = lambda use_pl_optimizer=True: _one_or_all(optimizers)
    model.lr_schedulers = lambda: _one_or_all(schedulers) or None
    model.manual_backward = lambda loss, *args, **named: loss.backward(*args, **named)
    for name in ("log", "log_dict", "clip_gradients", "toggle_optimizer", "untoggle_optimizer"):
        setattr(model, name, lambda *_, **__: None)


def _parts(made: Any) -> Iterator[Any]:
    """Yield the optimizers and schedulers in what `configure_optimizers` returned: one, lists of them, or dicts."""
    if isinstance(made, Mapping):
        made = list(made.values())
    if isinstance(made, (list, tuple)):
        for part in made:
            yield from _parts(part)
    else:
        yield made


def _one_or_all(values: list[Any]) -> Any:
    return values[0] if len(values) == 1 else values
