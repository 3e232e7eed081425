"""Traces the first step of an ordinary script, which runs for real until it calls its model."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from advisor.records.workload import Attention, Mode, Workload
from advisor.workload.fakes import fake_tensor_log_silenced
from advisor.workload.real_step import real_step_note, running_for_real
from advisor.workload.run_script import NoTrainingStepError
from advisor.workload.script_capture import InferenceCapture, RunAgainError, TrainingCapture
from advisor.workload.script_source import ScriptSource
from advisor.workload.user_error import is_of_user

_MOST_RUNS = 4
"""Runs to find the first call of a step. Calls that a script makes at random differ from run to run."""


@fake_tensor_log_silenced()
def trace_script(
    path: Path, argv: Sequence[str], *, mode: Mode | None = None, attention: Attention = "auto"
) -> Workload:
    """Run the script until its first step ends: the optimizers' steps in training, the model's call in inference.

    Without a mode, it is what the script does: training if its code has what training needs and an optimizer steps.

    In inference the step ends with the method of the model that was called. If the script has other networks too, or
    if that method calls parts of the model one by one, it goes on until the first of the calls is made again.

    In training, earlier calls without gradients (a first evaluation) run for real; those that each step repeats are
    counted. If the first calls with gradients turn out to have no backward pass (to try the model, or to act in an
    environment), the script runs again and skips them. So it does if autocast begins only after the first call.

    The step is traced on fake tensors with assumed data-dependent sizes, and pretrained models are fake from the start.
    If the code needs values, the script runs again on real tensors. The result holds only for the script's batch.
    Raises whatever the script raises, `LoadError` if it ends without calling a model, and `TraceError` if it ends
    before an optimizer steps. If it fails or ends between two optimizers, the step is that of the first, and a note
    says so.
    """
    if mode is None:
        if ScriptSource(path).trains:
            with suppress(NoTrainingStepError):
                return trace_script(path, argv, mode="training", attention=attention)
        return trace_script(path, argv, mode="inference", attention=attention)
    how: dict[str, Any] = {"attention": attention}
    for _ in range(_MOST_RUNS):
        try:
            return _trace_step(path, argv, mode=mode, **how)
        except RunAgainError as again:
            how |= again.found
    return _trace_step(path, argv, mode=mode, **how, is_last_run=True)


def _trace_step(path: Path, argv: Sequence[str], *, mode: Mode, **how: Any) -> Workload:
    """Run the script until its step ends; `how` are other keywords of the capture."""
    capture_of = TrainingCapture if mode == "training" else InferenceCapture
    capture = capture_of(method="symbolic", **how)
    try:
        return capture.run(path, argv)
    except Exception as error:  # the script's own code runs in there, and may raise anything
        if not capture.uses_fakes or not is_of_user(error):
            raise
        if (step := capture.step_before(error, path=path)) is not None:
            return step
        real = capture_of(method="cpu_step", notes=(real_step_note(error),), **how)
        try:
            with running_for_real(error):
                return real.run(path, argv)
        except Exception as failure:
            cut = next((one for one in (capture, real) if one.has_turn), None)
            if cut is None or not is_of_user(failure):
                raise
            return cut.workload(path)
