"""Records the optimizer's step as one composite, with its cost per element and the state it keeps."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from advisor.workload.fusion import TracedCall
from advisor.workload.loaded import tensors_in
from advisor.workload.optimizer_calls import Stepped, stepping_calls
from advisor.workload.patching import in_this_thread
from advisor.workload.recorder import PAUSED, Recorder


@dataclass(slots=True, kw_only=True)
class _Step:
    """A step that is running."""

    groups: list[dict[str, Any]]
    """The optimizer's original parameter groups."""
    counts: dict[int, int] = field(default_factory=dict)
    """Parameter id -> how many parameters it represents."""
    closure: "_Closure | None" = None
    """What the user gave to compute the gradients."""


@dataclass(slots=True)
class _Closure:
    """A function that computes the gradients, and what was seen of its calls inside an optimizer's step."""

    compute: Callable[[], Any]
    recorder: Recorder
    calls: int = 0
    is_first: bool = False
    """The step did nothing before it called the closure."""
    loss: Any = None

    def __call__(self) -> Any:
        """Compute the gradients, which is not part of the step."""
        self.calls += 1
        self.is_first = self.calls == 1 and self.recorder.composite_is_empty
        with self.recorder.outside_composite():
            self.loss = self.compute()
        return self.loss


@dataclass(slots=True)
class OptimizerSteps:
    """Follows `Optimizer.step`.

    Optimizers update each parameter separately, and parameters of equal shape in the same way, so the step runs on one
    parameter of each shape and is multiplied. It runs twice, because the first step creates the state and is not the
    one that training repeats.

    With a closure, which computes the gradients, the first step runs on all parameters. If it calls the closure once,
    before anything else, the second step is given the same loss and gradients. Otherwise (LBFGS, SAM) the gradients
    are part of the update, and the first step counts.
    """

    recorder: Recorder
    fakes: dict[int, torch.Tensor]
    """Id of a real parameter -> its fake; an optimizer built before tracing may hold the real ones."""
    names: list[str] = field(default_factory=list)
    """Class names of the optimizers that stepped."""
    on_step: Callable[[], None] | None = None
    """Called after each step."""
    _running: dict[Optimizer, _Step] = field(default_factory=dict)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Record every step of every optimizer inside."""
        before = register_optimizer_step_pre_hook(in_this_thread(self._before))
        after = register_optimizer_step_post_hook(in_this_thread(self._after))
        try:
            yield
        finally:
            before.remove()
            after.remove()
            for optimizer, step in self._running.items():  # only steps that raised are left
                self._put_back(optimizer, step)

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> tuple[Any, Any] | None:
        if optimizer in self._running:
            return None
        step = self._running[optimizer] = _Step(groups=[dict(group) for group in optimizer.param_groups])
        for group in optimizer.param_groups:
            group["params"] = [self.fakes.get(id(parameter), parameter) for parameter in group["params"]]
            if group.get("foreach"):
                group["foreach"] = False  # the loop shows the work per tensor; devices fuse it in their own way
        closure = kwargs.get("closure", args[1] if len(args) > 1 else None)
        if closure is not None:
            step.closure = _Closure(closure, self.recorder)
            self.recorder.begin_composite()
            return _with_closure(args, kwargs, step.closure)
        self._keep_one_of_each_shape(optimizer, step)
        with self.recorder.within(PAUSED):
            type(optimizer).step(*args, **kwargs)
        self.recorder.leave_out(_state_tensors(optimizer))
        self.recorder.begin_composite()
        return None

    def _keep_one_of_each_shape(self, optimizer: Optimizer, step: _Step) -> None:
        for group in optimizer.param_groups:
            group["params"], counts = _one_of_each_shape(group["params"])
            step.counts.update(counts)

    def _step_again(self, optimizer: Optimizer, step: _Step, closure: _Closure, args: Any, kwargs: Any) -> None:
        """Record a second step in place of the first one; its closure returns the loss without computing it again."""
        step.closure = None
        self.recorder.drop_composite()
        self.recorder.leave_out(_state_tensors(optimizer))
        self._keep_one_of_each_shape(optimizer, step)
        self.recorder.begin_composite()
        args, kwargs = _with_closure(args, kwargs, lambda: closure.loss)
        type(optimizer).step(*args, **kwargs)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer not in self._running:
            self._after_closure(optimizer)
            return
        step, closure = self._running[optimizer], self._running[optimizer].closure
        if not self.recorder.in_composite:
            return  # the first step
        if closure is not None and _repeats_without(closure, optimizer):
            self._step_again(optimizer, step, closure, args, kwargs)
            return
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        counts = [step.counts.get(id(parameter), 1) for parameter in parameters]
        states = [tensors_in(optimizer.state.get(parameter, {})) for parameter in parameters]
        state_bytes = sum(
            count * tensor.untyped_storage().nbytes()
            for count, state in zip(counts, states, strict=True)
            for tensor in state
        )
        calls = self.recorder.end_composite(
            owner=id(optimizer), state=_state_tensors(optimizer), state_bytes=state_bytes
        )
        stepped = [
            Stepped(
                parameter=parameter,
                count=count,
                storages=self.recorder.storages_of([parameter, parameter.grad, *state]),
            )
            for parameter, count, state in zip(parameters, counts, states, strict=True)
        ]
        self._put_back(optimizer, self._running.pop(optimizer))
        if stepped:
            self._record(type(optimizer).__name__, calls, stepped, state_bytes=state_bytes)
        self._stepped(optimizer)

    def _stepped(self, optimizer: Optimizer) -> None:
        self.names.append(type(optimizer).__name__)
        if self.on_step is not None:
            self.on_step()

    def _after_closure(self, optimizer: Optimizer) -> None:
        """Record a step that began before tracing, because its closure made the first call of the model.

        The gradients exist, so the update is run again, unless the optimizer (LBFGS) requires its closure.
        """
        if not _needs_closure(optimizer):
            type(optimizer).step(optimizer)
        else:
            self._stepped(optimizer)

    def _record(self, name: str, calls: Sequence[TracedCall], stepped: Sequence[Stepped], *, state_bytes: int) -> None:
        """Record the step: its matmuls by themselves, as they run on other units, and all else as one call."""
        merged = []
        for one in stepping_calls(calls, stepped):
            if one.call.family == "matmul":
                self.recorder.repeat(one.call, count=one.count)
            else:
                merged.append(one)
        element_count, tensor_count = sum(one.element_count for one in stepped), sum(one.count for one in stepped)
        item_bytes = sum(one.element_count * one.parameter.element_size() for one in stepped)
        item_bytes_per_element, state_bytes_per_element = item_bytes / element_count, state_bytes / element_count
        self.recorder.record(
            "optimizer",
            inputs=(),
            outputs=(),
            attributes={
                "name": name,
                "element_count": element_count,
                "tensor_count": tensor_count,
                # A fused optimizer makes one call for all of them.
                "calls_per_tensor": max(1.0, sum(one.count for one in merged) / tensor_count),
                "flops_per_element": sum(one.cost.flops for one in merged) / element_count,
                "loop_read_bytes_per_element": sum(one.cost.read_bytes for one in merged) / element_count,
                "loop_write_bytes_per_element": sum(one.cost.write_bytes for one in merged) / element_count,
                # A fused step reads parameter, gradient and state once, and writes parameter and state once.
                "read_bytes_per_element": 2 * item_bytes_per_element + state_bytes_per_element,
                "write_bytes_per_element": item_bytes_per_element + state_bytes_per_element,
                "state_bytes_per_element": state_bytes_per_element,
            },
        )

    def _put_back(self, optimizer: Optimizer, step: _Step) -> None:
        """Restore the optimizer's groups, and remove the state of fake parameters."""
        for group, saved in zip(optimizer.param_groups, step.groups, strict=True):
            group.clear()
            group.update(saved)
        for stand_in in self.fakes.values():
            optimizer.state.pop(stand_in, None)


