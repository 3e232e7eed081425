"""Times the steps of a model in the user's own training or inference loop, and the waits between them.

Hooks on the model's calls and on optimizers record timestamps. On a GPU these are events in its stream: the host never
has to wait, and the time between the end of a step and the start of the next is the idle time of the device.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.utils import _pytree as pytree

from advisor.calibrate.noise import OthersLoad
from advisor.calibrate.repeat_timing import step_timing
from advisor.errors import UsageError
from advisor.records.device import CompileMode, Layout, Precision
from advisor.records.timing import StepTiming
from advisor.records.workload import Mode
from advisor.workload.loaded import Inputs, is_compiled, tensors_in
from advisor.workload.torch_devices import AUTOCAST_OF, HALF_OF, gpu_uuid, layout_of, plain_precision

WARM_UP_COUNT = 2
"""First steps, which are not counted: they allocate memory and choose kernels."""
_LEAST_COUNT = 3
_MOST_COUNT = 1000
"""Steps that are recorded; the hooks ignore later ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """How the model ran at its first call, or at its first call with gradients."""

    inputs: Inputs
    device: str
    """Torch's name of the device."""
    gpu_uuid: str | None
    """The driver's UUID of a GPU."""
    thread_count: int
    """Threads of torch's operators."""
    has_gradients: bool
    precision: Precision
    layout: Layout
    compile: CompileMode


@dataclass(slots=True)
class _Step:
    """One step, from `begin` to `end`."""

    begin: Any
    waited: bool
    """True if only data loading came before it."""
    batch: int = 0
    """Samples of all its passes."""
    end: Any = None


