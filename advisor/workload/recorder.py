"""Records every operator call of a step: phase, module, operands, attributes, and the live memory after it."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import lru_cache
from operator import attrgetter
from typing import Any

import torch
from torch import nn
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.utils._python_dispatch import TorchDispatchMode

from advisor.errors import TraceError
from advisor.ops.evaluate import row_cost
from advisor.ops.gather import EXPANDED_INDEX, INDEXED_WRITES
from advisor.ops.registry import (
    COPIES_DESTINATION,
    IN_FULL,
    IN_HALF,
    UNFUSED,
    WITHOUT_INDICES,
    Autocast,
    Cost,
    Formula,
    autocast_of,
    formula_of,
)
from advisor.ops.sparse import name_on_sparse
from advisor.records.workload import Attribute, Operand, Phase, Row
from advisor.workload.allocators import Allocations
from advisor.workload.assumed_sizes import AssumedSizes
from advisor.workload.cpu_scratch import lstm_scratch
from advisor.workload.ctc_loss import ctc_loss_on_fakes, is_ctc_loss_on_fakes
from advisor.workload.fusion import Described, Fusion, TracedCall, fuse
from advisor.workload.loaded import unwrapped
from advisor.workload.memory_order import called_as_on_gpu, memory_order
from advisor.workload.patching import in_this_thread
from advisor.workload.sparse_fakes import called_on_sparse, is_sparse, parts_of, with_bags
from advisor.workload.storages import CELL, STORINGS, BlockBytes, BlockMemory, Category, Storages, Stored
from advisor.workload.user_error import passes_arguments_on, place_now

_ALLOCATIONS = frozenset(f"aten.{name}" for name in ("empty", "empty_like", "empty_strided", "new_empty"))
_COMPOSITE_OF = {
    "aten._scaled_dot_product_flash_attention_for_cpu": "attention",
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": "attention_backward",
    "aten._transformer_encoder_layer_fwd": "encoder_layer",
}
"""Fused CPU operators -> composites, which each kind of device lowers in its own way."""
_ENCODER_LAYER = torch.ops.aten._transformer_encoder_layer_fwd.default
_LOW, _LOW_ON_CPUS = attrgetter("low"), attrgetter("low_on_cpus")
_SAME_VALUE = "aten._unsafe_view"
"""A view that torch's schema does not declare as one."""
_SHAPE_QUESTIONS = FunctionalTensor.metadata_fns
"""Metadata queries on tensors with symbolic sizes, which must not be recorded as operators."""
_LSTM_RESULTS = 3
"""Output and two states; a fourth result is kept for backward."""
PAUSED = "paused"
_NAMES = {
    torch.float32: "float32",
    torch.int64: "int64",
    torch.bool: "bool",
    torch.int4: "int8",  # type: ignore[attr-defined]  # torch's stubs lack it
}
"""torch stores an element of `torch.int4` in a byte; "int4" is the format of quantized weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operator:
    """The properties of an operator that the recorder needs, looked up once."""

    op: str
    formula: Formula | None
    family: str
    argument_names: tuple[str, ...] = ()
    written_names: tuple[str, ...] = ()
    out_names: frozenset[str] = frozenset()
    is_view: bool = False
    falls_apart: bool = False
    """It is recorded as the operators that it decomposes into."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """A traced step."""

    rows: tuple[Row, ...]
    """The calls in order; an operand `varies` unless it is a parameter, a buffer or a parameter's gradient."""
    live_bytes: tuple[tuple[int, ...], ...]
    """Samples of the live memory by `storages.CELL`, one before all calls and one after each."""
    phases: tuple[Phase, ...]
    """The phase of each sample."""
    unknown_ops: dict[str, int]
    """Operators without a formula -> number of calls, those inside composites included."""
    allocations: Allocations = field(default_factory=Allocations)
    blocks: Mapping[str, Sequence[BlockBytes]] = field(default_factory=dict)
    """The repeated blocks by their path."""
    recomputed: tuple[str, ...] = ()
    """Modules that ran again in backward."""
    inputs: tuple[Operand, ...] = ()
    optimizers: tuple[str, ...] = ()
    """Class names of the optimizers that stepped."""
    assumed: tuple[str, ...] = ()
    """Assumptions that were made while tracing, in words."""
    has_own_loss: bool = False
    """The model's output contains a loss."""
    other_parameter_count: int = 0
    """Parameters of the other networks that the step trains."""
    other_parameter_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """How much of a step was recorded by then; see `Recording`."""

    call_count: int
    sample_count: int
    event_count: int
    recomputed_count: int
    unknown_in_composites: Counter[str]
    state_bytes: int
    double_state_bytes: int


