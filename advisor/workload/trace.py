"""Traces one step of a loaded model as a Workload, without running it if possible."""

import threading
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from advisor.errors import TraceError
from advisor.machine.limits import free_memory_bytes
from advisor.records.workload import SCHEMA_VERSION, Attention, Mode, Workload
from advisor.workload.affine import (
    SQUARED_COUNT,
    NotAffineError,
    has_squares,
    memory_lines,
    merge_operands,
    merge_rows,
    merged_blocks,
    squared_taken_ratios,
    taken_ratios,
)
from advisor.workload.assumed_sizes import AssumedSizes
from advisor.workload.caught_composites import Composites, fast_paths
from advisor.workload.companions import companions_of
from advisor.workload.cuda_redirect import cuda_redirected
from advisor.workload.fakes import (
    fake_inputs,
    fake_mode,
    fake_tensor_log_silenced,
    real_inputs,
    to_clone,
    to_fake,
    untouched,
    with_foreach,
    with_tensors,
)
from advisor.workload.forked import can_fork, forked
from advisor.workload.lazy_modules import initialized
from advisor.workload.loaded import (
    Inputs,
    LoadedModel,
    batch_value,
    in_mode,
    loss_of,
    optimizer_of,
    own_loss,
    tensors_in,
)
from advisor.workload.optimizer_step import OptimizerSteps
from advisor.workload.patching import patched
from advisor.workload.real_step import SMALLER_STEP_HINT, real_step_note, running_for_real
from advisor.workload.recorder import Moment, Recorder, Recording
from advisor.workload.user_error import is_of_user

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensorMode

Method = Literal["fake", "symbolic", "cpu_step"]

_CPU_STEP_BATCH = 4
"""Largest base batch of a real step, which is also traced at 2 and 3 times it; only sizes are needed, not times."""
_CPU_STEP_COPIES = {"inference": 2, "training": 6}
"""Memory of a real step in copies of the parameters: a copy and activations; in training also gradients and state."""


_LAYER_DROPS = ("layerdrop", "encoder_layerdrop", "decoder_layerdrop")
"""The names under which models of transformers and fairseq hold the probability."""
_ONE_AT_A_TIME = threading.RLock()
"""Random generators, warning filters and torch's functions are shared by the process. The lock is reentrant: patches of
a nested trace lie on top and are removed first."""


@fake_tensor_log_silenced()
def trace(
    loaded: LoadedModel,
    *,
    mode: Mode,
    batch: int | None,
    isolated: bool = False,
    attention: Attention = "auto",
    half_attention: bool = False,
    real_step: bool = True,
) -> Workload:
    """Trace one step on fake tensors; if its code needs values, with assumed sizes; if that fails, by a real step.

    Without `real_step` the last is left out, and what the code raised is raised. `batch` matters only if the dimensions
    are not affine in the batch. LayerDrop is left out. `isolated` means that the process exists only for tracing. With
    `attention` "eager", attention that the model leaves to torch takes torch's math path; with `half_attention`
    autocast runs it in half, as until PyTorch 2.4. Raises whatever the user's code raises, and `TraceError` if a real
    step is needed but does not fit in this machine's memory. Bugs of our own are raised at once, without trying the
    next method.
    """
    loaded = initialized(loaded, mode=mode)
    drops = _layer_drops(loaded.model) if mode == "training" else []
    if drops:
        note = "LayerDrop is left out: no layer is dropped, so real steps are shorter on average"
        loaded = replace(loaded, notes=(*loaded.notes, note))
    with patched(((*drop, 0.0) for drop in drops), in_all_threads=True):
        return _traced(
            loaded,
            mode=mode,
            batch=batch,
            isolated=isolated,
            attention=attention,
            half_attention=half_attention,
            real_step=real_step,
        )


def _layer_drops(model: nn.Module) -> list[tuple[Any, str]]:
    """Return the objects and their attributes that hold a probability of dropping a layer (Fan et al., 2020)."""
    owners = {id(one): one for module in model.modules() for one in (module, getattr(module, "config", None))}
    found = (
        (owner, name) for owner in owners.values() for name in _LAYER_DROPS if name in getattr(owner, "__dict__", ())
    )
    return [(owner, name) for owner, name in found if isinstance(vars(owner)[name], float) and vars(owner)[name] > 0]


