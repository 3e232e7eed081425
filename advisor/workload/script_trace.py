"""Traces the first step of an ordinary script, which runs for real until it calls its model."""

import inspect
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.optim import Optimizer

from advisor.errors import LoadError, TraceError
from advisor.records.workload import Attention, Mode, Workload
from advisor.workload.companions import companions_of
from advisor.workload.fakes import fake_mode, fake_tensor_log_silenced
from advisor.workload.frozen_calls import FrozenCall, FrozenCalls, Place, skipped_count
from advisor.workload.import_hooks import patched_on_import
from advisor.workload.loaded import tensors_in, unwrapped
from advisor.workload.one_process import one_process
from advisor.workload.optimizer_turns import OptimizerTurns, samples_of, turn_notes
from advisor.workload.patching import patched, with_variables
from advisor.workload.real_step import real_step_note, running_for_real
from advisor.workload.recorder import Moment
from advisor.workload.script_source import TORCHRUN_VARIABLES, ScriptSource
from advisor.workload.script_watch import ScriptWatch
from advisor.workload.sources.python_file import import_file, with_fakes, with_weights
from advisor.workload.trace import Follower, Method, following_step, merged_workload
from advisor.workload.training_libraries import library_patches
from advisor.workload.user_error import causes_of, is_of_user, line_of

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

OnCall = Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], None]

_MOST_CALLS = 64
"""Calls of networks in one step of inference, such as the steps in which an image is sampled."""
_MOST_RUNS = 4
"""Runs of a script to find the first call of a step; calls at random may differ from run to run."""


class StepCaptured(BaseException):
    """Ends the script once the step is captured. Not an `Exception`, so that the script's handlers do not catch it."""


class RunAgainError(TraceError):
    """The step is not as it was taken to be: `found` are the keywords with which to capture it in a second run."""

    def __init__(self, **found: Any) -> None:
        super().__init__("the step is not as it was taken to be", hint="run the script again")
        self.found = found


class NoTrainingStepError(TraceError):
    """The script ended before an optimizer's step."""


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
    how: dict[str, Any] = {"mode": mode, "attention": attention}
    for _ in range(_MOST_RUNS):
        try:
            return _trace_step(path, argv, **how)
        except RunAgainError as again:
            how |= again.found
    return _trace_step(path, argv, **how, is_last_run=True)


def _trace_step(path: Path, argv: Sequence[str], **how: Any) -> Workload:
    """Run the script until its step ends; `how` are the keywords of `_Capture`."""
    capture = _Capture(method="symbolic", **how)
    try:
        return capture.run(path, argv)
    except Exception as error:  # the script's own code runs in there, and may raise anything
        if not capture.uses_fakes or not is_of_user(error):
            raise
        if capture.ends_before(error):
            return capture.workload(path)
        real = _Capture(method="cpu_step", notes=(real_step_note(error),), **how)
        try:
            with running_for_real(error):
                return real.run(path, argv)
        except Exception as failure:
            cut = next((one for one in (capture, real) if one.has_step), None)
            if cut is None or how["mode"] == "inference" or not is_of_user(failure):
                raise
            return cut.workload(path)


