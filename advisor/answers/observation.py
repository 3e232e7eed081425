"""Recommends from the steps that a model took in the user's own loop."""

import inspect
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from advisor import units
from advisor.answers.ranking import rank
from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.step_process import MeasureRequest
from advisor.errors import UsageError
from advisor.question.from_model import question_from_model
from advisor.question.option_values import options_of
from advisor.question.served_model import asks_for_tokens
from advisor.records.answer import Recommendation
from advisor.records.displayed import Displayed
from advisor.records.machine import Machine
from advisor.records.timing import StepTiming
from advisor.report.content import Block, Paragraph

if TYPE_CHECKING:
    from torch import nn

    from advisor.calibrate.observer import Observer, Run
    from advisor.workload.loaded import Inputs

_NO_WAIT_RATIO = 0.05
"""A shorter wait, relative to the step, may be the code between two steps; it says nothing about the workers. Chosen,
not measured."""


class Observed(Displayed):
    """The steps that `observe` saw; use it after the `with`."""

    def __init__(self, observer: "Observer", *, worker_count: int | None) -> None:
        self._observer = observer
        self._worker_count = worker_count

    def _content(self) -> Iterator[Block]:
        try:
            timing = self.timing
        except UsageError as error:
            yield Paragraph(title=f"nothing to recommend from: {error.message}; {error.hint}")
            return
        wait_s, step = timing.loader_wait_s, units.format_interval_s(timing.step_s, timing.low_s, timing.high_s)
        waits = f", {units.format_duration(wait_s)} of waiting for data before each" if wait_s else ""
        title = f"{timing.step_count:,} steps of batch {timing.batch:,}: {step} each{waits}; recommend() rests on them"
        yield Paragraph(title=title)

    @property
    def timing(self) -> StepTiming:
        """Return the time of the steps and of the waits between them; raise `UsageError` if too few were seen."""
        return self._observer.timing()

    @property
    def loader_s_per_sample(self) -> float | None:
        """Return the seconds that one vCPU needs to load a sample; None if no loader is known or nothing waited for it.

        If the device waits, all workers are busy all the time, and together load one batch per step and wait. Without
        workers, the loop itself loads the batch during the wait.
        """
        timing = self.timing
        if self._worker_count is None or not timing.loader_wait_s:
            return None
        if self._worker_count == 0:
            return timing.loader_wait_s / timing.batch
        if timing.loader_wait_s < _NO_WAIT_RATIO * timing.step_s:
            return None
        return (timing.step_s + timing.loader_wait_s) * self._worker_count / timing.batch

    def recommend(
        self, *, loss: Any = None, train_step: Any = None, real_step: bool = True, **flags: Any
    ) -> Recommendation:
        """Return what `advisor.recommend` does, based on the steps that were timed.

        Model, inputs, optimizer, mode, layout and `compile` are those of the loop, and so are precision and batch if
        `flags` name no others. `loss` and `train_step` tell how the loss is computed, if it is not the mean of the
        outputs; they and `flags` are as `recommend` takes them. Without `real_step`, a model that fails on fake tensors
        is not run on real ones either. Raises `AdvisorError`, for example after too few steps, and what the model's own
        code raises.
        """
        observer, timing = self._observer, self.timing
        run = observer.run
        if run is None:
            raise UsageError("the model was not called", hint="call it inside the `with`")
        seen = {"mode": observer.mode, "precision": run.precision, "layout": run.layout, "compile": run.compile}
        options = options_of({**seen, "loader_s_per_sample": self.loader_s_per_sample, **flags}, function="recommend")
        for name in ("mode", "layout", "compile"):  # a prediction is corrected by steps that were timed like it
            if getattr(options, name) != seen[name]:
                raise UsageError(
                    f"{name}: the steps of a loop in {seen[name]} were timed, not in {getattr(options, name)}",
                    hint="advisor.recommend takes it, without the timed steps",
                )
        if asks_for_tokens(options):
            raise UsageError(
                "prompt_tokens: the steps of a loop were timed, not those of a served language model",
                hint="advisor.recommend takes it",
            )
        model = getattr(observer.model, "_orig_mod", observer.model)  # torch.compile wraps the model
        question = question_from_model(
            model,
            _example_inputs(model, run.inputs),
            options,
            loss=loss,
            optimizer=observer.optimizer,
            train_step=train_step,
            real_step=real_step,
        )
        name = question.workload.name
        request = MeasureRequest(source=name, mode=observer.mode, layout=run.layout, compile=run.compile)
        measuring = Measuring(
            request=request,
            time_it=partial(_timed, timing, run),
            precision=run.precision,
            device=_name_here(run, question.machine),
            batch=timing.batch,
        )
        return rank(replace(question, measuring=measuring))


def _timed(timing: StepTiming, run: "Run", request: MeasureRequest) -> StepTiming:
    """Return the timed steps; raise `UsageError` if they used fewer cores than the request asks for."""
    if request.thread_count is not None and run.thread_count < request.thread_count:
        raise UsageError(
            f"the loop ran on {run.thread_count} of {request.thread_count} cores, and predictions are of all",
            hint=f"torch.set_num_threads({request.thread_count})",
        )
    return timing


def _name_here(run: "Run", machine: Machine | None) -> str:
    """Return the driver's name of the device; the UUID finds it, since torch may number GPUs in another order."""
    gpus = () if machine is None or run.gpu_uuid is None else machine.gpus
    return next((gpu.id for gpu in gpus if gpu.uuid == run.gpu_uuid), run.device)


def _example_inputs(model: "nn.Module", inputs: "Inputs") -> Any:
    """Return the arguments of a call as `recommend` takes them: all by position, or all by name."""
    args, kwargs = inputs
    if not kwargs:
        return args
    signature = inspect.signature(model.forward)
    named = signature.bind(*args, **kwargs).arguments
    for rest in [name for name, one in signature.parameters.items() if one.kind is one.VAR_KEYWORD]:
        named |= named.pop(rest, {})  # `**rest` takes them by their own names
    return named
