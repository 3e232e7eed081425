"""Maps a model's layers to the fused kernels of LLM serving engines.

Engines merge products of the same input into one: queries, keys and values; gate and up projections (vLLM:
`QKVParallelLinear`, `MergedColumnParallelLinear`). A norm is one kernel (`rms_norm`), which includes the addition
before it (`fused_add_rms_norm`). The rotation of queries and keys (`rotary_embedding`), an activation with its gate
(`silu_and_mul`) and the sorting of tokens by expert (`moe_align_block_size`) are one kernel each; `recurrent_kernels`
has those of recurrent layers.
"""

import inspect
import sys
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from advisor.records.workload import Row
from advisor.workload.own_attention import own_attention
from advisor.workload.patching import Patch, patched
from advisor.workload.recorder import generic_paths
from advisor.workload.recurrent_kernels import recurrent_kernels

MERGED_FAMILIES = frozenset({"matmul", "reduction", "gather", "scan", "creation"})
"""The operator families in a merged module that become part of another kernel."""
_ROTATIONS = {
    "apply_rotary_pos_emb": ["q", "k", "cos", "sin", "unsqueeze_dim"],
    "apply_rotary_pos_emb_interleave": ["q", "k", "cos", "sin", "position_ids", "unsqueeze_dim"],
}
"""The rotation functions of nearly all transformers models, with their parameters; any other is traced as it is."""
_BLOCK = "*"
"""Stands for the index of a repeated block in a module's path."""
_ELEMENTWISE = frozenset({"pointwise", "creation", "copy"})
_ACTIVATIONS = frozenset({"transformers.activations", "torch.nn.modules.activation"})
"""Python modules whose classes are activations, apart from attention, which is told apart by its child modules."""

_LIBRARY = torch.library.Library("engine", "DEF")
_LIBRARY.define("norm(Tensor states, Tensor[] weights) -> Tensor")
_LIBRARY.define("rotary(Tensor queries, Tensor keys) -> (Tensor, Tensor)")
_LIBRARY.define("gate(Tensor gates, Tensor states) -> Tensor")
_LIBRARY.impl("norm", lambda states, weights: torch.empty_like(states), "CompositeExplicitAutograd")
_LIBRARY.impl(
    "rotary", lambda queries, keys: (torch.empty_like(queries), torch.empty_like(keys)), "CompositeExplicitAutograd"
)
_LIBRARY.impl("gate", lambda gates, states: torch.empty_like(states), "CompositeExplicitAutograd")


@contextmanager
def engine_kernels(model: nn.Module, *, is_decode: bool) -> Iterator[None]:
    """Run the model's norms, rotations and recurrent layers as operators of the library `engine`.

    Decode leaves the latents of MLA as they are cached, for `kv_cache.attend`.
    """
    patches: list[Patch] = [(one, "forward", _norm_of(one)) for one in model.modules() if is_rms_norm(one)]
    code = sys.modules[type(model).__module__]
    patches += rotation_of(code, _rotated)
    patches += [(code, name, replacement) for name, replacement in recurrent_kernels(code)]
    patches += own_attention(model)
    if is_decode:
        latent = (one for one in model.modules() if hasattr(one, "expand_kv"))
        patches += [(one, "expand_kv", lambda latents, rotated: (rotated, latents)) for one in latent]
    with patched(patches, in_all_threads=True):
        yield


def rotation_of(code: Any, replacement: Callable[..., Any]) -> list[Patch]:
    """Return the patches that replace the rotation of queries and keys in a model's Python module."""
    return [
        (code, name, replacement)
        for name, parameters in _ROTATIONS.items()
        if (rotation := getattr(code, name, None)) and list(inspect.signature(rotation).parameters) == parameters
    ]


def is_rms_norm(module: nn.Module) -> bool:
    """Return True for an RMS norm, with or without a gate; other norms run as torch's kernels."""
    return type(module).__name__.endswith(("RMSNorm", "RMSNormGated"))


def _norm_of(module: nn.Module) -> Callable[..., torch.Tensor]:
    def forward(states: torch.Tensor, gate: torch.Tensor | None = None) -> torch.Tensor:
        read = [*module.parameters(), *([] if gate is None else [gate])]
        result: torch.Tensor = torch.ops.engine.norm(states, read)
        return result

    return forward


