"""A model in its own loop in, a recommendation that rests on the steps it really took out."""

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from advisor import units
from advisor.answers.ranking import rank_workload
from advisor.calibrate.measured_beside import Measuring
from advisor.calibrate.step_request import MeasureRequest
from advisor.errors import UsageError
from advisor.machine.this_machine import this_machine
from advisor.question.from_model import trace_live
from advisor.question.from_source import calibrations_for, catalog_of
from advisor.question.option_values import options_of
from advisor.question.served_model import asks_for_tokens
from advisor.records.answer import Recommendation
from advisor.records.machine import Machine
from advisor.records.timing import StepTiming

if TYPE_CHECKING:
    from torch import nn
    from torch.utils.data import DataLoader

    from advisor.calibrate.observer import Observer, Run
    from advisor.workload.loaded import Inputs

_NO_WAIT_RATIO = 0.05
"""Of a step: the code between two steps alone takes so much; workers that keep up are not told from faster ones."""


@contextmanager
def observe(model: "nn.Module", *, loader: "DataLoader[Any] | None" = None) -> Iterator["Observed"]:
    """Watch the steps that the code inside takes with `model`; what it gives recommends from them.

    In training a step lasts from the model's call to the end of its optimizer's step, in inference as long as the call.
    The model, its optimizer and what the code computes stay as they are. With `loader` its workers tell how much
    computing a sample takes to load, where the device had to wait for them.
    """
    from advisor.calibrate.observer import Observer

    observer = Observer(model)
    with observer.following():
        yield Observed(observer, worker_count=None if loader is None else loader.num_workers)


class Observed:
    """What was seen of a model's steps; ask it after the `with`."""

    def __init__(self, observer: "Observer", *, worker_count: int | None) -> None:
        self._observer = observer
        self._worker_count = worker_count

    def __repr__(self) -> str:
        try:
            timing = self.timing
        except UsageError as error:
            return f"nothing to recommend from: {error.message}; {error.hint}"
        wait_s, step = timing.loader_wait_s, units.format_interval_s(timing.step_s, timing.low_s, timing.high_s)
        waits = f", {units.format_duration(wait_s)} of waiting for data before each" if wait_s else ""
        return f"{timing.step_count:,} steps of batch {timing.batch:,}: {step} each{waits}; recommend() rests on them"

    @property
    def timing(self) -> StepTiming:
        """The steps and what the device waited between them; raises `UsageError` where too few were seen."""
        return self._observer.timing()

    @property
    def loader_s_per_sample(self) -> float | None:
        """Seconds that one vCPU takes to load a sample; None where the loader is not known or nothing waited for it.

        Workers that the device waits for are at work all the time: one batch a step and a wait, by all of them. Without
        workers the loop itself loads, in the wait.
        """
        timing = self.timing
        if self._worker_count is None or not timing.loader_wait_s:
            return None
        if self._worker_count == 0:
            return timing.loader_wait_s / timing.batch
        if timing.loader_wait_s < _NO_WAIT_RATIO * timing.step_s:
            return None
        return (timing.step_s + timing.loader_wait_s) * self._worker_count / timing.batch

    def recommend(self, *, loss: Any = None, train_step: Any = None, **flags: Any) -> Recommendation:
        """As `advisor.recommend`, resting on the steps that were timed, for the model, inputs, optimizer, mode, layout
        and precision that were seen.

        `loss` and `train_step` say what a step does beside the model's call, if more than the mean of its outputs; they
        and all `flags` are as there. Raises `AdvisorError`, with too few steps for instance, and what the model's own
        code raises.
        """
        observer, timing = self._observer, self.timing
        run = observer.run
        if run is None:
            raise UsageError("the model was not called", hint="call it inside the `with`")
        seen = {"mode": observer.mode, "precision": run.precision, "layout": run.layout, "compile": run.compile}
        options = options_of({**seen, "loader_s_per_sample": self.loader_s_per_sample, **flags}, function="recommend")
        if asks_for_tokens(options):
            raise UsageError(
                "prompt_tokens: the steps of a loop were timed, which are none of a service",
                hint="advisor.recommend takes it",
            )
        machine, catalog = None if options.no_local else this_machine(), catalog_of(options)
        model = getattr(observer.model, "_orig_mod", observer.model)  # what torch.compile has wrapped
        workload = trace_live(
            model,
            _example_inputs(model, run.inputs),
            options,
            loss=loss,
            optimizer=observer.optimizer,
            train_step=train_step,
        )
        request = MeasureRequest(source=workload.name, mode=observer.mode, layout=run.layout, compile=run.compile)
        measuring = Measuring(
            request=request,
            time_it=partial(_timed, timing, run),
            precision=run.precision,
            device=_name_here(run, machine),
            batch=timing.batch,
        )
        return rank_workload(
            workload,
            options,
            catalog=catalog,
            machine=machine,
            calibrated=calibrations_for(machine, catalog, options),
            measuring=measuring,
        )


def _timed(timing: StepTiming, run: "Run", request: MeasureRequest) -> StepTiming:
    """The loop's steps, where they ran as the request asks. More threads than cores share these cores."""
    if request.thread_count is not None and run.thread_count < request.thread_count:
        raise UsageError(
            f"the loop ran on {run.thread_count} of {request.thread_count} cores, and predictions are of all",
            hint=f"torch.set_num_threads({request.thread_count})",
        )
    return timing


def _name_here(run: "Run", machine: Machine | None) -> str:
    """The driver's name of the device: torch may count unlike GPUs in another order, and the UUIDs tell."""
    gpus = () if machine is None or run.gpu_uuid is None else machine.gpus
    return next((gpu.id for gpu in gpus if gpu.uuid == run.gpu_uuid), run.device)


def _example_inputs(model: "nn.Module", inputs: "Inputs") -> Any:
    """The arguments of a call as `recommend` takes them: all by position, or all by name."""
    args, kwargs = inputs
    return inspect.signature(model.forward).bind(*args, **kwargs).arguments if kwargs else args
