"""Records the optimizer's step as one composite, with its cost per element and the state it keeps."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from advisor.ops.registry import Cost
from advisor.workload.loaded import tensors_in
from advisor.workload.patching import in_this_thread
from advisor.workload.recorder import PAUSED, Recorder


@dataclass(slots=True, kw_only=True)
class _Step:
    """A step that is running."""

    groups: list[dict[str, Any]]
    """The optimizer's original parameter groups."""
    counts: dict[int, int] = field(default_factory=dict)
    """Parameter id -> how many parameters it represents."""


@dataclass(slots=True)
class OptimizerSteps:
    """Follows `Optimizer.step`.

    Optimizers update each parameter separately, and parameters of equal shape in the same way, so the step runs on one
    parameter of each shape and is multiplied. With a closure, which computes the gradients, it runs on all. It runs
    twice, because the first step creates the state and is not the one that training repeats.
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

            def outside() -> Any:
                with self.recorder.outside_composite():
                    return closure()

            self.recorder.begin_composite()
            return (args[0], outside), {name: kwargs[name] for name in kwargs if name != "closure"}
        for group in optimizer.param_groups:
            group["params"], counts = _one_of_each_shape(group["params"])
            step.counts.update(counts)
        with self.recorder.within(PAUSED):
            type(optimizer).step(*args, **kwargs)
        self.recorder.leave_out(_state_tensors(optimizer))
        self.recorder.begin_composite()
        return None

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer not in self._running:
            self._after_closure(optimizer)
            return
        step = self._running[optimizer]
        if not self.recorder.in_composite:
            return  # the first step
        stepped = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        counts = [step.counts.get(id(parameter), 1) for parameter in stepped]
        state_bytes = sum(
            count * tensor.untyped_storage().nbytes()
            for parameter, count in zip(stepped, counts, strict=True)
            for tensor in tensors_in(optimizer.state.get(parameter, {}))
        )
        costs = self.recorder.end_composite(
            owner=id(optimizer), state=_state_tensors(optimizer), state_bytes=state_bytes
        )
        self._put_back(optimizer, self._running.pop(optimizer))
        if stepped:
            self._record(type(optimizer).__name__, costs, stepped=stepped, counts=counts, state_bytes=state_bytes)
        self._stepped(optimizer)

    def _stepped(self, optimizer: Optimizer) -> None:
        self.names.append(type(optimizer).__name__)
        self.held.update(map(id, self.parameters_of(optimizer)))
        if self.on_step is not None:
            self.on_step(optimizer)

    def _after_closure(self, optimizer: Optimizer) -> None:
        """Record a step that began before tracing, because its closure made the first call of the model.

        The gradients exist, so the update is run again, unless the optimizer (LBFGS) requires its closure.
        """
        if inspect.signature(type(optimizer).step).parameters["closure"].default is None:
            type(optimizer).step(optimizer)
        else:
            self._stepped(optimizer)

    def _record(
        self, name: str, costs: list[Cost], *, stepped: list[torch.Tensor], counts: list[int], state_bytes: int
    ) -> None:
        """Record the step; `counts` says how many parameters each parameter in `stepped` represents."""
        stepped_elements = sum(parameter.numel() for parameter in stepped)
        element_count = sum(count * p.numel() for p, count in zip(stepped, counts, strict=True))
        item_bytes = sum(count * p.numel() * p.element_size() for p, count in zip(stepped, counts, strict=True))
        item_bytes_per_element, state_bytes_per_element = item_bytes / element_count, state_bytes / element_count
        self.recorder.record(
            "optimizer",
            inputs=(),
            outputs=(),
            attributes={
                "name": name,
                "element_count": element_count,
                "tensor_count": sum(counts),
                # A fused optimizer makes one call for all of them.
                "calls_per_tensor": max(1.0, len(costs) / len(stepped)),
                "flops_per_element": sum(cost.flops for cost in costs) / stepped_elements,
                "loop_read_bytes_per_element": sum(cost.read_bytes for cost in costs) / stepped_elements,
                "loop_write_bytes_per_element": sum(cost.write_bytes for cost in costs) / stepped_elements,
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