def _rotated(
    queries: torch.Tensor,
    keys: torch.Tensor,
    cos: torch.Tensor,
    sin: torch.Tensor,
    *,
    position_ids: torch.Tensor | None = None,
    unsqueeze_dim: int = 1,
) -> tuple[torch.Tensor, ...]:
    """Rotate queries and keys as one operator, laid out as (batch, tokens, heads x width).

    The heads are the dimension `unsqueeze_dim` of the arguments.
    """
    flat = [states.movedim(unsqueeze_dim, -2).flatten(-2) for states in (queries, keys)]
    width = queries.shape[-1]
    return tuple(
        states.unflatten(-1, (-1, width)).movedim(-2, unsqueeze_dim) for states in torch.ops.engine.rotary(*flat)
    )


@contextmanager
def following_inputs(seen: set[int]) -> Iterator[None]:
    """Add to `seen` the ids of linear layers that are called with the same input as the linear layer before."""
    last: Any = lambda: None  # noqa: E731 - behaves like a dead weak reference

    def on_call(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        nonlocal last
        if isinstance(module, nn.Linear) and inputs:
            if inputs[0] is last():
                seen.add(id(module))
            last = weakref.ref(inputs[0])

    hook = nn.modules.module.register_module_forward_pre_hook(on_call)
    try:
        yield
    finally:
        hook.remove()


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLayers:
    """Paths of modules that engines run in their own kernels."""

    merged: frozenset[str]
    """Modules whose product or reduction is part of another kernel."""
    routers: frozenset[str]
    """Modules that choose experts: one kernel beside the product (vLLM: `topk_softmax`, `grouped_topk`)."""
    normalising: frozenset[str]
    """Modules that contain an engine's norm, which takes over their residual addition."""
    activations: frozenset[str]
    """Activations."""
    gated: frozenset[str]
    """Modules that contain an activation."""


def engine_layers(model: nn.Module, *, same_input: Collection[int]) -> EngineLayers:
    """Return the engine layers of a model; `same_input` are the ids of layers found by `following_inputs`.

    Norms and experts are recognised by their class names, because every model family defines its own classes.
    """

    def paths(chosen: Callable[[nn.Module], bool]) -> frozenset[str]:
        identities = {id(module) for module in model.modules() if chosen(module)}
        return frozenset(path for identity, path in generic_paths(model) if identity in identities)

    activations = paths(lambda one: type(one).__module__ in _ACTIVATIONS and not any(one.children()))
    return EngineLayers(
        merged=paths(lambda one: id(one) in same_input or type(one).__name__.endswith(("Norm", "Experts"))),
        routers=paths(lambda one: type(one).__name__.endswith("Router")),
        normalising=frozenset(map(_around, paths(is_rms_norm))),
        activations=activations,
        gated=frozenset(map(_around, activations)),
    )


def engine_rows(rows: Sequence[Row], layers: EngineLayers) -> Iterator[Row]:
    """Yield a pass's rows, with residual additions moved into norm kernels and activations into gate kernels.

    Values that a block computes from parameters alone, such as decay rates, are left out: engines compute them once.
    """
    rows = [row for row in rows if _BLOCK not in row.module or row.family not in _ELEMENTWISE or grows(row)]
    with_gate = {row.module for row in rows if _is_gate(row, layers)}
    for row in rows:
        if _is_gate(row, layers):
            yield replace(
                row,
                op="engine.gate",
                family="gate",
                inputs=tuple(replace(one, fused=False) for one in row.inputs),
            )
        elif (
            row.op == "aten.add"
            and len({one.shape for one in row.inputs}) == 1 < len(row.inputs)
            and row.module in layers.normalising
            and any(one.joined for one in row.outputs)
        ):
            yield replace(row, family="rms_norm")  # a residual addition
        elif row.module not in layers.activations or _around(row.module) not in with_gate:
            yield row


def _is_gate(row: Row, layers: EngineLayers) -> bool:
    """Return True if the row multiplies an activation's result, in the same kernel, by a tensor of the same shape."""
    if row.op != "aten.mul" or row.module not in layers.gated or len(row.inputs) < 2:
        return False
    return row.inputs[0].shape == row.inputs[1].shape and any(one.fused for one in row.inputs)


def grows(row: Row) -> bool:
    """Return True if an operand grows with the batch."""
    return any(not isinstance(dim, int) for operand in (*row.inputs, *row.outputs) for dim in operand.shape)


def _around(path: str) -> str:
    return path.rpartition(".")[0]
