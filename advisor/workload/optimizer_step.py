"""The optimizer's step as one composite: what it does per element, and what state it keeps."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from advisor.workload.recorder import Recorder


@dataclass(slots=True)
class _Step:
    groups: list[list[torch.Tensor]]
    counts: dict[int, int]
    parameters: list[torch.Tensor]


@dataclass(slots=True)
class OptimizerSteps:
    """Follows `Optimizer.step`. Optimizers treat each parameter by itself and alike for equal shapes, so the step runs
    on one parameter of each shape and is multiplied.

    `fakes` maps the id of a real parameter to its fake: an optimizer built before tracing holds the real ones.
    """

    recorder: Recorder
    fakes: dict[int, torch.Tensor]
    names: list[str] = field(default_factory=list)
    on_step: Callable[[], None] | None = None
    _running: dict[int, _Step] = field(default_factory=dict)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Catch every step of every optimizer inside."""
        before = register_optimizer_step_pre_hook(self._before)
        after = register_optimizer_step_post_hook(self._after)
        try:
            yield
        finally:
            before.remove()
            after.remove()

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        groups = [group["params"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["params"] = [self.fakes.get(id(parameter), parameter) for parameter in group["params"]]
        trained = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        counts: dict[int, int] = {}
        if kwargs.get("closure") is None and len(args) < 2 and "closure" not in kwargs:
            for group in optimizer.param_groups:
                group["params"], seen = _one_of_each_shape(group["params"])
                counts.update(seen)
        self._running[id(optimizer)] = _Step(groups=groups, counts=counts, parameters=trained)
        self.recorder.begin_composite()

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        step = self._running.pop(id(optimizer))
        stepped = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        state_bytes = [_state_bytes(optimizer.state.get(parameter, {})) for parameter in stepped]
        all_state_bytes = sum(
            own_bytes * step.counts.get(id(parameter), 1)
            for parameter, own_bytes in zip(stepped, state_bytes, strict=True)
        )
        cost = self.recorder.end_composite(state_bytes=all_state_bytes, held_bytes=sum(state_bytes))
        for group, parameters in zip(optimizer.param_groups, step.groups, strict=True):
            group["params"] = parameters
        stand_ins = {id(fake) for fake in self.fakes.values()}
        for parameter in stepped:
            if id(parameter) in stand_ins:
                optimizer.state.pop(parameter, None)
        name = type(optimizer).__name__
        self.names.append(name)
        element_count = sum(parameter.numel() for parameter in step.parameters)
        if element_count:
            stepped_elements = sum(parameter.numel() for parameter in stepped)
            item_bytes = sum(parameter.numel() * parameter.element_size() for parameter in step.parameters)
            item_bytes_per_element = item_bytes / element_count
            state_bytes_per_element = all_state_bytes / element_count
            self.recorder.record(
                "optimizer",
                inputs=(),
                outputs=(),
                attributes={
                    "name": name,
                    "element_count": element_count,
                    "tensor_count": len(step.parameters),
                    "calls_per_tensor": cost.call_count / len(stepped),
                    "flops_per_element": cost.flops / stepped_elements,
                    "loop_read_bytes_per_element": cost.read_bytes / stepped_elements,
                    "loop_write_bytes_per_element": cost.write_bytes / stepped_elements,
                    # Once over memory: parameter, gradient and state are read, parameter and state written.
                    "read_bytes_per_element": 2 * item_bytes_per_element + state_bytes_per_element,
                    "write_bytes_per_element": item_bytes_per_element + state_bytes_per_element,
                    "state_bytes_per_element": state_bytes_per_element,
                },
            )
        if self.on_step is not None:
            self.on_step()


def _state_bytes(state: dict[str, Any]) -> int:
    tensors = [value for value in state.values() if isinstance(value, torch.Tensor)]
    return sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def _one_of_each_shape(parameters: list[torch.Tensor]) -> tuple[list[torch.Tensor], dict[int, int]]:
    """One trained parameter of each shape and dtype, and by its id for how many it stands."""
    chosen: dict[Any, torch.Tensor] = {}
    counts: dict[int, int] = {}
    for parameter in parameters:
        if parameter.grad is None:
            continue
        first = chosen.setdefault((tuple(parameter.shape), parameter.dtype), parameter)
        counts[id(first)] = counts.get(id(first), 0) + 1
    return list(chosen.values()), counts
