"""Records the optimizer's step as one composite, with its cost per element and the state it keeps."""

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from advisor.workload.loaded import tensors_in
from advisor.workload.optimizer_calls import Stepped, SteppingCall, stepping_calls, works_on_elements
from advisor.workload.patching import in_this_thread
from advisor.workload.recorder import PAUSED, Recorder
from advisor.workload.sparse_fakes import is_sparse, parts_of


@dataclass(slots=True, kw_only=True)
class _Step:
    """A step that is running."""

    groups: list[dict[str, Any]]
    """The optimizer's original parameter groups."""
    counts: dict[int, int] = field(default_factory=dict)
    """Parameter id -> how many parameters it represents."""
    closure: "_Closure | None" = None
    """The closure that the user passed to compute the gradients."""


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
    """Class names of the optimizers, one for each step."""
    held: set[int] = field(default_factory=set)
    """Ids of the parameters of the optimizers that stepped."""
    on_step: Callable[[Optimizer], None] | None = None
    """Called with the optimizer after each step."""
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

    def parameters_of(self, optimizer: Optimizer) -> Iterator[torch.Tensor]:
        """Yield the parameters of an optimizer, as the step updates them."""
        for group in optimizer.param_groups:
            yield from (self.fakes.get(id(parameter), parameter) for parameter in group["params"])

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
        stepped = [
            self._stepped_one(parameter, gradient, state=tensors_in(optimizer.state.get(parameter, {})), step=step)
            for group in optimizer.param_groups
            for parameter in group["params"]
            if (gradient := parameter.grad) is not None
        ]
        calls = self.recorder.end_composite(
            owner=id(optimizer),
            state=_state_tensors(optimizer),
            state_bytes=sum(one.count * one.state_bytes for one in stepped),
        )
        self._put_back(optimizer, self._running.pop(optimizer))
        self._record_all(type(optimizer).__name__, list(stepping_calls(calls, stepped)), stepped)
        self._stepped(optimizer)

    def _stepped_one(
        self, parameter: torch.Tensor, gradient: torch.Tensor, *, state: list[torch.Tensor], step: _Step
    ) -> Stepped:
        return Stepped(
            parameter=parameter,
            gradient=gradient,
            count=step.counts.get(id(parameter), 1),
            storages=self.recorder.storages_of([parameter, gradient, *state]),
            state_bytes=sum(tensor.untyped_storage().nbytes() for tensor in state),
        )

    def _stepped(self, optimizer: Optimizer) -> None:
        self.names.append(type(optimizer).__name__)
        self.held.update(map(id, self.parameters_of(optimizer)))
        if self.on_step is not None:
            self.on_step(optimizer)

    def _after_closure(self, optimizer: Optimizer) -> None:
        """Record a step that began before tracing, because its closure made the first call of the model.

        The gradients exist, so the update is run again, unless the optimizer (LBFGS) requires its closure.
        """
        if not _needs_closure(optimizer):
            type(optimizer).step(optimizer)
        else:
            self._stepped(optimizer)

    def _record_all(self, name: str, calls: Sequence[SteppingCall], stepped: Sequence[Stepped]) -> None:
        """Record the step as one call for all dense gradients and one for each sparse gradient.

        Matmuls are recorded by themselves, as they run on other units, and so is what a step on a sparse gradient does
        beside its elements, such as a decay of the whole table.
        """
        gradients = {index: parts_of(one.gradient) for index, one in enumerate(stepped) if is_sparse(one.gradient)}
        dense = [one for index, one in enumerate(stepped) if index not in gradients]
        merged: dict[int | None, list[SteppingCall]] = {index: [] for index in (*gradients, None)}
        for one in calls:
            owner = next(iter(one.owners)) if len(one.owners) == 1 else None
            if owner in gradients and works_on_elements(one.call, gradients[owner][1]):
                merged[owner].append(one)
            elif one.call.family == "matmul" or one.owners <= gradients.keys():
                self.recorder.repeat(one.call, count=one.count)
            else:
                merged[None].append(one)
        if any(one.parameter.numel() for one in dense):
            self._record(name, merged[None], dense)
        for index, gradient in gradients.items():
            self.recorder.assume(
                "with sparse gradients, no row of a table is looked up twice in a step; several GPUs all-gather these "
                "rows, which DDP does not do itself with NCCL"
            )
            self._record(name, merged[index], [stepped[index]], gradient=gradient)

    def _record(
        self,
        name: str,
        calls: Sequence[SteppingCall],
        stepped: Sequence[Stepped],
        *,
        gradient: Sequence[torch.Tensor] = (),
    ) -> None:
        """Record calls as one; `gradient` is (indices, values) of a sparse gradient, whose elements are updated."""
        element_count, tensor_count = sum(one.element_count for one in stepped), sum(one.count for one in stepped)
        updated_count = max(1, self.recorder.sizes(gradient[1].numel()) if gradient else element_count)
        item_bytes = sum(one.element_count * one.parameter.element_size() for one in stepped)
        state_bytes = sum(one.count * one.state_bytes for one in stepped)
        item_bytes_per_element, state_bytes_per_element = item_bytes / element_count, state_bytes / element_count
        self.recorder.record(
            "optimizer",
            inputs=gradient,
            outputs=(),
            attributes={
                "name": name,
                "element_count": element_count,
                "tensor_count": tensor_count,
                # A fused optimizer makes one call for all of them.
                "calls_per_tensor": max(1.0, sum(one.count for one in calls) / tensor_count),
                "flops_per_element": sum(one.cost.flops for one in calls) / updated_count,
                "loop_read_bytes_per_element": sum(one.cost.read_bytes for one in calls) / updated_count,
                "loop_write_bytes_per_element": sum(one.cost.write_bytes for one in calls) / updated_count,
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
    """Return one trained parameter of each shape and dtype, and the number that each represents, by id.

    Parameters with sparse gradients, which may have any number of elements, represent themselves only.
    """
    chosen: dict[Any, torch.Tensor] = {}
    counts: dict[int, int] = {}
    for parameter in parameters:
        if parameter.grad is None:
            continue
        alone = id(parameter) if is_sparse(parameter.grad) else None
        first = chosen.setdefault((tuple(parameter.shape), parameter.dtype, alone), parameter)
        counts[id(first)] = counts.get(id(first), 0) + 1
    return list(chosen.values()), counts
