"""Operations caught above the dispatcher, before they fall apart into the kernels of one kind of device.

Attention with dropout becomes a chain of `bmm` on a CPU and one kernel on a GPU; recurrent layers unroll. Each is
recorded as one call with its arguments, and each kind of device lowers it in its own way.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from advisor.records.workload import Attribute
from advisor.workload.recorder import Recorder

_GATE_COUNTS = {"lstm": 4, "gru": 3, "rnn_tanh": 1, "rnn_relu": 1}
_RECURRENT = {torch.lstm: "lstm", torch.gru: "gru", torch.rnn_tanh: "rnn_tanh", torch.rnn_relu: "rnn_relu"}

_ATTENTION: Callable[..., torch.Tensor] = functional.scaled_dot_product_attention

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """How one composite is recorded. `results` is how many of `allocate`'s tensors the user sees; the rest is kept for
    backward. `run` computes the composite for real, or is None on fake tensors."""

    recorder: Recorder
    op: str
    attributes: dict[str, Attribute]
    allocate: Callable[[], Tensors]
    results: int
    run: Callable[[Sequence[torch.Tensor]], Tensors] | None


class _Composite(torch.autograd.Function):
    """Records the composite in forward and its `_backward` twin in backward."""

    @staticmethod
    def forward(ctx: Any, plan: _Plan, *inputs: torch.Tensor) -> Tensors:
        made = _forward(ctx, plan, inputs, keep=True)
        ctx.plan = plan
        ctx.save_for_backward(*inputs, *made)
        ctx.input_count = len(inputs)
        return made[: plan.results]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        plan, saved = ctx.plan, ctx.saved_tensors
        inputs, made = saved[: ctx.input_count], saved[ctx.input_count :]
        wanted = [index for index in range(len(inputs)) if ctx.needs_input_grad[index + 1]]
        with plan.recorder.paused():
            if plan.run is None:
                found = [torch.empty_like(inputs[index]) for index in wanted]
            else:
                pairs = [(out, grad) for out, grad in zip(ctx.real_outputs, grads, strict=True) if grad is not None]
                found = list(
                    torch.autograd.grad(
                        [out for out, _ in pairs],
                        [ctx.real_inputs[index] for index in wanted],
                        [grad for _, grad in pairs],
                        allow_unused=True,
                    )
                )
        plan.recorder.record(
            f"{plan.op}_backward",
            inputs=[grads[0], *inputs, *made],
            outputs=found,
            attributes=plan.attributes,
        )
        by_index = dict(zip(wanted, found, strict=True))
        return (None, *(by_index.get(index) for index in range(len(inputs))))


def _forward(ctx: Any, plan: _Plan, inputs: Sequence[torch.Tensor], *, keep: bool) -> Tensors:
    with plan.recorder.paused():
        if plan.run is None:
            made = plan.allocate()
            made = made if keep else made[: plan.results]
        elif keep:
            ctx.real_inputs = [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in inputs]
            with torch.enable_grad():
                ctx.real_outputs = plan.run(ctx.real_inputs)
            made = tuple(tensor.detach() for tensor in ctx.real_outputs)
        else:
            made = plan.run(inputs)
    plan.recorder.record(plan.op, inputs=inputs, outputs=made, attributes=plan.attributes)
    return made


def _apply(plan: _Plan, inputs: Sequence[torch.Tensor]) -> Tensors:
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        return _Composite.apply(plan, *inputs)  # type: ignore[no-any-return, no-untyped-call]
    return _forward(None, plan, inputs, keep=False)


class Composites(TorchFunctionMode):
    """Catches attention and recurrent layers while it is active. `real`: compute them too, on real tensors."""

    def __init__(self, recorder: Recorder, *, real: bool) -> None:
        super().__init__()
        self._recorder = recorder
        self._real = real

    @contextmanager
    def catching(self) -> Iterator[None]:
        """Catch what calls torch.nn.functional by its name, too: torch's own `multi_head_attention_forward` runs with
        the mode switched off."""
        functional.scaled_dot_product_attention = self._attention
        try:
            with self:
                yield
        finally:
            functional.scaled_dot_product_attention = _ATTENTION

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is _ATTENTION:
            return self._attention(*args, **kwargs)
        mode = _RECURRENT.get(func) if callable(func) else None
        if mode is not None and not kwargs:
            return self._recurrent(func, mode, args)
        return func(*args, **kwargs)

    def _attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if query.is_nested or query.dim() < 3:
            return _ATTENTION(query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
        _check_attention(query, key, value, enable_gqa=enable_gqa)
        samples = torch.broadcast_shapes(query.shape[:-3], key.shape[:-3], value.shape[:-3])
        heads, length, width = query.shape[-3], query.shape[-2], value.shape[-1]

        def allocate() -> Tensors:
            # As the fused kernels lay it out: (batch, length, heads, width), seen as (batch, heads, length, width).
            result = query.new_empty((*samples, length, heads, width)).transpose(-3, -2)
            return result, query.new_empty((*samples, heads, length), dtype=torch.float32)

        def run(inputs: Sequence[torch.Tensor]) -> Tensors:
            mask = inputs[3] if len(inputs) > 3 else None
            result = _ATTENTION(*inputs[:3], mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)
            return (result,)

        plan = _Plan(
            recorder=self._recorder,
            op="attention",
            attributes={"causal": bool(is_causal), "dropout_ratio": float(dropout_p)},
            allocate=allocate,
            results=1,
            run=run if self._real else None,
        )
        inputs = (query, key, value) if attn_mask is None else (query, key, value, attn_mask)
        return _apply(plan, inputs)[0]

    def _recurrent(self, func: Any, mode: str, args: Any) -> Tensors:
        packed = isinstance(args[2], (list, tuple)) and isinstance(args[3], (list, tuple))
        packed = packed or (isinstance(args[1], torch.Tensor) and isinstance(args[2], torch.Tensor))
        source, states, weights = (args[0], args[2], args[3]) if packed else args[:3]
        num_layers, bidirectional = (args[5], args[8]) if packed else (args[4], args[7])
        batch_first = not packed and bool(args[8])
        state_list = list(states) if isinstance(states, (list, tuple)) else [states]
        projected = mode == "lstm" and state_list[0].shape[-1] != state_list[-1].shape[-1]
        recurrent = state_list[0].shape[-1]
        hidden = weights[0].shape[0] // _GATE_COUNTS[mode]
        directions = 2 if bidirectional else 1
        attributes: dict[str, Attribute] = {
            "mode": mode,
            "input_size": source.shape[-1],
            "hidden_size": hidden,
            "proj_size": recurrent if projected else 0,
            "num_layers": num_layers,
            "bidirectional": bool(bidirectional),
            "batch_first": batch_first,
        }
        tokens = source.shape[:-1]
        state_count = len(state_list)

        def allocate() -> Tensors:
            output = source.new_empty((*tokens, directions * recurrent))
            # Backward needs every gate's activation, and the cell's where there is one.
            kept = _GATE_COUNTS[mode] + (1 if mode == "lstm" else 0)
            reserve = source.new_empty((math.prod(tokens), num_layers * directions * hidden * kept))
            return output, *(torch.empty_like(state) for state in state_list), reserve

        def run(inputs: Sequence[torch.Tensor]) -> Tensors:
            first, given, rest = inputs[0], list(inputs[1 : 1 + state_count]), list(inputs[1 + state_count :])
            state = given if isinstance(states, (list, tuple)) else given[0]
            if packed:
                return tuple(func(first, args[1], state, rest, *args[4:]))
            return tuple(func(first, state, rest, *args[3:]))

        plan = _Plan(
            recorder=self._recorder,
            op="rnn",
            attributes=attributes,
            allocate=allocate,
            results=1 + state_count,
            run=run if self._real else None,
        )
        return _apply(plan, [source, *state_list, *weights])


def _check_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *, enable_gqa: bool) -> None:
    """The checks torch would have made, so that a user's wrong shape is still an error."""
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            "scaled_dot_product_attention: query, key and value do not fit together: "
            f"{tuple(query.shape)}, {tuple(key.shape)}, {tuple(value.shape)}"
        )
    heads, kv_heads = query.shape[-3], key.shape[-3]
    if heads != kv_heads and not enable_gqa and 1 not in (heads, kv_heads):
        raise RuntimeError(
            f"scaled_dot_product_attention: {heads} query heads and {kv_heads} key heads need enable_gqa=True"
        )


@contextmanager
def fast_paths() -> Iterator[None]:
    """Let torch's encoder layers take their fused path, which they do not while a function mode is active."""
    classes = (nn.TransformerEncoderLayer, nn.MultiheadAttention)
    originals = [cls.forward for cls in classes]

    def without_modes(original: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(original)
        def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
            if self.training or torch.is_grad_enabled():
                return original(self, *args, **kwargs)
            with torch._C.DisableTorchFunction():
                return original(self, *args, **kwargs)

        return forward

    try:
        for cls, original in zip(classes, originals, strict=True):
            cls.forward = without_modes(original)
        yield
    finally:
        for cls, original in zip(classes, originals, strict=True):
            cls.forward = original
