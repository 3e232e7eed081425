"""Reads what trainers of transformers, Accelerate and Lightning are told, and lets them run on this CPU.

Without a GPU they would refuse some of their settings or change them. The libraries need not be installed.
"""

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

from advisor.records.device import Precision
from advisor.workload.import_hooks import PatchesOf
from advisor.workload.low_bit_optimizer import low_bit_optimizer
from advisor.workload.patching import Patch
from advisor.workload.script_watch import ScriptWatch
from advisor.workload.user_error import passes_arguments_on

_PRECISIONS: Mapping[str, Precision] = {
    "fp16": "amp-fp16", "16": "amp-fp16", "16-mixed": "amp-fp16",
    "bf16": "amp-bf16", "bf16-mixed": "amp-bf16",
}  # fmt: skip
"""Autocast in the words of Accelerate and Lightning."""
_ON_ONE_CPU = {"accelerator": "cpu", "devices": 1, "num_nodes": 1, "strategy": "auto"}
"""Arguments of Lightning with which one process runs here."""


def library_patches(watch: ScriptWatch) -> dict[str, PatchesOf]:
    """Return the patches by the module that they belong to."""

    def trainer(module: ModuleType) -> Iterator[Patch]:
        owner = getattr(module, "Trainer", None) or module.Fabric
        yield owner, "__init__", _lightning_init(owner.__init__, watch)
        if hasattr(owner, "fit"):
            yield owner, "fit", _lightning_fit(owner.fit, watch)

    def accelerator(module: ModuleType) -> Iterator[Patch]:
        yield module.Accelerator, "__init__", _accelerator_init(module.Accelerator.__init__, watch)

    return {
        "transformers.training_args": _training_arguments,
        "transformers.trainer": lambda module: (*_low_bit_optimizers(module, watch), *_jobs(module, watch)),
        "accelerate.accelerator": accelerator,
        **{f"{lightning}.trainer.trainer": trainer for lightning in ("lightning.pytorch", "pytorch_lightning")},
        **{f"{lightning}.core.module": _unlogged for lightning in ("lightning.pytorch", "pytorch_lightning")},
        **{f"{fabric}.fabric": trainer for fabric in ("lightning.fabric", "lightning_fabric")},
    }


def _training_arguments(module: ModuleType) -> Iterator[Patch]:
    """Let TrainingArguments accept bf16 and tf32 without a GPU."""
    for name in ("is_torch_bf16_gpu_available", "is_torch_tf32_available"):
        if hasattr(module, name):
            yield module, name, lambda: True


def _low_bit_optimizers(module: ModuleType, watch: ScriptWatch) -> Iterator[Patch]:
    """Stand in for the optimizers of bitsandbytes and torchao, which need their packages and mostly a GPU."""
    choose = module.Trainer.get_optimizer_cls_and_kwargs

    @functools.wraps(choose)
    @passes_arguments_on
    def chosen(args: Any, model: Any = None) -> Any:
        low_bit = low_bit_optimizer(str(getattr(args.optim, "value", args.optim)), model)
        if low_bit is None:
            return choose(args, model)
        watch.note(f"{low_bit.__name__} is counted by its state and one pass over the parameters")
        return low_bit, {"lr": args.learning_rate}

    yield module.Trainer, "get_optimizer_cls_and_kwargs", staticmethod(chosen)


def _jobs(module: ModuleType, watch: ScriptWatch) -> Iterator[Patch]:
    """Note how many samples a Trainer is told to train, before its first step."""
    train = module.Trainer.train

    @functools.wraps(train)
    @passes_arguments_on
    def noted(trainer: Any, *args: Any, **settings: Any) -> Any:
        told = trainer.args
        batch = told.train_batch_size * told.gradient_accumulation_steps
        _note_job(watch, trainer.train_dataset, epochs=told.num_train_epochs, steps=told.max_steps, batch=batch)
        return train(trainer, *args, **settings)

    yield module.Trainer, "train", noted


def _note_job(watch: ScriptWatch, data: Any, *, epochs: float, steps: int, batch: int) -> None:
    """Note so many epochs of a data set that knows its length, or `steps` of `batch` samples if they are positive."""
    if steps > 0:
        watch.note_job(steps * batch, f"{steps:,} steps of {batch:,} in each process")
    elif epochs > 0 and hasattr(data, "__len__"):
        watch.note_job(math.ceil(len(data) * epochs), f"{epochs:g} epochs of {len(data):,}")


def _accelerator_init(init: Callable[..., None], watch: ScriptWatch) -> Callable[..., None]:
    @functools.wraps(init)
    @passes_arguments_on
    def noted(accelerator: Any, *args: Any, **settings: Any) -> None:
        init(accelerator, *args, **settings)
        if precision := _PRECISIONS.get(accelerator.mixed_precision):
            watch.note_gpu_precision(precision)

    return noted


def _lightning_init(init: Callable[..., None], watch: ScriptWatch) -> Callable[..., None]:
    @functools.wraps(init)
    @passes_arguments_on
    def noted(trainer: Any, *args: Any, **settings: Any) -> None:
        if precision := _PRECISIONS.get(str(settings.get("precision"))):
            watch.note_gpu_precision(precision)
        devices, node_count = settings.get("devices", 1), settings.get("num_nodes", 1)
        per_node = len(devices) if isinstance(devices, list) else int(devices) if str(devices).isdigit() else 1
        watch.note_processes(per_node * node_count)
        init(trainer, *args, **{**settings, **_ON_ONE_CPU})

    return noted


def _lightning_fit(fit: Callable[..., None], watch: ScriptWatch) -> Callable[..., None]:
    @functools.wraps(fit)
    @passes_arguments_on
    def noted(trainer: Any, model: Any, train_dataloaders: Any = None, *args: Any, **settings: Any) -> None:
        batch = (getattr(train_dataloaders, "batch_size", None) or 0) * trainer.accumulate_grad_batches
        steps = trainer.max_steps if batch else 0
        data = getattr(train_dataloaders, "dataset", None)
        _note_job(watch, data, epochs=trainer.max_epochs or 0, steps=steps, batch=batch)
        fit(trainer, model, train_dataloaders, *args, **settings)

    return noted


def _unlogged(module: ModuleType) -> Iterator[Patch]:
    """Log nothing: metrics are kept in real tensors, and what they cost is nothing beside a step."""
    for name in ("log", "log_dict"):
        yield module.LightningModule, name, lambda *_, **__: None