def _traced(
    loaded: LoadedModel,
    *,
    mode: Mode,
    batch: int | None,
    isolated: bool,
    attention: Attention,
    half_attention: bool,
    real_step: bool,
) -> Workload:
    """Trace one step by the first method that works."""
    tracer_by = partial(
        _Tracer, loaded, mode=mode, isolated=isolated, attention=attention, half_attention=half_attention
    )
    first_error: Exception | None = None
    for method in ("fake", "symbolic"):
        tracer = tracer_by(method=method)
        try:
            return tracer.workload(batch)
        except Exception as error:  # the user's code runs in there, and may raise anything
            if not is_of_user(error):
                raise
            first_error = first_error or error
    if not real_step and first_error is not None:
        raise first_error
    _require_memory_for_cpu_step(loaded, mode, first_error)
    with running_for_real(first_error):
        return tracer_by(method="cpu_step", notes=(real_step_note(first_error),)).workload(batch)


@contextmanager
def gradients_allowed() -> Iterator[None]:
    """Allow training inside, even if the caller is in `torch.no_grad()` or `torch.inference_mode()`."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        yield


@contextmanager
def compiled_code_run_eagerly() -> Iterator[None]:
    """Run what the caller compiled before as eager code inside; Dynamo would compile the tracer's functions with it.

    The stance of torch's compiler is shared by all threads; torch has it since version 2.6.
    """
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        # The tracer's hooks, which may also see the wrapper of a compiled module.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        yield


def trace_live(
    loaded: LoadedModel, *, mode: Mode, batch: int | None, attention: Attention, real_step: bool = True
) -> Workload:
    """Trace one step in the caller's own process, and leave it unchanged.

    `real_step` is as `trace` takes it. One thread traces at a time; the others see torch unpatched, except that what
    they compiled runs eagerly meanwhile. They must not call this model, whose tensors are replaced until the end.
    """
    with _ONE_AT_A_TIME, gradients_allowed(), cuda_redirected(in_all_threads=False), compiled_code_run_eagerly():
        return trace(loaded, mode=mode, batch=batch, attention=attention, real_step=real_step)


class _Tracer:
    """Traces one model by one method; keeps the fake mode, which caches the calls it has seen.

    `notes` belong to the workload. `how` is `attention` and `half_attention`, as `following_step` takes them.
    """

    def __init__(
        self, loaded: LoadedModel, *, mode: Mode, method: Method, isolated: bool, notes: Sequence[str] = (), **how: Any
    ) -> None:
        self._loaded, self._mode, self._method, self._how = loaded, mode, method, how
        self._isolated, self._notes = isolated, notes
        self._fake = None if method == "cpu_step" else fake_mode(symbolic=method == "symbolic", isolated=isolated)
        functions = (loaded.loss, loaded.optimizer, loaded.train_step) if mode == "training" else ()
        self._companions = companions_of(loaded.model, functions)

    def workload(self, batch: int | None) -> Workload:
        wanted = batch or self._loaded.batch
        if self._loaded.batch_is_fixed:
            return self._merged([self._loaded.batch], [self._step(self._loaded.batch)])
        base = min(self._loaded.batch, _CPU_STEP_BATCH) if self._method == "cpu_step" else self._loaded.batch
        # A batch of one may take other paths through torch (squeezes, strides), so it is derived from larger ones.
        batches = [2, 4, 3, 6] if base == 1 else [base, 2 * base, 3 * base, 4 * base]
        usual = 2 if self._loaded.is_affine and self._method == "fake" else 3
        try:
            steps = self._steps(batches[:usual])
            if has_squares(steps):
                steps += [self._step(size) for size in batches[usual:SQUARED_COUNT]]
            batches = batches[: len(steps)]
        except Exception as error:  # the user's code, which may accept only its own batch size
            if not is_of_user(error):
                raise
            reason = f"other batch sizes fail ({str(error).strip().partition(chr(10))[0]})"
        else:
            if all((step.rows, step.inputs) == (steps[0].rows, steps[0].inputs) for step in steps):
                counted = "1 sample" if self._loaded.batch == 1 else f"{self._loaded.batch:,} samples"
                note = f"a step counts as {counted}: its inputs are the same at every batch size"
                return self._merged([self._loaded.batch], steps[:1], notes=(note,))
            try:
                return self._merged(batches, steps)
            except NotAffineError:
                reason = f"sizes at {', '.join(map(str, batches))} do not grow as a + b x batch"
        return self._merged([wanted], [self._step(wanted)], notes=(f"traced only at batch {wanted}: {reason}",))

    def _steps(self, batches: Sequence[int]) -> list[Recording]:
        """Trace the batches one after the other, or two at the same time if no code of the user's would run twice."""
        first, *others = batches
        is_ours = self._isolated and self._loaded.is_affine
        if len(others) != 1 or not is_ours or not can_fork():
            return [self._step(size) for size in batches]
        with forked(partial(self._step, *others)) as other:
            return [self._step(first), other()]

    def _step(self, batch: int) -> Recording:
        loaded, fake = self._loaded, self._fake
        with untouched([loaded.model, *self._companions]):
            inputs = (
                real_inputs(loaded.make_inputs, batch) if fake is None else fake_inputs(fake, loaded.make_inputs, batch)
            )
            in_mode(loaded.model, self._mode)
            has_own_loss = False
            with following_step(loaded.model, companions=self._companions, fake=fake, **self._how) as follower:
                if self._mode == "training":
                    has_own_loss = _training_step(loaded, inputs, follower.recorder)
                else:
                    with torch.no_grad():
                        loaded.model(*inputs[0], **inputs[1])
            return replace(follower.step(inputs), has_own_loss=has_own_loss)

    def _merged(self, batches: Sequence[int], steps: Sequence[Recording], *, notes: Sequence[str] = ()) -> Workload:
        loaded = self._loaded
        assumptions = [*loaded.notes, *self._notes, *notes]
        if len(batches) > 1 and all(step.inputs == steps[0].inputs for step in steps):
            assumptions.append("the inputs are the same at every batch size, but the step is not")
        if self._mode == "training" and loaded.train_step is None:
            if loaded.loss is None:
                which = "the output's own" if steps[0].has_own_loss else "the mean of the float outputs"
                assumptions.append(f"loss: {which}, because none is given")
            if loaded.optimizer is None:
                assumptions.append("optimizer: AdamW, because none is given")
        return merged_workload(
            model=loaded.model,
            name=loaded.name,
            mode=self._mode,
            batch=loaded.batch if len(batches) > 1 else batches[0],
            batches=batches,
            steps=steps,
            method=self._method,
            assumptions=assumptions,
        )


