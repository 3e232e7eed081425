"""Runs the recurrent layers of transformers models as the fused kernels that engines have for them.

transformers names these kernels (of `causal_conv1d`, `mamba_ssm` and flash-linear-attention) and falls back to loops
over tokens and chunks, which no engine runs (vLLM: `mamba_mixer2.py`, `qwen3_next.py`).
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any

import torch

_DELTA_CHUNK = 64
"""Tokens of a chunk of the delta rule (flash-linear-attention: `chunk_gated_delta_rule`, `chunk_kda`)."""

_LIBRARY = torch.library.Library("engine", "FRAGMENT")


def _declared(schema: str, run: Callable[..., Any]) -> Any:
    """Declare an operator of the library `engine`, which allocates its results, and return it."""
    name = _LIBRARY.define(schema)
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    return getattr(torch.ops.engine, name)


_OPERANDS = "Tensor values, Tensor keys, Tensor queries, Tensor[] gates"
latent_attention = _declared(
    "latent_attention(Tensor queries, Tensor latents, Tensor rotated) -> Tensor",
    lambda queries, latents, rotated: queries.new_empty((*queries.shape[:-1], latents.shape[-1])),
)
_convolution = _declared(
    "convolution(Tensor states, Tensor weight) -> Tensor", lambda states, weight: torch.empty_like(states)
)
_convolution_update = _declared(
    "convolution_update(Tensor state, Tensor states, Tensor weight) -> Tensor",
    lambda state, states, weight: torch.empty_like(states),
)
_state_update = _declared(
    f"state_update(Tensor state, {_OPERANDS}) -> Tensor",
    lambda state, values, keys, queries, gates: torch.empty_like(values),
)
_selective_scan = _declared(
    f"selective_scan({_OPERANDS}) -> (Tensor, Tensor)",
    lambda values, keys, queries, gates: (
        torch.empty_like(values),
        values.new_empty((*values.shape[:2], keys.shape[-2])),
    ),
)
_chunk_scan = _declared(
    f"chunk_scan({_OPERANDS}, int chunk) -> (Tensor, Tensor)",
    lambda values, keys, queries, gates, chunk: (
        torch.empty_like(values),
        values.new_empty((values.shape[0], *values.shape[2:], keys.shape[-1])),
    ),
)
_delta_rule = _declared(
    f"delta_rule({_OPERANDS}, int chunk) -> (Tensor, Tensor)",
    lambda values, keys, queries, gates, chunk: (
        torch.empty_like(values),
        values.new_empty((values.shape[0], values.shape[2], keys.shape[-1], values.shape[-1])),
    ),
)


def _stored(*tensors: torch.Tensor | None) -> list[torch.Tensor]:
    """Return the given tensors without the repetitions of expanded dimensions, which take no memory."""
    return [
        one[tuple(slice(1) if step == 0 else slice(None) for step in one.stride())]
        for one in tensors
        if one is not None
    ]


def _convolved(states: torch.Tensor, weight: torch.Tensor, *_: Any, **__: Any) -> Any:
    return _convolution(states, weight)


def _convolved_once(states: torch.Tensor, conv_state: torch.Tensor, weight: torch.Tensor, *_: Any, **__: Any) -> Any:
    return _convolution_update(conv_state, states, weight)


def _selectively_scanned(
    states: torch.Tensor, dt: Any, a: Any, keys: Any, queries: Any, *_: Any, z: Any = None, **others: Any
) -> Any:
    result, state = _selective_scan(states, keys, queries, _stored(dt, z))
    return (result, state) if others.get("return_last_state") else result


def _selectively_updated(
    state: torch.Tensor,
    states: torch.Tensor,
    dt: Any,
    a: Any,
    keys: Any,
    queries: Any,
    *_: Any,
    z: Any = None,
    **__: Any,
) -> Any:
    return _state_update(state, states, keys, queries, _stored(dt, z))


def _scanned_in_chunks(
    states: torch.Tensor,
    dt: Any,
    a: Any,
    keys: Any,
    queries: Any,
    chunk_size: int,
    *_: Any,
    z: Any = None,
    **others: Any,
) -> Any:
    result, state = _chunk_scan(states, keys, queries, _stored(dt, z), chunk_size)
    return (result, state) if others.get("return_final_states") else result


def _ruled_in_chunks(queries: Any, keys: Any, values: Any, g: Any, beta: Any, **_: Any) -> Any:
    return _delta_rule(values, keys, queries, [g, beta], _DELTA_CHUNK)


def _ruled_once(queries: Any, keys: Any, values: Any, g: Any, beta: Any, initial_state: Any, **_: Any) -> Any:
    return _state_update(initial_state, values, keys, queries, [g, beta]), initial_state


_KERNELS: Mapping[str, Callable[..., Any]] = {
    "causal_conv1d_fn": _convolved,
    "causal_conv1d_update": _convolved_once,
    "selective_scan_fn": _selectively_scanned,
    "selective_state_update": _selectively_updated,
    "mamba_chunk_scan_combined": _scanned_in_chunks,
    "chunk_gated_delta_rule": _ruled_in_chunks,
    "chunk_kda": _ruled_in_chunks,
    "fused_recurrent_gated_delta_rule": _ruled_once,
    "fused_recurrent_kda": _ruled_once,
}
"""Kernels, by the names under which transformers looks for them -> what runs in their place."""


def recurrent_kernels(code: ModuleType) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the names of a modeling file's functions that stand for such kernels, with what runs in their place."""
    for name, function in vars(code).items():
        if inspect.isfunction(function) and function.__closure__:
            kernel = inspect.getclosurevars(function).nonlocals.get("func_name", "")
            if kernel in _KERNELS:
                yield name, _KERNELS[kernel]