class _Capture:
    """Starts tracing at the script's first call of its model, and ends the script when the step is over."""

    def __init__(
        self,
        *,
        mode: Mode,
        method: Method,
        attention: Attention,
        skipped_count: int = 0,
        has_autocast: bool = False,
        is_last_run: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        self._mode = mode
        self._skipped_count = skipped_count
        self._has_autocast = has_autocast
        """A part of the step runs in autocast, though not its first call."""
        self._is_last_run = is_last_run
        self._notes = notes
        self._attention = attention
        self._method = method
        self._open = ExitStack()
        self._model: nn.Module | None = None
        self._inputs: list[torch.Tensor] = []
        self._follower: Follower | None = None
        self._samples: list[tuple[int, bool]] = []
        """Samples of each call of the model, and whether another network has computed them."""
        self._made: WeakSet[torch.UntypedStorage] = WeakSet()
        """The results of the other networks."""
        self._seen: dict[tuple[Any, ...], int] = {}
        """The inputs since the last turn of an optimizer, and how often the parameters had changed when they came."""
        self._places: list[Place] = []
        """Where the model was called."""
        self._with_gradients: set[int] = set()
        """Numbers of the calls whose results have had a gradient."""
        self._follows_autocast = False
        self._without_count = 0
        """Calls of the model before the first one that gradients flow back to."""
        self._turns = OptimizerTurns()
        self._waited_for: list[str] = []
        self._end: Moment | None = None
        self._is_over = False
        self._frame: FrameType | None = None
        """The method of the model that called a part of it first, while it runs."""
        self._called: Counter[nn.Module] = Counter()
        """How often the script has called a network for inference, or its method a part of it."""
        self._path = Path()
        self._watch = ScriptWatch()
        self._frozen = FrozenCalls()

    @cached_property
    def _fake(self) -> "FakeTensorMode":
        return fake_mode(symbolic=True, isolated=True)

    @property
    def uses_fakes(self) -> bool:
        """True once the script has called its model, or loaded a pretrained one, on fake tensors."""
        return "_fake" in vars(self)

    def run(self, path: Path, argv: Sequence[str]) -> Workload:
        self._path = path
        # Our `no_grad` may begin inside the script's and end after it, and would then restore the wrong grad mode.
        weights = with_fakes(lambda: self._fake) if self._method == "symbolic" else with_weights()
        with (
            weights,
            torch.set_grad_enabled(torch.is_grad_enabled()),
            patched((*self._watch.patches(), *self._turns.patches()), in_all_threads=True),
            patched_on_import(library_patches(self._watch)),
            with_variables(TORCHRUN_VARIABLES if ScriptSource(path).needs_torchrun else {}),
            one_process(
                note_processes=self._watch.note_processes, note_compute_dtype=self._watch.note_gpu_compute_dtype
            ),
            self._open,
        ):
            run_script(
                path,
                argv,
                on_first_forward=self._begin,
                on_skipped=self._on_skipped if self._mode == "training" else None,
                skipped_count=self._skipped_count,
            )
        if self._without_count:
            raise RunAgainError(skipped_count=self._skipped_count + self._without_count)
        if self._watch.has_parts_in_autocast and not self._follows_autocast and not self._is_last_run:
            raise RunAgainError(has_autocast=True)
        return self.workload(path)

    @property
    def has_step(self) -> bool:
        """True once an optimizer has stepped, or the model was called for inference."""
        return self._is_over or bool(self._turns.turns)

    def ends_before(self, error: Exception) -> bool:
        """Return True, and note it, if the calls for inference were over when the script failed on fake tensors."""
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if self._mode == "training" or not self.has_step or self._frame in frames:
            return False
        self._notes = (*self._notes, f"not counted: what follows {line_of(error)}, which needs values of the results")
        return True

    def workload(self, path: Path) -> Workload:
        """Return the step; raise `NoTrainingStepError` if the script has ended without one."""
        if self._model is None or self._follower is None or not self.has_step:
            raise NoTrainingStepError(
                f"{path} ended before an optimizer's step",
                hint="use --mode inference, or pass arguments with which the script trains",
            )
        others = [
            network for network in self._follower.networks if any(part in self._called for part in network.modules())
        ]
        step = self._follower.step(self._inputs, end=self._end, called=others)
        turns = self._turns.turns[: self._turns.first_count]
        batch, passes, step_count = samples_of(turns, self._samples)
        if batch < 1:
            raise TraceError(f"the first step of {path} has no samples", hint="start it on data with at least one")
        may_autocast = "autocast" in ScriptSource(path).names
        script = self._watch.script(self._model, passes=passes, batch=batch, may_autocast=may_autocast)
        workload = merged_workload(
            model=self._model,
            name=str(path),
            mode=self._mode,
            batch=batch,
            batches=[batch],
            steps=[step],
            method=self._method,
            assumptions=[
                f"the script's first step, at its batch of {batch}"
                + (f" ({passes} passes of {batch // passes})" if passes > 1 else ""),
                *self._notes,
                *turn_notes(turns, waited_for=self._waited_for),
                *self._watch.notes(script, self._model, accumulated=passes // step_count),
            ],
        )
        return replace(workload, script=script)

    def _on_skipped(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._frozen.note(network, args, kwargs, in_autocast=self._watch.is_in_autocast)

    def _begin(self, called: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        fake = self._fake if self._method == "symbolic" else None
        called = unwrapped(called)
        around, self._frame = _around(called)
        is_part = around is not called and (self._mode == "training" or self._frame is not None)
        self._model = model = around if is_part else called
        self._inputs = tensors_in((args, kwargs))
        self._watch.begin(model, self._inputs)
        self._turns.begin()
        if self._mode == "inference":
            self._open.enter_context(torch.no_grad())
        frozen, uncounted_count = self._frozen.of_step(called)
        companions = _companions(model, path=self._path, others=[call.network for call in frozen])
        self._follower = self._open.enter_context(
            following_step(
                model,
                companions=companions,
                fake=fake,
                attention=self._attention,
                loose=self._turns.loose_parameters([model, *(one for one in companions if isinstance(one, nn.Module))]),
            )
        )
        self._follows_autocast = self._has_autocast or self._watch.has_parts_in_autocast
        if self._follows_autocast:
            self._follower.recorder.follow_autocast(is_on=self._watch.is_in_autocast)
            self._watch.on_left = self._follower.recorder.leave_autocast
        repeated = [call for call in frozen if self._repeats(call)]
        if repeated:
            names = ", ".join(dict.fromkeys(type(call.network).__name__ for call in repeated))
            self._notes = (*self._notes, f"run without gradients in each step, and counted: {names}")
        if uncounted_count := uncounted_count + len(frozen) - len(repeated):
            calls = "1 call" if uncounted_count == 1 else f"{uncounted_count:,} calls"
            self._notes = (*self._notes, f"not counted: {calls} without gradients before the first step")
        called.register_forward_pre_hook(self._on_forward, with_kwargs=True)
        if self._mode == "training":
            self._follower.optimizers.on_step = self._on_step
            called.register_forward_hook(self._on_own_result)
            for network in self._follower.networks:
                network.register_forward_hook(self._on_other_result)
        elif is_part or any(self._follower.networks.values()):
            hook = nn.modules.module.register_module_forward_hook(self._on_result)
            self._open.callback(hook.remove)
        else:
            if self._frame is not None:
                name = f"{type(called).__name__}.{self._frame.f_code.co_name}"
                self._notes = (*self._notes, f"of {name}, only the first call of the model is counted")
            called.register_forward_hook(self._on_last_result)

    def _repeats(self, call: FrozenCall) -> bool:
        """Record the call on zeros; return whether the network takes them. On fake tensors, an error ends the trace."""
        try:
            call.repeat(cast("Follower", self._follower).recorder, under_autocast=self._watch.is_in_autocast)
        except Exception:  # the user's network, which may raise anything
            if self._method == "symbolic":
                raise
            return False
        return True

    def _on_forward(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if self._mode == "training" and not torch.is_grad_enabled():
            return  # a teacher, or an evaluation inside the step
        if self._mode == "inference" and self._is_over:
            if self._frame not in _running():
                raise StepCaptured
            return
        tensors = [tensor for tensor in tensors_in((args, kwargs)) if tensor.dim()]
        if self._mode == "training" and tensors and self._is_seen(tensors[0]):
            return
        samples = (tensors[0].shape[0], tensors[0].untyped_storage() in self._made) if tensors else (1, False)
        self._samples.append(samples)

    def _on_own_result(self, _: nn.Module, args: Any, result: Any) -> None:
        if not torch.is_grad_enabled():
            return
        number = len(self._places)
        self._places.append(Place.now())
        for tensor in tensors_in(result):
            if tensor.requires_grad:
                tensor.register_hook(lambda _: self._with_gradients.add(number))

    def _is_seen(self, data: torch.Tensor) -> bool:
        """Return whether the same samples come again after the parameters have changed, as for a line search."""
        parameters = cast("nn.Module", self._model).parameters()
        changed_count = sum(parameter._version for parameter in parameters)
        key = (id(data.untyped_storage()), data.storage_offset(), tuple(data.shape))
        return self._seen.setdefault(key, changed_count) != changed_count

    def _on_other_result(self, _: nn.Module, args: Any, result: Any) -> None:
        self._made.update(tensor.untyped_storage() for tensor in tensors_in(result))

    def _on_last_result(self, *_: Any) -> None:
        self._is_over = True
        raise StepCaptured

    def _on_result(self, module: nn.Module, *_: Any) -> None:
        recorder = cast("Follower", self._follower).recorder
        if recorder.is_in_module:
            return
        self._called[module] += 1
        self._is_over, self._end = True, recorder.moment()
        if self._called.total() == _MOST_CALLS:
            self._notes = (*self._notes, f"not counted: what follows the first {_MOST_CALLS} calls of networks")
            raise StepCaptured

    def _on_step(self, optimizer: Optimizer) -> None:
        """End the step, unless the script has another optimizer that may have a turn in it."""
        follower, turns = cast("Follower", self._follower), self._turns
        self._seen.clear()
        if self._with_gradients and not turns.turns and not self._is_last_run:
            self._without_count = skipped_count(self._places, first=min(self._with_gradients))
            if self._without_count:
                raise StepCaptured
        is_first = turns.add(optimizer, call_count=len(self._samples), backward_count=follower.recorder.backward_count)
        self._waited_for = turns.waited_for(follower.optimizers)
        if is_first:
            self._end = follower.recorder.moment() if self._waited_for else None
        if not self._waited_for or turns.is_overdue:
            raise StepCaptured


def _running() -> list[FrameType]:
    return [frame for frame, _ in traceback.walk_stack(inspect.currentframe())]


def _around(called: nn.Module) -> tuple[nn.Module, FrameType | None]:
    """Return the outermost module that has called a part of itself, as `training_step` does, and the method's frame."""
    found, method = called, None
    for frame in _running():
        owner = frame.f_locals.get(next(iter(frame.f_code.co_varnames), ""))
        if isinstance(owner, nn.Module) and any(part is found for part in owner.modules()):
            found = unwrapped(owner)
            method = frame if hasattr(type(owner), frame.f_code.co_name) else method
    return found, method


def _companions(model: nn.Module, *, path: Path, others: Sequence[nn.Module]) -> list[Any]:
    """Return what the script's running functions use besides the model (optimizers, other networks), and `others`."""
    of_script = [frame for frame in _running() if frame.f_code.co_filename == str(path)]
    used = [value for frame in of_script for value in (*frame.f_locals.values(), *frame.f_globals.values())]
    return companions_of(model, [*used, *others])


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

    The model is the first called module that has parameters, so a criterion or an augmentation before it is skipped.
    So are the parametrization of a weight and, with `on_skipped`, a call under `no_grad`, for which it is called, and
    others until the first of them has been called `skipped_count` times. Returns when `StepCaptured` is raised,
    whatever the script's handlers raise then, or when the script exits after calling its model. Raise `LoadError` if it
    ends without calling a model; other exceptions of the script pass through.
    """
    call = nn.Module.__call__
    called = is_skipped = False
    skipped: list[nn.Module] = []
    tried: nn.Module | None = None

    def watched_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        nonlocal called, is_skipped, skipped_count, tried
        if called or next(module.parameters(), None) is None or _is_parametrization():
            return call(module, *args, **kwargs)
        if skipped_count and not skipped and torch.is_grad_enabled():
            tried = tried or module
            skipped_count -= module is tried
            nn.Module.__call__ = call  # type: ignore[method-assign]
            try:
                return call(module, *args, **kwargs)
            finally:
                nn.Module.__call__ = watched_call  # type: ignore[method-assign]
        is_skipped = on_skipped is not None and not torch.is_grad_enabled()
        if on_skipped is None or not is_skipped:
            called = True
            nn.Module.__call__ = call  # type: ignore[method-assign]
            on_first_forward(module, args, kwargs)
            return call(module, *args, **kwargs)
        if not skipped:
            on_skipped(module, args, kwargs)
        skipped.append(module)
        try:
            return call(module, *args, **kwargs)
        finally:
            skipped.pop()

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