def _needs_closure(optimizer: Optimizer) -> bool:
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    return closure is not None and closure.default is not None


def _repeats_without(closure: _Closure, optimizer: Optimizer) -> bool:
    """Return True if a step with the gradients that the closure left is the update of every later step."""
    has_gradients = any(p.grad is not None for group in optimizer.param_groups for p in group["params"])
    return closure.calls == 1 and closure.is_first and has_gradients and not _needs_closure(optimizer)


def _with_closure(args: Any, kwargs: Any, closure: Callable[[], Any]) -> tuple[Any, Any]:
    """Return the arguments of `Optimizer.step`, the optimizer first, with another closure."""
    return (args[0], closure, *args[2:]), {name: kwargs[name] for name in kwargs if name != "closure"}


def _state_tensors(optimizer: Optimizer) -> list[torch.Tensor]:
    return [tensor for state in optimizer.state.values() for tensor in tensors_in(state)]


def _one_of_each_shape(parameters: list[torch.Tensor]) -> tuple[list[torch.Tensor], dict[int, int]]:
    """Return one trained parameter of each shape and dtype, and the number that each represents, by id."""
    chosen: dict[Any, torch.Tensor] = {}
    counts: dict[int, int] = {}
    for parameter in parameters:
        if parameter.grad is None:
            continue
        first = chosen.setdefault((tuple(parameter.shape), parameter.dtype), parameter)
        counts[id(first)] = counts.get(id(first), 0) + 1
    return list(chosen.values()), counts
