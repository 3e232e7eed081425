"""Captures a script's first step: training until its optimizers have stepped, inference until its calls repeat."""

import inspect
import traceback
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch import nn
from torch.optim import Optimizer

from advisor.errors import TraceError
from advisor.records.workload import Attention, Mode, Workload
from advisor.workload.companions import companions_of
from advisor.workload.fakes import fake_mode
from advisor.workload.import_hooks import patched_on_import
from advisor.workload.loaded import tensors_in, unwrapped
from advisor.workload.one_process import one_process
from advisor.workload.optimizer_turns import OptimizerTurns, samples_of, turn_notes
from advisor.workload.patching import patched, with_variables
from advisor.workload.recorder import Moment
from advisor.workload.run_script import NoTrainingStepError, OnCall, StepCaptured, run_script
from advisor.workload.script_source import TORCHRUN_VARIABLES, ScriptSource
from advisor.workload.script_watch import ScriptWatch
from advisor.workload.sources.python_file import with_fakes, with_weights
from advisor.workload.step_calls import MOST_CALLS, FrozenCall, FrozenCalls, Place, count_before_step
from advisor.workload.trace import Follower, Method, following_step, merged_workload
from advisor.workload.training_libraries import library_patches
from advisor.workload.user_error import line_of

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode


class RunAgainError(TraceError):
    """The step was captured under a wrong assumption; a second run needs the keywords `found`."""

    def __init__(self, **found: Any) -> None:
        super().__init__("the step was captured under a wrong assumption", hint="run the script again")
        self.found = found


