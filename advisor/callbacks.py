"""Callbacks for transformers' Trainer and for Lightning that say what a training run costs, here and elsewhere.

Both frameworks call the methods of a callback by name, so neither is imported.
"""

import math
from typing import Any

from advisor.answers.run_cost import RunCost


class _Callback(RunCost):
    """A callback that ignores the events it has no method for."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("on_") or name in ("setup", "teardown"):
            return lambda *args, **kwargs: None
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


class TrainerCallback(_Callback):
    """A callback of transformers' Trainer: `Trainer(..., callbacks=[advisor.TrainerCallback(instance="g5.xlarge")])`.

    The Trainer's logs get `advisor/usd_spent` and the other figures. It takes what `RunCost` takes.
    """

    def on_train_begin(self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any) -> None:
        """Start the clock."""
        compiled = "torch_compile=True compiles hooks on the model too, so its steps cannot be observed"
        self.begin(
            [model],
            step=state.global_step,
            step_count=state.max_steps,
            process_count=args.world_size,
            worker_count=args.dataloader_num_workers,
            is_main=state.is_world_process_zero,
            not_observed=compiled if args.torch_compile else "",
        )

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Count the step."""
        self.step_ended(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, *, logs: dict[str, Any], **kwargs: Any) -> None:
        """Add the figures to what is logged: for the callbacks after this one, and in the Trainer's history."""
        figures = self.figures()
        logs |= figures
        if state.log_history:
            state.log_history[-1] |= figures

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Stop the clock."""
        self.end()


class LightningCallback(_Callback):
    """A callback of Lightning's Trainer: `Trainer(..., callbacks=[advisor.LightningCallback(usd_per_hour=1.2)])`.

    Every logger gets `advisor/usd_spent` and the other figures. It takes what `RunCost` takes.
    """

    state_key = _legacy_state_key = "advisor"

    def state_dict(self) -> dict[str, Any]:
        """Return nothing: a checkpoint holds no costs."""
        return {}

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Start the clock."""
        last = trainer.estimated_stepping_batches
        compiled = "the module is compiled, and hooks on it would be too, so its steps cannot be observed"
        self.begin(
            [pl_module, *pl_module.children()],
            step=trainer.global_step,
            step_count=int(last) if math.isfinite(last) else None,
            process_count=trainer.world_size,
            worker_count=getattr(trainer.train_dataloader, "num_workers", None),
            is_main=trainer.is_global_zero,
            not_observed=compiled if getattr(pl_module, "_compiler_ctx", None) else "",
        )

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the step, if the batch ended one, and log the figures as often as Lightning logs its own."""
        step = trainer.global_step
        if step == self.step:
            return  # gradients are accumulated over further batches
        self.step_ended(step)
        if step % trainer.log_every_n_steps == 0:
            for logger in trainer.loggers:
                logger.log_metrics(self.figures(), step=step)

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:
        """Stop the clock."""
        self.end()

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        """Stop the clock."""
        self.end()