@dataclass(slots=True)
class Follower:
    """A step being traced."""

    recorder: Recorder
    optimizers: OptimizerSteps
    own_ids: Set[int]
    """Ids of the model's parameters."""
    networks: Mapping[nn.Module, Sequence[torch.Tensor]]
    """The other networks, with their parameters."""
    loose: Sequence[torch.Tensor] = ()
    """Tensors that optimizers update and no network holds."""

    def step(self, inputs: Any, *, end: Moment | None = None, called: Collection[nn.Module] = ()) -> Recording:
        """Return the step, once it is over; `end` is when it was, if more was recorded since.

        Its parameters are those of the model, of the other networks that are trained, and of those in `called`.
        """
        used = [
            parts
            for network, parts in self.networks.items()
            if network in called or not self.optimizers.held.isdisjoint(map(id, parts))
        ]
        used.append([tensor for tensor in self.loose if id(tensor) in self.optimizers.held])
        others = {id(part): part for parts in used for part in parts if id(part) not in self.own_ids}.values()
        return replace(
            self.recorder.finish(inputs=tensors_in(inputs), optimizers=self.optimizers.names, end=end),
            other_parameter_count=sum(parameter.numel() for parameter in others),
            other_parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in others),
        )


@contextmanager
def following_step(
    model: nn.Module,
    *,
    companions: Sequence[Any],
    fake: "FakeTensorMode | None",
    attention: Attention = "auto",
    half_attention: bool = False,
    loose: Sequence[torch.Tensor] = (),
) -> Iterator[Follower]:
    """Record the step inside, on replacements of the tensors of `model` and `companions`.

    The replacements are fake tensors if `fake` is given, else real copies. Call inside `untouched`, unless the process
    ends with the step. `loose` are tensors that optimizers update and no network holds; they are not replaced.
    """
    stand_in = to_clone if fake is None else partial(to_fake, fake)
    replaced = with_tensors([model, *companions], stand_in, loose=loose)
    networks = [companion for companion in companions if isinstance(companion, nn.Module)]
    sizes = AssumedSizes()
    shape_env: Any = None if fake is None else fake.shape_env
    if shape_env is not None:
        shape_env.sizes = sizes
    recorder = Recorder(model, companions=networks, loose=loose, sizes=sizes, symbolic=shape_env is not None)
    optimizers = OptimizerSteps(recorder=recorder, fakes=replaced)
    with ExitStack() as stack:
        if fake is not None:
            stack.enter_context(fake)
            stack.enter_context(with_foreach())
        stack.enter_context(recorder.following())
        stack.enter_context(optimizers.following())
        if attention != "eager":
            stack.enter_context(fast_paths())
        composites = Composites(recorder, real=fake is None, attention=attention, half_attention=half_attention)
        stack.enter_context(composites.catching())
        stack.enter_context(recorder)
        yield Follower(
            recorder=recorder,
            optimizers=optimizers,
            own_ids=frozenset(map(id, model.parameters())),
            loose=loose,
            networks={network: tuple(network.parameters()) for network in networks},
        )


