"""A loaded model in, one step of it as a Workload out, without running it where that can be avoided."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn
from torch.utils import _pytree as pytree

from advisor.errors import AdvisorError, TraceError
from advisor.machine.memory import free_memory_bytes
from advisor.records.workload import SCHEMA_VERSION, Attention, Mode, Operand, Workload
from advisor.workload.affine import memory_lines, merge_rows, merge_shape, merged_blocks, taken_ratios
from advisor.workload.assumed_sizes import AssumedSizes
from advisor.workload.companions import companions_of
from advisor.workload.composites import Composites, fast_paths
from advisor.workload.fakes import fake_inputs, fake_mode, real_inputs, to_clone, to_fake, untouched, with_tensors
from advisor.workload.loaded import Inputs, LoadedModel
from advisor.workload.optimizer_step import OptimizerSteps
from advisor.workload.recorder import Recorder, Recording
from advisor.workload.training_step import batch_value, loss_of, optimizer_of
from advisor.workload.user_error import raised_by_us

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

Method = Literal["fake", "symbolic", "cpu_step"]

_CPU_STEP_BATCH = 4
"""A real step is traced at this batch at most, twice and three times of it: sizes are learned, not speeds."""
_CPU_STEP_COPIES = {"inference": 2, "training": 6}
"""Copies of the parameters a real step needs room for: ours and activations; in training gradients and state too."""


class NotAffineError(Exception):
    """The steps traced at several batch sizes do not follow from one another."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One traced step: what was recorded, the tensors that were handed in, the optimizers that stepped, and what was
    assumed of sizes, in words."""

    recording: Recording
    inputs: tuple[tuple[tuple[int, ...], str], ...]
    optimizers: tuple[str, ...]
    assumed: tuple[str, ...]


def trace(
    loaded: LoadedModel, *, mode: Mode, batch: int | None, isolated: bool = False, attention: Attention = "auto"
) -> Workload:
    """Trace one step of `loaded` on fake tensors; where its code needs values, on assumed sizes; else by a real step.

    `batch` matters only where dimensions are not affine in the batch, or the batch is fixed. `isolated`: the process
    exists for tracing alone. Where `attention` is "eager", what attention the model leaves to torch takes torch's math
    path. Raises whatever the user's code raises, and TraceError when a real step would be needed and does not fit in
    this machine's memory. A mistake of our own is no reason to try another way.
    """
    first_error: Exception | None = None
    for method in ("fake", "symbolic"):
        tracer = _Tracer(loaded, mode=mode, method=method, isolated=isolated, attention=attention)
        try:
            return tracer.workload(batch)
        except AdvisorError:
            raise
        except Exception as error:  # the user's code runs in there, and may raise anything
            if raised_by_us(error):
                raise
            first_error = first_error or error
    _require_memory_for_cpu_step(loaded, mode, first_error)
    return _Tracer(loaded, mode=mode, method="cpu_step", isolated=isolated, attention=attention).workload(batch)


class _Tracer:
    """Traces one model by one method; keeps the fake mode, which knows the calls it has seen."""

    def __init__(
        self, loaded: LoadedModel, *, mode: Mode, method: Method, isolated: bool, attention: Attention
    ) -> None:
        self._loaded = loaded
        self._attention = attention
        self._mode = mode
        self._method = method
        self._fake = None if method == "cpu_step" else fake_mode(symbolic=method == "symbolic", isolated=isolated)
        functions = (loaded.loss, loaded.optimizer, loaded.train_step) if mode == "training" else ()
        self._companions = companions_of(loaded.model, functions)

    def workload(self, batch: int | None) -> Workload:
        wanted = batch or self._loaded.batch
        if self._loaded.batch_is_fixed:
            return self._merged([self._loaded.batch], [self._step(self._loaded.batch)])
        base = min(self._loaded.batch, _CPU_STEP_BATCH) if self._method == "cpu_step" else self._loaded.batch
        # A batch of one may take other ways through torch (squeezes, strides): it follows from larger ones.
        batches = [2, 4, 3] if base == 1 else [base, 2 * base, 3 * base]
        try:
            steps = [self._step(size) for size in batches]
        except AdvisorError:
            raise
        except Exception as error:  # the user's code, which may take no batch but its own
            if raised_by_us(error):
                raise
            reason = f"others fail ({str(error).strip().partition(chr(10))[0]})"
        else:
            try:
                return self._merged(batches, steps)
            except NotAffineError:
                reason = f"sizes at {', '.join(map(str, batches))} do not grow as a + b x batch"
        return self._merged([wanted], [self._step(wanted)], notes=(f"traced at batch {wanted} alone: {reason}",))

    def _step(self, batch: int) -> Step:
        loaded, fake = self._loaded, self._fake
        with untouched([loaded.model, *self._companions]):
            inputs = (
                real_inputs(loaded.make_inputs, batch) if fake is None else fake_inputs(fake, loaded.make_inputs, batch)
            )
            loaded.model.train(self._mode == "training")
            following = following_step(loaded.model, companions=self._companions, fake=fake, attention=self._attention)
            with following as follower:
                if self._mode == "training":
                    _training_step(loaded, inputs, follower.recorder)
                else:
                    with torch.no_grad():
                        loaded.model(*inputs[0], **inputs[1])
            return follower.step(inputs)

    def _merged(self, batches: Sequence[int], steps: Sequence[Step], *, notes: Sequence[str] = ()) -> Workload:
        loaded = self._loaded
        assumptions = [*loaded.notes, *notes]
        if len(batches) > 1 and all(step.inputs == steps[0].inputs for step in steps):
            assumptions.append("the inputs are the same at every batch size")
        if self._mode == "training" and loaded.train_step is None:
            if loaded.loss is None:
                assumptions.append("loss: the mean of the float outputs, since the file defines none")
            if loaded.optimizer is None:
                assumptions.append("optimizer: AdamW, since the file defines none")
        return merged_workload(
            model=loaded.model,
            name=loaded.name,
            mode=self._mode,
            batch=loaded.batch if len(batches) > 1 else batches[0],
            batches=batches,
            steps=steps,
            method=self._method,
            assumptions=[*assumptions, *method_notes(self._method, steps[0])],
        )


@dataclass(slots=True)
class Follower:
    """A step being traced."""

    recorder: Recorder
    optimizers: OptimizerSteps

    def step(self, inputs: Any) -> Step:
        """The step, once it is over."""
        return Step(
            recording=self.recorder.finish(),
            inputs=tuple(
                (tuple(self.recorder.sizes(size) for size in tensor.shape), str(tensor.dtype).removeprefix("torch."))
                for tensor in pytree.tree_leaves(inputs)
                if isinstance(tensor, torch.Tensor)
            ),
            optimizers=tuple(dict.fromkeys(self.optimizers.names)),
            assumed=self.recorder.sizes.notes(),
        )


@contextmanager
def following_step(
    model: nn.Module, *, companions: Sequence[Any], fake: "FakeTensorMode | None", attention: Attention = "auto"
) -> Iterator[Follower]:
    """Record what happens inside, on stand-ins for the tensors of `model` and `companions`: fake ones with `fake`, real
    copies without. Call inside `untouched`, or where the process ends with the step."""
    replaced = with_tensors([model, *companions], to_clone if fake is None else lambda tensor: to_fake(fake, tensor))
    networks = [companion for companion in companions if isinstance(companion, nn.Module)]
    sizes = AssumedSizes()
    shape_env: Any = None if fake is None else fake.shape_env
    if shape_env is not None:
        shape_env.sizes = sizes
    recorder = Recorder(model, companions=networks, sizes=sizes, symbolic=shape_env is not None)
    optimizers = OptimizerSteps(recorder=recorder, fakes=replaced)
    with ExitStack() as stack:
        if fake is not None:
            stack.enter_context(fake)
        stack.enter_context(recorder.following())
        stack.enter_context(optimizers.following())
        if attention != "eager":
            stack.enter_context(fast_paths())
        stack.enter_context(Composites(recorder, real=fake is None, attention=attention).catching())
        stack.enter_context(recorder)
        yield Follower(recorder=recorder, optimizers=optimizers)


def _training_step(loaded: LoadedModel, inputs: Inputs, recorder: Recorder) -> None:
    """Forward, loss, backward, optimizer, as the file defines them or by default."""
    batch = batch_value(inputs)
    if loaded.train_step is not None:
        loaded.train_step(loaded.model, batch)
        return
    optimizer = optimizer_of(loaded)
    output = loaded.model(*inputs[0], **inputs[1])
    recorder.phase = "loss"
    loss_of(loaded, output, batch).backward()
    optimizer.step()


def merged_workload(
    *,
    model: nn.Module,
    name: str,
    mode: Mode,
    batch: int,
    batches: Sequence[int],
    steps: Sequence[Step],
    method: Method,
    assumptions: Sequence[str],
) -> Workload:
    """The Workload of `steps`, traced at `batches`; with one step it holds for that batch alone.

    Raises NotAffineError where rows or inputs do not grow with the batch as a + b x batch.
    """
    recordings = [step.recording for step in steps]
    rows, inputs = merge_rows(recordings, batches), _merged_inputs(steps, batches)
    if rows is None or inputs is None:
        raise NotAffineError
    parameters = list(model.parameters())
    optimizers = [optimizer for step in steps[:1] for optimizer in step.optimizers]
    return Workload(
        schema_version=SCHEMA_VERSION,
        name=name,
        mode=mode,
        batch=batch,
        batch_is_affine=len(batches) > 1,
        traced_batches=tuple(batches),
        method=method,
        torch_version=torch.__version__,
        parameter_count=sum(parameter.numel() for parameter in parameters),
        parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters),
        optimizer=", ".join(optimizers) or None,
        inputs=inputs,
        rows=rows,
        memory=memory_lines(recordings, batches),
        unknown_ops=recordings[0].unknown_ops,
        assumptions=(*assumptions, *_recomputed_notes(recordings[0])),
        blocks=merged_blocks(recordings, batches),
        taken=taken_ratios(recordings[0]),
    )


def _recomputed_notes(recording: Recording) -> tuple[str, ...]:
    """What the user must know where the model saves memory by itself."""
    if not recording.recomputed:
        return ()
    paths = [blocks.path for blocks in recording.blocks]
    enclosing = (
        next((path for path in paths if f"{name}.".startswith(f"{path}.")), name) for name in recording.recomputed
    )
    listed = ", ".join(dict.fromkeys(enclosing))
    return (f"torch.utils.checkpoint: {listed} run again in backward, and keep nothing for it",)


def _merged_inputs(steps: Sequence[Step], batches: Sequence[int]) -> tuple[Operand, ...] | None:
    if len({len(step.inputs) for step in steps}) != 1:
        return None  # a list of as many tensors as samples
    operands = []
    for traced in zip(*(step.inputs for step in steps), strict=True):
        shape = merge_shape([sizes for sizes, _ in traced], batches)
        if shape is None:
            return None
        operands.append(Operand(shape=shape, dtype=traced[0][1]))
    return tuple(operands)


def method_notes(method: Method, step: Step) -> tuple[str, ...]:
    """What the user must know of how the step was traced."""
    if method == "cpu_step":
        return ("traced by a real step on this CPU, since the code needs values that fake tensors do not have",)
    return step.assumed


def _require_memory_for_cpu_step(loaded: LoadedModel, mode: Mode, error: Exception | None) -> None:
    """Raise TraceError where the parameters alone show that a real step cannot fit."""
    free_bytes = free_memory_bytes()
    parameter_bytes = sum(parameter.numel() * parameter.element_size() for parameter in loaded.model.parameters())
    needed_bytes = _CPU_STEP_COPIES[mode] * parameter_bytes
    if free_bytes is not None and needed_bytes > free_bytes:
        raise TraceError(
            f"{loaded.name} cannot be traced on fake tensors ({type(error).__name__}: {error}), and a real step needs "
            f"about {needed_bytes / 2**30:.0f} GiB of the {free_bytes / 2**30:.0f} GiB that are free",
            hint="trace a smaller configuration, or keep .item(), .tolist() and branches on values out of the step",
        ) from error
