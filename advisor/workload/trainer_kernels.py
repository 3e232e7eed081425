"""Gives a model the fused kernels that fine-tuning libraries bring: norms, rotary embeddings and losses.

Each is one kernel in forward and one in backward (Unsloth, foundation-model-stack: `fms-acceleration-foak`, Liger).
Liger never holds all logits: it multiplies, takes the loss and multiplies back in chunks (its
`fused_linear_cross_entropy`).
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from advisor.records.fine_tuning import FineTuning
from advisor.workload.engine_kernels import is_rms_norm, rotation_of
from advisor.workload.loaded import Inputs, LoadedModel
from advisor.workload.patching import patched

_LABELS = "labels"

_LIBRARY = torch.library.Library("finetune", "FRAGMENT")
_LIBRARY.define("norm(Tensor states, Tensor weight) -> Tensor")
_LIBRARY.define("norm_backward(Tensor gradients, Tensor states, Tensor weight) -> Tensor")
_LIBRARY.define("rotary(Tensor queries, Tensor keys) -> (Tensor, Tensor)")
_LIBRARY.define("cross_entropy(Tensor(a!) logits, Tensor labels) -> Tensor")
_ANY_DEVICE = "CompositeExplicitAutograd"
_LIBRARY.impl("norm", lambda states, weight: torch.empty_like(states), _ANY_DEVICE)
_LIBRARY.impl("norm_backward", lambda gradients, states, weight: torch.empty_like(states), _ANY_DEVICE)
_LIBRARY.impl("rotary", lambda queries, keys: (torch.empty_like(queries), torch.empty_like(keys)), _ANY_DEVICE)
_LIBRARY.impl("cross_entropy", lambda logits, labels: logits.new_empty((), dtype=torch.float32), _ANY_DEVICE)


def with_trainer_kernels(loaded: LoadedModel, fine_tuning: FineTuning, *, output: Any) -> LoadedModel:
    """Return the model with fused kernels; `output` is its output layer, or None.

    The loss is fused where the model computes it from labels that are like its input: in causal language models.
    """
    model = loaded.model
    code = sys.modules[type(model).__module__]
    rotation = rotation_of(code, _rotated)
    for module in model.modules():
        if is_rms_norm(module):
            module.forward = _norm_of(module)
    plain = model.forward

    def forward_of_model(*args: Any, **kwargs: Any) -> Any:
        with patched(rotation, in_all_threads=True):
            return plain(*args, **kwargs)

    model.forward = forward_of_model
    if output is None or _LABELS not in loaded.make_inputs(1)[1]:
        return loaded
    make = loaded.make_inputs

    def make_inputs(batch: int) -> Inputs:
        args, named = make(batch)
        return args, {name: value for name, value in named.items() if name != _LABELS}

    def labels_in(batch: Any) -> Any:
        return batch["input_ids"].flatten() if isinstance(batch, dict) else batch.flatten()

    if fine_tuning.kernels == "liger":
        output.forward = lambda states: states

        def loss(result: Any, batch: Any) -> Any:
            count = _chunk_count(result.logits.shape[-2], output.weight)
            return applied(_ChunkedLoss, result.logits.flatten(0, -2), output.weight, labels_in(batch), count)
    else:
        if fine_tuning.fp32_logits:
            in_16_bits = output.forward
            output.forward = lambda states: in_16_bits(states).float()

        def loss(result: Any, batch: Any) -> Any:
            logits = result.logits[..., :-1, :].contiguous() if fine_tuning.fp32_logits else result.logits
            return applied(_FusedLoss, logits.flatten(0, -2), labels_in(batch))

    return replace(loaded, make_inputs=make_inputs, loss=loss)


def applied(function: Any, *arguments: Any) -> Any:
    """Call an autograd function, whose `apply` torch leaves untyped."""
    return function.apply(*arguments)


def _norm_of(module: nn.Module) -> Callable[[torch.Tensor], Any]:
    return lambda states: applied(_Norm, states, module.weight)


class _Norm(torch.autograd.Function):
    """An RMS norm; only the states are kept for backward."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor) -> Any:
        ctx.save_for_backward(states, weight)
        return torch.ops.finetune.norm(states, weight)

    @staticmethod
    def backward(ctx: Any, gradients: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        states, weight = ctx.saved_tensors
        of_weight = torch.empty_like(weight) if ctx.needs_input_grad[1] else None
        return torch.ops.finetune.norm_backward(gradients, states, weight), of_weight


class _Rotation(torch.autograd.Function):
    """A rotation; backward rotates the gradients back, and needs no states."""

    @staticmethod
    def forward(ctx: Any, queries: torch.Tensor, keys: torch.Tensor) -> Any:
        return torch.ops.finetune.rotary(queries, keys)

    @staticmethod
    def backward(ctx: Any, queries: torch.Tensor, keys: torch.Tensor) -> Any:
        return torch.ops.finetune.rotary(queries, keys)


def _rotated(queries: torch.Tensor, keys: torch.Tensor, *_: Any, **__: Any) -> tuple[torch.Tensor, torch.Tensor]:
    rotated: tuple[torch.Tensor, torch.Tensor] = applied(_Rotation, queries, keys)
    return rotated


class _FusedLoss(torch.autograd.Function):
    """Cross-entropy on all logits; its gradients overwrite them."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, labels: torch.Tensor) -> Any:
        ctx.save_for_backward(logits)
        return torch.ops.finetune.cross_entropy(logits.detach(), labels)

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor, None]:
        (logits,) = ctx.saved_tensors
        return logits.detach(), None


class _ChunkedLoss(torch.autograd.Function):
    """The output layer and cross-entropy in chunks of tokens; forward computes the gradients."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, weight: torch.Tensor, labels: torch.Tensor, count: int) -> Any:
        of_states = torch.empty_like(states)
        of_weight = torch.zeros_like(weight) if ctx.needs_input_grad[1] else None
        losses = []
        chunks = zip(states.chunk(count), labels.chunk(count), of_states.chunk(count), strict=True)
        for part, labels_of_part, gradients in chunks:
            logits = functional.linear(part, weight)
            losses.append(torch.ops.finetune.cross_entropy(logits, labels_of_part))
            torch.mm(logits, weight, out=gradients)
            if of_weight is not None:
                of_weight.addmm_(logits.t(), part)
        ctx.save_for_backward(of_states, *([] if of_weight is None else [of_weight]))
        return torch.stack(losses).sum()

    @staticmethod
    def backward(ctx: Any, _: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        of_states, *of_weight = ctx.saved_tensors
        return of_states, *of_weight, *([None] * (3 - len(of_weight)))


def _chunk_count(tokens: int, weight: torch.Tensor) -> int:
    """Return the number of chunks, at most as many as the vocabulary is times the width, as in Liger.

    It divides the tokens of a sequence, so that chunks are equal at every batch.
    """
    vocabulary, width = weight.shape
    wanted = max(1, -(-vocabulary // width))
    return next(number for number in range(wanted, 0, -1) if tokens % number == 0)