@dataclass(slots=True)
class Observer:
    """Records the steps of a model."""

    model: nn.Module
    run: Run | None = None
    optimizer: Optimizer | None = None
    _steps: list[_Step] = field(default_factory=list)
    _open: _Step | None = None
    _is_interrupted: bool = False
    _load: OthersLoad | None = None
    """Measured from the first step that counts."""
    _others_cpu_count: float = 0.0

    @contextmanager
    def following(self) -> Iterator[None]:
        """Record the model's calls and its optimizers' steps inside the `with`; the hooks are removed afterwards."""
        parts = list(self.model.modules())
        first = next((part for part in parts if part._parameters), self.model)
        inner = self.model if any(map(is_compiled, parts)) else first
        handles = [
            self.model.register_forward_pre_hook(self._before_call, with_kwargs=True),
            inner.register_forward_pre_hook(self._inside_call),
            self.model.register_forward_hook(self._after_call),
            register_optimizer_step_post_hook(self._after_optimizer),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()
            if self._load is not None:
                self._others_cpu_count = self._load.cpu_count()

    @property
    def mode(self) -> Mode:
        """Return "training" if an optimizer has stepped, else "inference"."""
        return "inference" if self.optimizer is None else "training"

    def timing(self) -> StepTiming:
        """Return the timing of the most frequent batch size, without the first steps.

        Raises `UsageError` if there are too few steps.
        """
        steps = self._steps[WARM_UP_COUNT:]
        counts = Counter(step.batch for step in steps)
        batch, count = counts.most_common(1)[0] if counts else (0, 0)
        if count < _LEAST_COUNT or self.run is None:
            if self.optimizer is None and self._open is not None:
                raise UsageError(
                    "the model was called with gradients enabled, and no optimizer of its parameters stepped",
                    hint="call it under torch.no_grad() or torch.inference_mode() for inference; for training, let the "
                    "optimizer step inside the `with`",
                )
            most = f", {count} of one batch size after the first {WARM_UP_COUNT}" if len(counts) > 1 else ""
            raise UsageError(
                f"only {len(self._steps)} steps of the model were observed{most}; {_LEAST_COUNT} of one batch size are "
                f"needed after the first {WARM_UP_COUNT}",
                hint="run several steps inside the `with`, with the model that was passed to observe()",
            )
        between = _seconds_between(torch.device(self.run.device))
        took_s = [between(step.begin, step.end) for step in steps if step.batch == batch]
        waits = [
            between(before.end, step.begin)
            for before, step in zip(self._steps[WARM_UP_COUNT - 1 :], steps, strict=False)
            if step.waited and step.batch == batch
        ]
        timing = step_timing(
            took_s,
            batch=batch,
            step_count=len(took_s),
            loader_wait_s=sum(waits) / len(waits) if waits else None,
        )
        return replace(timing, others_cpu_count=self._others_cpu_count)

    def _before_call(self, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if len(self._steps) >= _MOST_COUNT:
            return
        if self.optimizer is not None and not torch.is_grad_enabled():
            self._is_interrupted = True  # an evaluation between two steps
            return
        if self.run is None or (torch.is_grad_enabled() and not self.run.has_gradients):
            self.run = _run_of(model, (args, kwargs))  # the first call, and the first that is no evaluation
        if self._open is None:
            if len(self._steps) == WARM_UP_COUNT:
                self._load = OthersLoad()
            self._open = _Step(_moment(self.run.device), waited=not self._is_interrupted)
            self._is_interrupted = False
        self._open.batch += next((tensor.shape[0] for tensor in tensors_in((args, kwargs)) if tensor.dim()), 1)

    def _inside_call(self, inner: nn.Module, args: Any) -> None:
        """See autocast that the model's own forward enters; Accelerate wraps the forward in it."""
        run = self.run
        if run is not None and self._open is not None and not run.precision.startswith("amp"):
            device = torch.device(run.device)
            if torch.is_autocast_enabled(device.type):
                self.run = replace(run, precision=_precision(device, torch.float32))

    def _after_call(self, model: nn.Module, args: Any, output: Any) -> None:
        if self.optimizer is None and not torch.is_grad_enabled():
            self._close()

    def _after_optimizer(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        mine = {id(parameter) for parameter in self.model.parameters()}
        if not any(id(parameter) in mine for group in optimizer.param_groups for parameter in group["params"]):
            return
        if self.optimizer is None:
            self._steps.clear()  # an evaluation before the first step
        self.optimizer = optimizer
        self._close()

    def _close(self) -> None:
        if self._open is not None and self.run is not None:
            self._open.end = _moment(self.run.device)
            self._steps.append(self._open)
            self._open = None


def _run_of(model: nn.Module, inputs: Inputs) -> Run:
    tensors, parameter = tensors_in(inputs), next(model.parameters(), None)
    device = _device_of(parameter, tensors)
    return Run(
        inputs=pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, inputs),
        device=f"cuda:{device.index or 0}" if device.type == "cuda" else device.type,
        gpu_uuid=gpu_uuid(device.index or 0) if device.type == "cuda" else None,
        thread_count=torch.get_num_threads(),
        has_gradients=torch.is_grad_enabled(),
        precision=_precision(device, torch.float32 if parameter is None else parameter.dtype),
        layout=layout_of(tensors),
        compile="compile" if is_compiled(model) else "eager",
    )


def _device_of(parameter: nn.Parameter | None, inputs: Sequence[torch.Tensor]) -> torch.device:
    """Return the device of the model's parameters, or else of its inputs."""
    return next((tensor.device for tensor in (parameter, *inputs) if tensor is not None), torch.device("cpu"))


def _precision(device: torch.device, dtype: torch.dtype) -> Precision:
    if torch.is_autocast_enabled(device.type):
        return AUTOCAST_OF.get(torch.get_autocast_dtype(device.type), "fp32")
    return HALF_OF.get(dtype) or (plain_precision() if device.type == "cuda" else "fp32")


def _moment(device: str) -> Any:
    """Return a timestamp of now: the clock's time on a CPU, an event in the stream on a GPU."""
    if device == "cpu":
        return time.perf_counter()
    if device == "mps":
        on_mps = torch.mps.Event(enable_timing=True)
        on_mps.record()
        return on_mps
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(torch.device(device)))  # this device's stream, even if another is current
    return event


def _seconds_between(device: torch.device) -> Callable[[Any, Any], float]:
    if device.type == "cpu":
        return lambda begin, end: float(end - begin)
    torch.mps.synchronize() if device.type == "mps" else torch.cuda.synchronize(device)
    return lambda begin, end: float(begin.elapsed_time(end)) / 1e3