def _training_step(loaded: LoadedModel, inputs: Inputs, recorder: Recorder) -> bool:
    """Run forward, loss, backward and optimizer, the file's or the defaults; return True if the output has a loss."""
    batch = batch_value(inputs)
    if loaded.train_step is not None:
        loaded.train_step(loaded.model, batch)
        return False
    optimizer = optimizer_of(loaded)
    output = loaded.model(*inputs[0], **inputs[1])
    recorder.phase = "loss"
    loss, has_own_loss = loss_of(loaded, output, batch), own_loss(output) is not None
    if loaded.frees_output:
        del output
    loss.backward()
    optimizer.step()
    return has_own_loss


def merged_workload(
    *,
    model: nn.Module,
    name: str,
    mode: Mode,
    batch: int,
    batches: Sequence[int],
    steps: Sequence[Recording],
    method: Method,
    assumptions: Sequence[str],
) -> Workload:
    """Return the Workload of `steps`, traced at `batches`; with one step it holds only for that batch.

    Raises `NotAffineError` if rows or inputs do not grow as a + b x batch, or memory not as its square.
    """
    rows, inputs = merge_rows(steps, batches), merge_operands([step.inputs for step in steps], batches)
    parameters = list(model.parameters())
    return Workload(
        schema_version=SCHEMA_VERSION,
        name=name,
        mode=mode,
        batch=batch,
        batch_is_affine=len(batches) > 1,
        traced_batches=tuple(batches),
        method=method,
        torch_version=torch.__version__,
        parameter_count=sum(getattr(p, "weight_count", p.numel()) for p in parameters) + steps[0].other_parameter_count,
        parameter_bytes=sum(p.numel() * p.element_size() for p in parameters) + steps[0].other_parameter_bytes,
        optimizer=", ".join(steps[0].optimizers) or None,
        inputs=inputs,
        rows=rows,
        memory=memory_lines(steps, batches),
        unknown_ops=steps[0].unknown_ops,
        assumptions=(*assumptions, *steps[0].assumed, *_recomputed_notes(steps[0])),
        blocks=merged_blocks(steps, batches),
        taken=taken_ratios(steps[0].allocations),
        squared_taken=squared_taken_ratios(steps, batches),
        is_half=any(parameter.dtype in (torch.bfloat16, torch.float16) for parameter in parameters),
    )


def _recomputed_notes(recording: Recording) -> tuple[str, ...]:
    """Return a note if the model recomputes modules in backward to save memory."""
    if not recording.recomputed:
        return ()
    enclosing = (
        next((path for path in recording.blocks if f"{name}.".startswith(f"{path}.")), name)
        for name in recording.recomputed
    )
    listed = ", ".join(dict.fromkeys(enclosing))
    return (f"torch.utils.checkpoint: {listed} run again in backward and keep no activations for it",)


def _require_memory_for_cpu_step(loaded: LoadedModel, mode: Mode, error: Exception | None) -> None:
    """Raise `TraceError` if a real step cannot fit in memory, judged by the parameters alone."""
    free_bytes = free_memory_bytes()
    parameter_bytes = sum(parameter.numel() * parameter.element_size() for parameter in loaded.model.parameters())
    needed_bytes = _CPU_STEP_COPIES[mode] * parameter_bytes
    if free_bytes is not None and needed_bytes > free_bytes:
        raise TraceError(
            f"{loaded.name} cannot be traced on fake tensors ({type(error).__name__}: {error}), and a real step needs "
            f"about {needed_bytes / 2**30:.0f} GiB, but only {free_bytes / 2**30:.0f} GiB are free",
            hint=SMALLER_STEP_HINT,
        ) from error