@dataclass(slots=True, kw_only=True)
class _OpenComposite:
    """Calls that are being merged into one composite."""

    calls: list[TracedCall]
    start_bytes: int
    """Memory that was live when the composite began."""
    most_bytes: int = 0
    """The most memory held at once above `start_bytes`."""


class Recorder(TorchDispatchMode):
    """Records the operators that torch dispatches while it is active, on fake tensors or on real ones."""

    supports_higher_order_operators = True

    def __init__(
        self,
        model: nn.Module,
        *,
        companions: Sequence[nn.Module] = (),
        loose: Sequence[torch.Tensor] = (),
        sizes: AssumedSizes,
        symbolic: bool,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase: Phase = "forward"
        self.sizes = sizes
        self._observe = sizes.observe if symbolic else None
        self._storages = Storages(size_of=sizes)
        self._calls: list[TracedCall] = []
        self._live: list[tuple[int, ...]] = []
        self._phases: list[Phase] = []
        self._unknown: Counter[str] = Counter()
        self._operators: dict[Any, _Operator] = {}
        self._marks: Counter[str] = Counter()
        self._why_unfused = ""
        self._has_held_blocks = False
        self._backward_number = 0
        self._gradient_passes: set[int] = set()
        self._assumptions: dict[str, None] = {}
        self._state_bytes: dict[int, tuple[int, int]] = {}
        """Id of an optimizer -> bytes of its state, and of the part in float64."""
        self._open: _OpenComposite | None = None
        self._own = frozenset(identity for identity, _ in generic_paths(model))
        named = [(model, ""), *((companion, type(companion).__name__) for companion in companions)]
        self._paths: dict[int, str] = {}
        for network, name in named:
            for identity, path in generic_paths(network, name):
                self._paths.setdefault(identity, path)
        self._stack: list[str] = []
        self._sequence_numbers: list[int] = []
        self._sequence_places: list[tuple[str, bool]] = []
        self._autocasts: list[bool] = []
        self._follows_loop = False
        self._gradient_hooks: list[Any] = []
        self._gradients: set[int] = set()
        self._own_storages: set[int] = set()
        self._trained: set[int] = set()
        self._blocks = BlockMemory(model, paths=self._paths)
        self._recomputed: dict[str, None] = {}
        for parameter in (*loose, *(part for network in (model, *companions) for part in network.parameters())):
            stored = self._storages.of(parameter, "parameters")
            self._own_storages.add(stored.serial)
            if parameter.requires_grad and parameter.is_leaf:
                self._trained.add(stored.value)
                self._gradient_hooks.append(parameter.register_post_accumulate_grad_hook(self._on_gradient))
        for network in (model, *companions):
            for buffer in network.buffers():
                self._own_storages.add(self._storages.of(buffer, "buffers").serial)
        self._model_count = len(self._storages.events)
        self._sample()

    # -- modules and phases -------------------------------------------------------------------------------------------

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow modules as they are entered and left, to attribute calls and gradients to the right module."""
        hooks = nn.modules.module
        before = hooks.register_module_forward_pre_hook(in_this_thread(self._on_enter))
        after = hooks.register_module_forward_hook(in_this_thread(self._on_leave), always_call=True)
        try:
            yield
        finally:
            before.remove()
            after.remove()
            for hook in self._gradient_hooks:
                hook.remove()

    def _on_enter(self, module: nn.Module, _: Any) -> None:
        self._stack.append(self._paths.get(id(module)) or type(module).__name__)
        self._mark()
        if _in_backward():
            if len(self._stack) == 1:
                self._recomputed[self._stack[0]] = None
            return
        self._blocks.enter(module)
        if len(self._stack) == 1:
            self.phase = "forward" if id(unwrapped(module)) in self._own else "loss"

    def _on_leave(self, module: nn.Module, _: Any, result: Any) -> None:
        if self._blocks.is_block(module) and not _in_backward():
            with torch._C.DisableTorchFunction():
                self._blocks.leave(module, [self._storages.of(part, "activations") for part in _tensors(result)])
        self._stack.pop()
        self._mark()
        if not self._stack and not _in_backward():
            self.phase = "loss"

    def follow_autocast(self, *, is_on: bool) -> None:
        """From now on, code of the training loop outside of its autocast runs in fp32; `is_on`: autocast is on now."""
        self._follows_loop = True
        self._autocasts = [True] if is_on else []
        self._mark()

    def enter_autocast(self, *, is_on: bool) -> None:
        """Enter a region in which the model switches autocast on or off, or the loop around it if that is followed."""
        self._autocasts.append(is_on or not (self._stack or self._follows_loop))
        self._mark()

    def leave_autocast(self) -> None:
        """Leave the region that was entered last."""
        if self._autocasts:  # else it was entered before the step
            self._autocasts.pop()
        self._mark()

    def _mark(self) -> None:
        """Note the current place for gradients: autograd numbers its nodes in order, so later nodes belong to it."""
        self._sequence_numbers.append(torch._C._autograd._get_sequence_nr())
        self._sequence_places.append(self._place_in_forward())

    def _place_in_forward(self) -> tuple[str, bool]:
        without_autocast = not self._autocasts[-1] if self._autocasts else self._follows_loop
        return self._stack[-1] if self._stack else "", without_autocast

    def _place(self) -> tuple[str, bool]:
        """Return the current module, and whether it has switched autocast off; in backward, those of the forward."""
        node = None if self._stack else torch._C._current_autograd_node()
        if node is None:
            return self._place_in_forward()
        number = node._sequence_nr()
        index = bisect_right(self._sequence_numbers, number) - 1
        return self._sequence_places[index] if index >= 0 else ("", False)

    def _current_phase(self) -> Phase:
        return "backward" if _in_backward() else self.phase

    def on_backward(self, *, fills_gradients: bool) -> None:
        """Note that a backward pass begins, or a part of one: reentrant checkpointing runs one for each segment.

        `autograd.grad`, which a model may call in its forward, does not fill the parameters' gradients.
        """
        if _in_backward():
            return
        self._backward_number += 1
        if fills_gradients:
            if not self._has_held_blocks:
                self._has_held_blocks = True
                self._blocks.hold(self._storages.live)
            self.phase = "optimizer"  # after the gradients come clipping and the optimizer's step

    @property
    def is_in_module(self) -> bool:
        """True while a module runs."""
        return bool(self._stack)

    @property
    def backward_count(self) -> int:
        """The number of backward passes that gave parameters their gradients, unlike those of `autograd.grad`."""
        return len(self._gradient_passes)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        self._gradient_passes.add(self._backward_number)
        for part in _tensors(parameter.grad):
            self._storages.move(part, "gradients")
            self._gradients.add(self._storages.of(part, "gradients").serial)

    # -- calls --------------------------------------------------------------------------------------------------------

    @contextmanager
    def within(self, mark: str) -> Iterator[None]:
        """Mark the calls inside.

        PAUSED ones are not recorded: a composite runs that is recorded as one call. The others are parts of an operator
        that autocast runs in half as a whole (IN_HALF), that computes in fp32 also under autocast (IN_FULL), or that
        a CPU runs WITHOUT_INDICES.
        """
        self._marks[mark] += 1
        try:
            yield
        finally:
            self._marks[mark] -= 1

    @contextmanager
    def unfused(self, why: str) -> Iterator[None]:
        """Note at the softmax inside why no fused kernel computes this attention, as `WhyUnfused`."""
        self._why_unfused = why
        try:
            yield
        finally:
            self._why_unfused = ""

    @passes_arguments_on
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.prim.device.default:  # half of all calls; a fake tensor has its own device
            return getattr(args[0], "fake_device", None) or func(*args)
        if isinstance(func, torch._ops.HigherOrderOperator):
            return self._pass_higher_order(func, args, kwargs or {})
        # Otherwise every access to a tensor's shape, also in fake tensors' kernels, would call the function modes.
        with torch._C.DisableTorchFunction():
            return self._follow(func, args, kwargs or {})

    @passes_arguments_on
    def _pass_higher_order(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator that takes functions, inside a composite; its own calls do not reach the recorder."""
        if not self._marks[PAUSED]:
            where = place_now()
            raise TraceError(
                f"{where and f'{where}: '}the higher-order operator `{func.name()}` cannot be traced",
                hint="for the trace, use ordinary operators in its place: Python's `if` for torch.cond, a `for` loop "
                "for scan and while_loop",
            )
        return func(*args, **kwargs)

    @passes_arguments_on
    def _follow(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._marks[PAUSED] or func in _SHAPE_QUESTIONS:
            if any(map(is_sparse, args)):
                return called_on_sparse(func, args, kwargs)
            return func(*args, **kwargs)
        operator = self._operators.get(func)
        if operator is None:
            operator = self._operators[func] = _look_up(func)
        if operator.falls_apart and not any(map(_is_nested, args)):  # nested tensors have their own kernels
            with self:
                return func.decompose(*args, **kwargs)
        if func is _ENCODER_LAYER and args[0].size(-1) != args[1]:  # torch's kernel for fake tensors does not check it
            raise RuntimeError(f"passed-in embed_dim {args[1]} didn't match last dim of query {args[0].size(-1)}")
        if func is torch.ops.aten.unbind.int and isinstance(args[0].shape[(*args, 0)[1]], torch.SymInt):
            result = self.sizes.slices(*args)  # torch's own rule cuts a size that depends on data into two pieces
        elif any(map(is_sparse, args)):
            result = called_on_sparse(func, args, kwargs)
        elif func is torch.ops.aten._embedding_bag_backward.default:
            result = called_as_on_gpu(func, with_bags(args), kwargs)
        elif is_ctc_loss_on_fakes(func, args):
            result = ctc_loss_on_fakes(func, args, self.sizes)
        else:
            result = called_as_on_gpu(func, args, kwargs)
        if not operator.is_view and any(map(is_sparse, (*args, result))):
            operator = _on_sparse(operator)
        self._record_operator(operator, args, kwargs, result)
        return result

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled during a trace

    def _record_operator(self, operator: _Operator, args: Any, kwargs: Any, result: Any) -> None:
        if operator.is_view and self._observe is None:
            return
        named = dict(zip(operator.argument_names, args, strict=False)) | kwargs
        written = [tensor for name in operator.written_names for tensor in _tensors(named.get(name))]
        outputs = list(_tensors(result)) or written  # foreach operators return nothing
        if self._observe is not None:
            self._observe(operator.op, args, outputs)
        if operator.is_view or any(tensor.is_meta or tensor._is_zerotensor() for tensor in outputs):
            return  # it computes nothing: torch asks for a shape alone, or knows that all is zero
        attributes: tuple[tuple[str, Attribute], ...] = ()
        if operator.formula is not None:
            attributes = tuple(
                (name, self._attribute(named[name])) for name in operator.formula.attributes if name in named
            )
        inputs = [
            tensor for name, value in named.items() if name not in operator.out_names for tensor in _tensors(value)
        ]
        attributes += memory_order(operator.op, operator.family, inputs, outputs)
        rewritten = {self._storages.of(tensor, "temporaries").serial for tensor in written}
        self._append(operator, inputs, outputs, attributes, rewritten)

    def record(
        self,
        op: str,
        *,
        inputs: Iterable[torch.Tensor | None],
        outputs: Iterable[torch.Tensor | None],
        attributes: dict[str, Attribute],
    ) -> None:
        """Record a composite, caught above the dispatcher, as one call."""
        formula = formula_of(op)
        if formula is None:
            raise ValueError(f"composite {op} has no formula")
        operator = _Operator(op=op, formula=formula, family=formula.family)
        read = [tensor for tensor in inputs if tensor is not None]
        written = [tensor for tensor in outputs if tensor is not None]
        self._append(operator, read, written, tuple(attributes.items()), set())

    def _append(
        self,
        operator: _Operator,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        attributes: tuple[tuple[str, Attribute], ...],
        written: set[int],
    ) -> None:
        phase = self._current_phase()
        category: Category = "activations" if phase in ("forward", "loss") else "temporaries"
        read = [(tensor, self._storages.of(tensor, "activations")) for tensor in inputs]
        made = [(tensor, self._storages.of(tensor, category)) for tensor in outputs]
        # Autocast is off in backward, where a 16-bit gradient is summed as it is, such as for a bias.
        is_half_sum = phase == "backward" and operator.op == "aten.sum" and read[0][1].low
        is_listed = operator.formula is not None and operator.formula.autocast.startswith("full")
        if is_listed and (self._marks[IN_HALF] or is_half_sum):
            attributes += ((IN_HALF, True),)
        module, without_autocast = self._place()
        without_autocast |= self._open is not None  # optimizers step outside of it
        is_full = self._marks[IN_FULL] or (without_autocast and not self._marks[IN_HALF])
        if is_full and operator.formula is not None:
            attributes += ((IN_FULL, True),)
        # Gradients write in place into zeros; only on fake tensors are they out of place (`areAnyTensorSubclassLike` in
        # torch/csrc/autograd/FunctionsManual.cpp).
        if operator.op in INDEXED_WRITES and phase != "backward":
            attributes += ((COPIES_DESTINATION, True),)
        if self._marks[WITHOUT_INDICES]:
            attributes += ((WITHOUT_INDICES, True),)
        if self._why_unfused and operator.family == "softmax":
            attributes += ((UNFUSED, self._why_unfused),)
        by_name = dict(attributes)
        policy = autocast_of(operator.op, by_name, on_cpu=False)
        policy_on_cpus = autocast_of(operator.op, by_name, on_cpu=True)
        low = self._output_is_low(operator, read, policy=policy, is_low=_LOW)
        low_on_cpus = self._output_is_low(operator, read, policy=policy_on_cpus, is_low=_LOW_ON_CPUS)
        reads = [stored.value for _, stored in read]
        for position, (tensor, stored) in enumerate(made):
            if stored.serial in written or any(stored is other for _, other in read):
                stored.value = self._storages.new_serial()
            elif not (operator.family == "norm" and position > 0):
                if low:
                    self._storages.mark_low(stored, dtype=tensor.dtype)
                stored.low_on_cpus |= low_on_cpus
            if operator.op == _SAME_VALUE:
                stored.value = reads[0]
            if category == "activations":
                self._blocks.made(stored)
        if operator.family == "conv" or operator.op in ("rnn", "rnn_backward"):
            self._note_scratch(operator, inputs, outputs, by_name)
        if operator.family == "view":  # takes no memory; a list of a tensor's values has more of them at a larger batch
            return
        if operator.op not in _ALLOCATIONS:
            by_storage = operator.formula is not None and operator.formula.fusable
            index = _expanded_index(operator, inputs)
            calls = self._calls if self._open is None else self._open.calls
            calls.append(
                TracedCall(
                    op=operator.op,
                    family=operator.family,
                    phase=phase,
                    module=module,
                    inputs=[
                        self._described(tensor, stored, as_stored=by_storage or tensor is index)
                        for tensor, stored in read
                    ],
                    outputs=[self._described(tensor, stored, as_stored=False) for tensor, stored in made],
                    attributes=attributes,
                    fusable=by_storage,
                    casts_low=policy == "low",
                    reads=reads,
                    writes=[stored.value for _, stored in made],
                    storages=tuple(stored.serial for _, stored in (*read, *made)),
                )
            )
        self._sample(phase)

    def _note_scratch(
        self,
        operator: _Operator,
        inputs: list[torch.Tensor],
        outputs: list[torch.Tensor],
        attributes: dict[str, Attribute],
    ) -> None:
        """Note the scratch memory that oneDNN allocates on CPUs for the call.

        It copies all operands of a convolution into blocked layouts (ATen/native/mkldnn/Conv.cpp reorders plain ones).
        """
        if operator.family == "conv":
            operands = (*inputs, *outputs)
            self._storages.hold([self.sizes(tensor.numel()) * tensor.element_size() for tensor in operands])
            return
        tokens = self.sizes(inputs[0].numel()) // max(1, self.sizes(inputs[0].shape[-1]))
        is_training = len(outputs) > _LSTM_RESULTS or operator.op == "rnn_backward"
        held_bytes, kept_bytes = lstm_scratch(attributes, token_count=tokens, is_training=is_training)
        self._storages.hold(held_bytes)
        if kept_bytes and operator.op == "rnn":
            self._storages.keep_with(self._storages.of(outputs[-1], "activations"), kept_bytes)

    def _output_is_low(
        self,
        operator: _Operator,
        read: list[tuple[torch.Tensor, Stored]],
        *,
        policy: Autocast,
        is_low: Callable[[Stored], bool],
    ) -> bool:
        """Return True if autocast leaves the results in half, by the operator's policy or the widest input.

        Norms return the dtype of their first input, whatever their weights are. `is_low` returns whether a storage is
        in half on the kind of device that has this policy.
        """
        if policy != "widest":
            return policy == "low"
        floats = [stored for tensor, stored in read if tensor.dtype is torch.float32 and tensor.dim() > 0]
        if operator.family == "norm":
            return bool(floats) and is_low(floats[0])
        return bool(floats) and all(map(is_low, floats))

    def _described(self, tensor: torch.Tensor, stored: Stored, *, as_stored: bool) -> Described:
        shape = tuple(self.sizes(size) for size in (_mean_shape(tensor) if tensor.is_nested else tensor.shape))
        if as_stored and not tensor.is_nested and 0 in tensor.stride():
            # Only the stored bytes of an expanded tensor are read.
            shape = tuple(1 if step == 0 else size for size, step in zip(shape, tensor.stride(), strict=True))
        can_be_low = tensor.is_nested or tensor.dtype is torch.float32
        return shape, _dtype_name(tensor), stored.low and can_be_low, stored.low_on_cpus and can_be_low

    def _attribute(self, value: Any) -> Attribute:
        if isinstance(value, (list, tuple)):
            return tuple(self._attribute(part) for part in value)  # type: ignore[misc]
        if isinstance(value, (torch.SymInt, torch.SymFloat)):
            return self.sizes(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        return str(value)

    def _sample(self, phase: Phase = "forward") -> None:
        if self._open is not None:
            self._open.most_bytes = max(self._open.most_bytes, sum(self._storages.live_bytes) - self._open.start_bytes)
            return
        self._live.append(tuple(self._storages.live_bytes))
        self._phases.append(phase)

    def assume(self, note: str) -> None:
        """Add an assumption of the trace, in words, unless it was made before."""
        self._assumptions[note] = None

    @property
    def in_composite(self) -> bool:
        """True between `begin_composite` and `end_composite`."""
        return self._open is not None

    @property
    def composite_is_empty(self) -> bool:
        """True if no call was made since `begin_composite`."""
        return self._open is not None and not self._open.calls

    def begin_composite(self) -> None:
        """Begin a composite: until `end_composite`, calls are measured but not recorded."""
        self._open = _OpenComposite(calls=[], start_bytes=sum(self._storages.live_bytes))

    def drop_composite(self) -> None:
        """End the composite and forget its calls."""
        self._open = None

    @contextmanager
    def outside_composite(self) -> Iterator[None]:
        """Record calls inside although a composite is open: an optimizer's closure runs a step of the model."""
        composite, self._open = self._open, None
        before_bytes = sum(self._storages.live_bytes)
        try:
            yield
        finally:
            self._open = composite
            if composite is not None:
                composite.start_bytes += sum(self._storages.live_bytes) - before_bytes

    def end_composite(self, *, owner: int, state: Sequence[torch.Tensor], state_bytes: int) -> list[TracedCall]:
        """End the composite and return its calls; their peak memory becomes one sample.

        `state` are the tensors that the composite keeps from one step to the next. They are no longer counted among the
        live storages, because the `state_bytes` of each `owner` are added to all moments of the step. State and
        temporaries are in float64 where the gradients are.
        """
        composite, self._open = self._open, None
        if composite is None:
            raise ValueError("no composite was begun")
        kept_bytes = sum(self._storages.leave_out(tensor) for tensor in state)
        sample = list(self._storages.live_bytes)
        doubles = sample[CELL["gradients", "double"]]
        gradient_bytes = max(1, sum(sample[CELL["gradients", storing]] for storing in STORINGS))
        self._state_bytes[owner] = state_bytes, state_bytes * doubles // gradient_bytes
        temporary_bytes = max(0, composite.most_bytes - kept_bytes)
        double_bytes = temporary_bytes * doubles // gradient_bytes
        sample[CELL["temporaries", "full"]] += temporary_bytes - double_bytes
        sample[CELL["temporaries", "double"]] += double_bytes
        self._live.append(tuple(sample))
        self._phases.append("optimizer")
        self._unknown += _unknown_ops(composite.calls)
        return composite.calls

    def repeat(self, call: TracedCall, *, count: int) -> None:
        """Record a call of an ended composite by itself, `count` times."""
        self._calls += [call] * count

    def storages_of(self, tensors: Iterable[torch.Tensor]) -> frozenset[int]:
        """Return the numbers of the tensors' storages, as in `TracedCall.storages`."""
        return frozenset(self._storages.of(part, "temporaries").serial for part in _tensors(list(tensors)))

    def leave_out(self, state: Iterable[torch.Tensor]) -> None:
        """Stop counting these tensors' memory, which their owner reports separately."""
        for tensor in state:
            self._storages.leave_out(tensor)

    def moment(self) -> Moment:
        """Return how much is recorded now."""
        return Moment(
            call_count=len(self._calls),
            sample_count=len(self._live),
            event_count=len(self._storages.events),
            recomputed_count=len(self._recomputed),
            unknown_in_composites=self._unknown.copy(),
            state_bytes=sum(state_bytes for state_bytes, _ in self._state_bytes.values()),
            double_state_bytes=sum(double_bytes for _, double_bytes in self._state_bytes.values()),
        )

    def finish(
        self, *, inputs: Iterable[torch.Tensor] = (), optimizers: Iterable[str] = (), end: Moment | None = None
    ) -> Recording:
        """Return the recording of the step, which was over at `end`, or now; name its inputs and its optimizers."""
        end = end or self.moment()
        recorded = self._calls[: end.call_count]
        fusion = fuse(recorded)
        constant = self._own_storages | self._gradients
        halves = _halves(recorded, self._trained)
        return Recording(
            rows=tuple(
                _row(index, call, fusion, halves=halves[index], constant=constant)
                for index, call in enumerate(recorded)
            ),
            live_bytes=tuple(self._live[: end.sample_count]),
            phases=tuple(self._phases[: end.sample_count]),
            unknown_ops=dict(_unknown_ops(recorded) + end.unknown_in_composites),
            allocations=Allocations(
                events=tuple(self._storages.events[: end.event_count]),
                model_count=self._model_count,
                gradients=frozenset(self._gradients),
                scratch=frozenset(self._storages.scratch),
                state_bytes=end.state_bytes,
                double_state_bytes=end.double_state_bytes,
            ),
            blocks=self._blocks.by_path(),
            recomputed=tuple(self._recomputed)[: end.recomputed_count],
            inputs=tuple(_operand(tuple(map(self.sizes, one.shape)), _dtype_name(one)) for one in inputs),
            optimizers=tuple(dict.fromkeys(optimizers)),
            assumed=(*self.sizes.notes(), *self._assumptions),
        )


def _expanded_index(operator: _Operator, inputs: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """Return the index of a call that reads one element, or writes one of a source, for each of its elements."""
    if operator.formula is None or operator.formula.op not in EXPANDED_INDEX:
        return None
    return inputs[1] if operator.formula.op == "aten.gather" or len(inputs) > 2 else None


def cost_of(call: TracedCall) -> Cost:
    """Return the cost of a call as it was traced."""
    return row_cost(_row(0, call, Fusion()), batch=1)


def _unknown_ops(calls: Iterable[TracedCall]) -> Counter[str]:
    return Counter(call.op for call in calls if call.family == "unknown")


def _dtype_name(tensor: torch.Tensor) -> str:
    return _NAMES.get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")


def _is_nested(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_nested


def _mean_shape(nested: torch.Tensor) -> list[int]:
    """Return (samples, mean of each dimension): a dense shape with about as many elements as the ragged tensor.

    Raises `TraceError` for the layout `torch.jagged`, whose operators work on sizes that fake tensors lack.
    """
    if nested.layout is torch.jagged:
        raise TraceError(
            "jagged tensors (torch.nested, layout=torch.jagged) cannot be traced",
            hint="give the model padded tensors; for their lengths, name its source: `advise SOURCE --input x=512x64 "
            "--lengths 180,512 --packing`",
        )
    sizes = nested._nested_tensor_size()
    return [len(sizes), *(round(size) for size in sizes.double().mean(dim=0).tolist())]


def _in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1


def generic_paths(module: nn.Module, path: str = "") -> Iterator[tuple[int, str]]:
    """Yield each module's id and generic path: repeated blocks share one, such as `layers.*.attn` for `layers.3.attn`.

    Single layers of a Sequential keep their numbers, because they are not repetitions of each other. Blocks of several
    layers in a container may have a name before the number, such as `encoder_layer_3`.
    """
    yield id(module), path
    kinds = Counter(type(child) for child in module.children())
    for name, child in module.named_children():
        prefix = name.rstrip("0123456789")
        is_single = next(child.children(), None) is None
        may_repeat = not isinstance(module, nn.Sequential) or not is_single
        if prefix:
            may_repeat = isinstance(module, (nn.Sequential, nn.ModuleDict)) and not is_single
        label = f"{prefix}*" if prefix != name and may_repeat and kinds[type(child)] > 1 else name
        yield from generic_paths(child, f"{path}.{label}" if path else label)


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in `value`; for a sparse tensor, its indices and values."""
    if isinstance(value, torch.Tensor):
        if is_sparse(value):
            yield from parts_of(value)
        else:
            yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _look_up(func: Any) -> _Operator:
    op = f"{func.namespace}.{func._schema.name.partition('::')[2]}"
    op = _COMPOSITE_OF.get(op, op)
    schema = func._schema
    formula = formula_of(op)
    returns = schema.returns
    is_view = any(result.alias_info is not None and not result.alias_info.is_write for result in returns)
    if formula is not None:
        family = formula.family
    elif is_view:
        family = "view"
    else:
        family = "pointwise" if torch.Tag.pointwise in func.tags else "unknown"
    return _Operator(
        op=op,
        formula=formula,
        family=family,
        argument_names=tuple(argument.name for argument in schema.arguments),
        written_names=tuple(
            argument.name
            for argument in schema.arguments
            if argument.alias_info is not None and argument.alias_info.is_write
        ),
        out_names=frozenset(argument.name for argument in schema.arguments if argument.is_out),
        is_view=is_view,
        # Autograd decomposes these operators, but inference mode does not. Some (SiLU's gradient) have a kernel anyway,
        # which real tensors run.
        falls_apart=func._can_decompose() and not func.has_kernel_for_dispatch_key(torch._C.DispatchKey.CPU),
    )


def _halves(calls: Sequence[TracedCall], trained: Set[int]) -> list[Set[int]]:
    """Return for each call the fp32 values of which autocast has a half copy already.

    In backward these are the values that forward made. Before, they are the `trained` parameters that an earlier call
    read: autocast keeps its copies of leaves that require gradients (`cached_cast` in ATen/autocast_mode.cpp).
    """
    made_in_forward = {value for call in calls if call.phase in ("forward", "loss") for value in call.writes}
    cast: set[int] = set()
    halves: list[Set[int]] = []
    for call in calls:
        if not call.casts_low:
            halves.append(frozenset())
        elif call.phase == "backward":
            halves.append(made_in_forward)
        else:
            own = trained & set(call.reads)
            halves.append(own & cast)
            cast |= own
    return halves


def _on_sparse(operator: _Operator) -> _Operator:
    """Return the operator on sparse tensors; the formula of its dense form does not hold for them."""
    op = name_on_sparse(operator.op)
    formula = formula_of(op)
    return replace(operator, op=op, formula=formula, family="unknown" if formula is None else formula.family)


def _row(
    index: int,
    call: TracedCall,
    fusion: Fusion,
    *,
    halves: Set[int] = frozenset(),
    constant: Set[int] = frozenset(),
) -> Row:
    """Return a call's row; autocast has half copies of the values in `halves`.

    The storages in `constant` belong to the model.
    """
    varies = [serial not in constant for serial in call.storages]
    inputs = [
        _operand(
            shape,
            dtype,
            low=low or (dtype == "float32" and value in halves),
            low_on_cpus=low_on_cpus or (dtype == "float32" and value in halves),
            fused=(index, value) in fusion.read_inside,
            narrowed=value in fusion.narrowed,
            widened=value in fusion.widened,
            varies=varying,
        )
        for (shape, dtype, low, low_on_cpus), value, varying in zip(call.inputs, call.reads, varies, strict=False)
    ]
    outputs = [
        _operand(
            shape,
            dtype,
            low=low,
            low_on_cpus=low_on_cpus,
            fused=value in fusion.unwritten,
            joined=value in fusion.joined,
            narrowed=value in fusion.narrowed,
            widened=value in fusion.widened,
            varies=varying,
        )
        for (shape, dtype, low, low_on_cpus), value, varying in zip(
            call.outputs, call.writes, varies[len(inputs) :], strict=True
        )
    ]
    return Row(
        op=call.op,
        family=call.family,
        phase=call.phase,
        module=call.module,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        attributes=dict(call.attributes),
        count=1,
    )


@lru_cache(maxsize=4096)
def _operand(
    shape: tuple[int, ...], dtype: str, *, low: bool = False, low_on_cpus: bool = False, **flags: bool
) -> Operand:
    """Return one object for equal operands: a deep model repeats those of its first block."""
    return Operand(shape=shape, dtype=dtype, low=low, other_on_cpus=low_on_cpus != low, **flags)
