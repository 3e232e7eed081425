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
from advisor.ops.registry import IN_FULL, IN_HALF, UNFUSED, Autocast, Cost, Formula, autocast_of, formula_of
from advisor.records.workload import Attribute, Operand, Phase, Row
from advisor.workload.allocators import Allocations
from advisor.workload.assumed_sizes import AssumedSizes
from advisor.workload.cpu_scratch import lstm_scratch
from advisor.workload.fusion import Described, Fusion, TracedCall, fuse
from advisor.workload.loaded import unwrapped
from advisor.workload.memory_order import called_as_on_gpu, memory_order
from advisor.workload.patching import in_this_thread
from advisor.workload.storages import CELL, BlockBytes, BlockMemory, Category, Storages, Stored
from advisor.workload.user_error import passes_arguments_on

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
"""A view that torch's schema does not declare as one: on fake tensors its result has its own storage."""
_SHAPE_QUESTIONS = FunctionalTensor.metadata_fns
"""Metadata queries on tensors with symbolic sizes, which must not be recorded as operators."""
_LSTM_RESULTS = 3
"""Output and two states; a fourth result is kept for backward."""
PAUSED = "paused"
_NAMES = {torch.float32: "float32", torch.int64: "int64", torch.bool: "bool"}


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
    """Operators without a formula -> number of calls."""
    allocations: Allocations = field(default_factory=Allocations)
    blocks: Mapping[str, Sequence[BlockBytes]] = field(default_factory=dict)
    """The repeated blocks by their path."""
    recomputed: tuple[str, ...] = ()
    """Modules that ran again in backward."""
    inputs: tuple[Operand, ...] = ()
    optimizers: tuple[str, ...] = ()
    """Class names of the optimizers that stepped."""
    assumed: tuple[str, ...] = ()
    """Assumptions about data-dependent sizes, in words."""
    has_own_loss: bool = False
    """The model's output contains a loss."""


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

    def __init__(
        self, model: nn.Module, *, companions: Sequence[nn.Module] = (), sizes: AssumedSizes, symbolic: bool
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.phase: Phase = "forward"
        self.sizes = sizes
        self._observe = sizes.observe if symbolic else None
        self._storages = Storages(size_of=sizes)
        self._calls: list[TracedCall] = []
        self._live: list[tuple[int, ...]] = []
        self._phases: list[Phase] = []
        self._unknown: dict[str, int] = {}
        self._operators: dict[Any, _Operator] = {}
        self._marks: Counter[str] = Counter()
        self._why_unfused = ""
        self._backward_ids: set[int] = set()
        self._state_bytes: dict[int, int] = {}
        self._open: _OpenComposite | None = None
        self._own = frozenset(identity for identity, _ in generic_paths(model))
        named = [(model, ""), *((companion, type(companion).__name__) for companion in companions)]
        self._paths: dict[int, str] = {}
        for network, name in named:
            for identity, path in generic_paths(network, name):
                self._paths.setdefault(identity, path)
        self._stack: list[str] = []
        self._sequence_numbers: list[int] = []
        self._sequence_modules: list[str] = []
        self._gradient_hooks: list[Any] = []
        self._gradients: set[int] = set()
        self._own_storages: set[int] = set()
        self._blocks = BlockMemory(model, paths=self._paths)
        self._recomputed: dict[str, None] = {}
        for network in (model, *companions):
            for parameter in network.parameters():
                self._own_storages.add(self._storages.of(parameter, "parameters").serial)
                if parameter.requires_grad and parameter.is_leaf:
                    self._gradient_hooks.append(parameter.register_post_accumulate_grad_hook(self._on_gradient))
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

    def _mark(self) -> None:
        """Note the current module for gradients: autograd numbers its nodes in order, so later nodes belong to it."""
        self._sequence_numbers.append(torch._C._autograd._get_sequence_nr())
        self._sequence_modules.append(self._stack[-1] if self._stack else "")

    def _module(self) -> str:
        if self._stack:
            return self._stack[-1]
        node = torch._C._current_autograd_node()
        if node is None:
            return ""
        number = node._sequence_nr()
        index = bisect_right(self._sequence_numbers, number) - 1
        return self._sequence_modules[index] if index >= 0 else ""

    def _current_phase(self) -> Phase:
        if _in_backward():
            if not self._backward_ids:
                self._blocks.hold(self._storages.live)
            self._backward_ids.add(torch._C._current_graph_task_id())
            self.phase = "optimizer"  # after the gradients come clipping and the optimizer's step
            return "backward"
        return self.phase

    @property
    def backward_count(self) -> int:
        """The number of backward passes."""
        return len(self._backward_ids)

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        for part in _tensors(parameter.grad):
            self._storages.move(part, "gradients")
            self._gradients.add(self._storages.of(part, "gradients").serial)

    # -- calls --------------------------------------------------------------------------------------------------------

    @contextmanager
    def within(self, mark: str) -> Iterator[None]:
        """Mark the calls inside.

        PAUSED ones are not recorded: a composite runs that is recorded as one call. The others are parts of an operator
        that autocast runs in half as a whole (IN_HALF), or that computes in fp32 also under autocast (IN_FULL).
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
        # Otherwise every access to a tensor's shape, also in fake tensors' kernels, would call the function modes.
        with torch._C.DisableTorchFunction():
            return self._follow(func, args, kwargs or {})

    @passes_arguments_on
    def _follow(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._marks[PAUSED] or func in _SHAPE_QUESTIONS:
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
        else:
            result = called_as_on_gpu(func, args, kwargs)
        if not operator.is_view and any(map(_is_sparse, (*args, result))):
            # Formulas hold for dense tensors only.
            operator = replace(operator, op=f"{operator.op}[sparse]", formula=None, family="unknown")
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
        if operator.is_view:
            return
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
        if self._marks[IN_FULL] and operator.formula is not None:
            attributes += ((IN_FULL, True),)
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
        if operator.family != "view" and operator.op not in _ALLOCATIONS:
            by_storage = operator.formula is not None and operator.formula.fusable
            calls = self._calls if self._open is None else self._open.calls
            calls.append(
                TracedCall(
                    op=operator.op,
                    family=operator.family,
                    phase=phase,
                    module=self._module(),
                    inputs=[self._described(tensor, stored, as_stored=by_storage) for tensor, stored in read],
                    outputs=[self._described(tensor, stored, as_stored=False) for tensor, stored in made],
                    attributes=attributes,
                    fusable=by_storage,
                    casts_low=policy == "low",
                    reads=reads,
                    writes=[stored.value for _, stored in made],
                    storages=tuple(stored.serial for _, stored in (*read, *made)),
                )
            )
            if operator.formula is None and operator.family == "unknown":
                self._unknown[operator.op] = self._unknown.get(operator.op, 0) + 1
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

    @property
    def in_composite(self) -> bool:
        """True between `begin_composite` and `end_composite`."""
        return self._open is not None

    def begin_composite(self) -> None:
        """Begin a composite: until `end_composite`, calls are measured but not recorded."""
        self._open = _OpenComposite(calls=[], start_bytes=sum(self._storages.live_bytes))

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

    def end_composite(self, *, owner: int, state: Sequence[torch.Tensor], state_bytes: int) -> list[Cost]:
        """End the composite and return the costs of its calls; their peak memory becomes one sample.

        `state` are the tensors that the composite keeps from one step to the next. They are no longer counted among the
        live storages, because the `state_bytes` of each `owner` are added to all moments of the step.
        """
        composite, self._open = self._open, None
        if composite is None:
            raise ValueError("no composite was begun")
        kept_bytes = sum(self._storages.leave_out(tensor) for tensor in state)
        self._state_bytes[owner] = state_bytes
        sample = list(self._storages.live_bytes)
        sample[CELL["temporaries", "full"]] += max(0, composite.most_bytes - kept_bytes)
        self._live.append(tuple(sample))
        self._phases.append("optimizer")
        return [row_cost(_row(index, call, Fusion()), batch=1) for index, call in enumerate(composite.calls)]

    def leave_out(self, state: Iterable[torch.Tensor]) -> None:
        """Stop counting these tensors' memory, which their owner reports separately."""
        for tensor in state:
            self._storages.leave_out(tensor)

    def finish(self, *, inputs: Iterable[torch.Tensor] = (), optimizers: Iterable[str] = ()) -> Recording:
        """Return the recording, once the step is over; it names its inputs and the optimizers that stepped."""
        fusion = fuse(self._calls)
        constant = self._own_storages | self._gradients
        made_before = {value for call in self._calls if call.phase in ("forward", "loss") for value in call.writes}
        return Recording(
            rows=tuple(
                _row(index, call, fusion, made_before=made_before, constant=constant)
                for index, call in enumerate(self._calls)
            ),
            live_bytes=tuple(self._live),
            phases=tuple(self._phases),
            unknown_ops=dict(self._unknown),
            allocations=Allocations(
                events=tuple(self._storages.events),
                model_count=self._model_count,
                gradients=frozenset(self._gradients),
                scratch=frozenset(self._storages.scratch),
                state_bytes=sum(self._state_bytes.values()),
            ),
            blocks=self._blocks.by_path(),
            recomputed=tuple(self._recomputed),
            inputs=tuple(_operand(tuple(map(self.sizes, one.shape)), _dtype_name(one)) for one in inputs),
            optimizers=tuple(dict.fromkeys(optimizers)),
            assumed=self.sizes.notes(),
        )


def _dtype_name(tensor: torch.Tensor) -> str:
    return _NAMES.get(tensor.dtype) or str(tensor.dtype).removeprefix("torch.")


def _is_nested(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_nested


def _is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo


def _mean_shape(nested: torch.Tensor) -> list[int]:
    """Return (samples, mean of each dimension): a dense shape with about as many elements as the ragged tensor.

    Raises `TraceError` for the layout `torch.jagged`, whose operators work on sizes that fake tensors lack.
    """
    if nested.layout is torch.jagged:
        raise TraceError(
            "jagged tensors (torch.nested, layout=torch.jagged) cannot be traced",
            hint="give the model padded tensors and the lengths of its sequences, as in `--input x=512x64 --lengths "
            "180,512 --packing`",
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
        if _is_sparse(value):
            yield from (value._indices(), value._values())
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


def _row(
    index: int,
    call: TracedCall,
    fusion: Fusion,
    *,
    made_before: Set[int] = frozenset(),
    constant: Set[int] = frozenset(),
) -> Row:
    """Return a call's row; backward reuses autocast's half copies of forward's values, `made_before`.

    The storages in `constant` belong to the model.
    """
    halves = made_before if call.phase == "backward" and call.casts_low else frozenset()
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