class _Capture(ABC):
    """Starts tracing at the script's first call of its model, and ends the script when the step is over."""

    _mode: ClassVar[Mode]
    _on_skipped: OnCall | None = None
    """Called before calls without gradients, if those are not the first call of the step."""
    _follower: Follower
    _model: nn.Module

    def __init__(
        self,
        *,
        method: Method,
        attention: Attention,
        skipped_count: int = 0,
        has_autocast: bool = False,
        is_last_run: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        self._skipped_count = skipped_count
        self._follows_autocast = has_autocast
        """Part of the step runs in autocast, and the rest in fp32. `has_autocast`: so it is, though not at first."""
        self._is_last_run = is_last_run
        self._notes = list(notes)
        self._attention = attention
        self._method = method
        self._open = ExitStack()
        self._inputs: list[torch.Tensor] = []
        self._samples: list[tuple[int, bool]] = []
        """Samples of each call of the model, and whether another network has computed them."""
        self._end: Moment | None = None
        self._path = Path()
        self._watch = ScriptWatch()
        self._turns = OptimizerTurns()

    @cached_property
    def _fake(self) -> "FakeTensorMode":
        return fake_mode(symbolic=True, isolated=True)

    @property
    def uses_fakes(self) -> bool:
        """True once the script has called its model, or loaded a pretrained one, on fake tensors."""
        return "_fake" in vars(self)

    @property
    def has_turn(self) -> bool:
        """True once an optimizer has stepped."""
        return bool(self._turns.turns)

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
                on_skipped=self._on_skipped,
                skipped_count=self._skipped_count,
            )
        self._check()
        return self.workload(path)

    def _check(self) -> None:
        """Raise `RunAgainError` if the step was captured under a wrong assumption."""
        if self._watch.has_parts_in_autocast and not self._follows_autocast and not self._is_last_run:
            raise RunAgainError(has_autocast=True)

    def step_before(self, error: Exception, *, path: Path) -> Workload | None:
        """Return the step if it was over before the script failed on fake tensors, else None."""
        return None

    def workload(self, path: Path) -> Workload:
        """Return the step."""
        step = self._follower.step(self._inputs, end=self._end, called=self._other_networks())
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
                *turn_notes(turns, waited_for=self._waited_for()),
                *self._watch.notes(script, self._model, accumulated=passes // step_count),
            ],
        )
        return replace(workload, script=script)

    def _other_networks(self) -> list[nn.Module]:
        """Return the networks besides the model whose parameters count, though no optimizer trains them."""
        return []

    def _waited_for(self) -> list[str]:
        """Return the optimizers that have not stepped."""
        return []

    @abstractmethod
    def _begin(self, called: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Begin to trace at this call, which the script is about to make."""

    def _follow(self, model: nn.Module, inputs: Any, *, others: Sequence[nn.Module] = ()) -> None:
        """Begin to trace the step of the model; `others` are networks that it calls, besides those of the script."""
        fake = self._fake if self._method == "symbolic" else None
        self._model, self._inputs = model, tensors_in(inputs)
        self._watch.begin(model, self._inputs)
        self._turns.begin()
        companions = _companions(model, path=self._path, others=others)
        networks = [model, *(one for one in companions if isinstance(one, nn.Module))]
        self._follower = self._open.enter_context(
            following_step(
                model,
                companions=companions,
                fake=fake,
                attention=self._attention,
                loose=self._turns.loose_parameters(networks),
            )
        )
        self._follows_autocast |= self._watch.has_parts_in_autocast
        if self._follows_autocast:
            self._follower.recorder.follow_autocast(is_on=self._watch.is_in_autocast)
            self._watch.on_left = self._follower.recorder.leave_autocast

    def _add_samples(self, inputs: Sequence[torch.Tensor], *, made: WeakSet[torch.UntypedStorage]) -> None:
        """Note the samples of a call of the model; `made` are the results of other networks."""
        self._samples.append((inputs[0].shape[0], inputs[0].untyped_storage() in made) if inputs else (1, False))


class TrainingCapture(_Capture):
    """Captures the first step of training, until all optimizers have stepped."""

    _mode = "training"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._made: WeakSet[torch.UntypedStorage] = WeakSet()
        """The results of the other networks."""
        self._seen: WeakKeyDictionary[torch.UntypedStorage, dict[tuple[Any, ...], int]] = WeakKeyDictionary()
        """Inputs since an optimizer last stepped, and how often the parameters had changed at their first call."""
        self._places: list[Place] = []
        """Where the model was called."""
        self._with_gradients: set[int] = set()
        """Numbers of the calls whose results have had a gradient."""
        self._count_before_step = 0
        """Calls of the model before the step; no gradients flow back to them."""
        self._waiting: list[str] = []
        self._frozen = FrozenCalls()

    def workload(self, path: Path) -> Workload:
        """Return the step; raise `NoTrainingStepError` if the script has ended without one."""
        if not self.has_turn:
            raise NoTrainingStepError(
                f"{path} ended before an optimizer's step",
                hint="use --mode inference, or pass arguments with which the script trains",
            )
        return super().workload(path)

    def _check(self) -> None:
        if self._count_before_step:
            raise RunAgainError(skipped_count=self._skipped_count + self._count_before_step)
        super()._check()

    def _waited_for(self) -> list[str]:
        return self._waiting

    def _on_skipped(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._frozen.note(network, args, kwargs, in_autocast=self._watch.is_in_autocast)

    def _begin(self, called: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        called = unwrapped(called)
        frozen, uncounted_count = self._frozen.of_step(called)
        self._follow(_around(called)[0], (args, kwargs), others=[call.network for call in frozen])
        repeated = [call for call in frozen if self._repeats(call)]
        if repeated:
            names = ", ".join(dict.fromkeys(type(call.network).__name__ for call in repeated))
            self._notes.append(f"run without gradients in each step, and counted: {names}")
        if uncounted_count := uncounted_count + len(frozen) - len(repeated):
            calls = "1 call" if uncounted_count == 1 else f"{uncounted_count:,} calls"
            self._notes.append(f"not counted: {calls} without gradients before the first step")
        called.register_forward_pre_hook(self._on_forward, with_kwargs=True)
        called.register_forward_hook(self._on_result)
        for network in self._follower.networks:
            network.register_forward_hook(self._on_other_result)
        self._follower.optimizers.on_step = self._on_step

    def _repeats(self, call: FrozenCall) -> bool:
        """Record the call on zeros; return False if the network fails on them. On fake tensors, the error is raised."""
        try:
            call.repeat(self._follower.recorder, under_autocast=self._watch.is_in_autocast)
        except Exception:  # the user's network, which may raise anything
            if self._method == "symbolic":
                raise
            return False
        return True

    def _on_forward(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if not torch.is_grad_enabled():
            return  # a teacher, or an evaluation inside the step
        inputs = [tensor for tensor in tensors_in((args, kwargs)) if tensor.dim()]
        if not (inputs and self._is_seen(inputs[0])):
            self._add_samples(inputs, made=self._made)

    def _is_seen(self, data: torch.Tensor) -> bool:
        """Return whether the model is called again on the same samples with changed parameters, as in a line search."""
        changed_count = sum(parameter._version for parameter in self._model.parameters())
        views = self._seen.setdefault(data.untyped_storage(), {})
        return views.setdefault((data.storage_offset(), *data.shape), changed_count) != changed_count

    def _on_result(self, _: nn.Module, args: Any, result: Any) -> None:
        if not torch.is_grad_enabled():
            return
        number = len(self._places)
        self._places.append(Place.now())
        for tensor in tensors_in(result):
            if tensor.requires_grad:
                tensor.register_hook(lambda _: self._with_gradients.add(number))

    def _on_other_result(self, _: nn.Module, args: Any, result: Any) -> None:
        self._made.update(tensor.untyped_storage() for tensor in tensors_in(result))

    def _on_step(self, optimizer: Optimizer) -> None:
        """End the step, unless the script has another optimizer that may have a turn in it."""
        follower, turns = self._follower, self._turns
        self._seen.clear()
        if self._with_gradients and not turns.turns and not self._is_last_run:
            self._count_before_step = count_before_step(self._places, first=min(self._with_gradients))
            if self._count_before_step:
                raise StepCaptured
        is_first = turns.add(optimizer, call_count=len(self._samples), backward_count=follower.recorder.backward_count)
        self._waiting = turns.waited_for(follower.optimizers)
        if is_first:
            self._end = follower.recorder.moment() if self._waiting else None
        if not self._waiting or turns.is_overdue:
            raise StepCaptured


class InferenceCapture(_Capture):
    """Captures a call of the model; with several networks, or parts of a model, all calls until the first repeats."""

    _mode = "inference"

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._frame: FrameType | None = None
        """The method of the model that made the first call."""
        self._called: Counter[nn.Module] = Counter()
        """How often the script has called a network, or the method a part of the model."""

    def step_before(self, error: Exception, *, path: Path) -> Workload | None:
        """Return the step if the script failed after its calls, and note which line it failed at; else None."""
        frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        if not self._called or self._frame in frames:
            return None
        self._notes.append(f"not counted: what follows {line_of(error)}, which needs values of the results")
        return self.workload(path)

    def _other_networks(self) -> list[nn.Module]:
        networks = self._follower.networks
        return [network for network in networks if any(part in self._called for part in network.modules())]

    def _begin(self, called: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        called = unwrapped(called)
        around, self._frame = _around(called)
        model = called if self._frame is None else around
        self._open.enter_context(torch.no_grad())
        self._follow(model, (args, kwargs))
        self._add_samples([tensor for tensor in self._inputs if tensor.dim()], made=WeakSet())
        if model is not called or any(self._follower.networks.values()):
            called.register_forward_pre_hook(self._on_first_again)
            hook = nn.modules.module.register_module_forward_hook(self._on_result)
            self._open.callback(hook.remove)
            return
        if self._frame is not None:
            name = f"{type(called).__name__}.{self._frame.f_code.co_name}"
            self._notes.append(f"{name}: only its first call of the model is counted")
        called.register_forward_hook(self._on_only_result)

    def _on_first_again(self, *_: Any) -> None:
        if self._called and self._frame not in _running():
            raise StepCaptured

    def _on_only_result(self, *_: Any) -> None:
        raise StepCaptured

    def _on_result(self, module: nn.Module, *_: Any) -> None:
        recorder = self._follower.recorder
        if recorder.is_in_module:
            return
        self._called[module] += 1
        self._end = recorder.moment()
        if self._called.total() == MOST_CALLS:
            self._notes.append(f"not counted: what follows the first {MOST_CALLS} calls of networks")
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
