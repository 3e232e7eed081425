"""Records the memory layout of operands where it affects a GPU's kernels."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from advisor.ops.registry import CHANNELS_LAST, MADE_CONTIGUOUS, STRIDED
from advisor.records.workload import Attribute
from advisor.workload.user_error import passes_arguments_on

_IMAGE_FAMILIES = frozenset({"conv", "interpolate"})
_ELEMENTWISE_FAMILIES = frozenset({"pointwise", "copy"})
_JOINS = frozenset({"aten.cat", "aten.stack"})
_IMAGE_DIMS = 4
_GROUP_NORM = torch.ops.aten.native_group_norm.default
_GROUP_NORM_BACKWARD = torch.ops.aten.native_group_norm_backward.default
_NORMALISED = {"aten.native_layer_norm": 1, "aten.native_group_norm": 1, "aten.native_layer_norm_backward": 2}
"""How many of the first operands must be contiguous; the kernel copies those that are not."""


def memory_order(
    op: str, family: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]
) -> tuple[tuple[str, Attribute], ...]:
    """Return the layout attributes of a call: `CHANNELS_LAST`, `MADE_CONTIGUOUS` or `STRIDED`."""
    if family in _ELEMENTWISE_FAMILIES and outputs:
        walked = inputs if op in _JOINS else [one for one in inputs if one.shape == outputs[0].shape]
        strided = _strided([*walked, outputs[0]])
        return ((STRIDED, strided),) if strided else ()
    if family in _IMAGE_FAMILIES and inputs:
        image = inputs[1 if op == "aten.convolution_backward" else 0]
        return ((CHANNELS_LAST, True),) if _is_channels_last(image) else ()
    copied = sum(map(_is_permuted, inputs[: _NORMALISED.get(op, 0)]))
    return ((MADE_CONTIGUOUS, copied),) if copied else ()


@passes_arguments_on
def called_as_on_gpu(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run the call and return its result in the layout that a GPU gives it: NCHW for a group norm and its gradient.

    This also avoids a crash in a real step: torch 2.13's CPU kernel of the gradient crashes on channels-last images
    that need no gradient themselves.
    """
    if func is _GROUP_NORM:
        args = (args[0].contiguous(), *args[1:])
    elif func is _GROUP_NORM_BACKWARD:
        args = (args[0].contiguous(), args[1].contiguous(), *args[2:])
    return func(*args, **kwargs)


def _is_channels_last(image: torch.Tensor) -> bool:
    """Return True for channels-last, as kernels test it (c10::MemoryFormat): slices count, one-pixel images do not."""
    if image.dim() != _IMAGE_DIMS or image.is_nested or image.layout is not torch.strided:
        return False
    return not image.is_contiguous() and suggest_memory_format(image) is torch.channels_last


def _is_permuted(tensor: torch.Tensor) -> bool:
    """Return True for a dense tensor with permuted dimensions; slices do not count, because autocast packs them."""
    if tensor.is_nested or tensor.layout is not torch.strided or tensor.is_contiguous():
        return False
    return tensor.permute(_by_step(tensor)).is_contiguous()


def _strided(tensors: Sequence[torch.Tensor]) -> str | None:
    """Return the attribute `STRIDED`; None if a kernel can walk through all these tensors as one list of elements.

    Expanded tensors do not count: their shape tells that they are broadcast. Nor do sizes that depend on data.
    """
    if any(tensor.is_nested or tensor.layout is not torch.strided for tensor in tensors):
        return None
    fixed = [tensor for tensor in tensors if not any(isinstance(size, torch.SymInt) for size in tensor.shape)]
    walked = [tensor for tensor in fixed if 0 not in tensor.stride()]
    if all(tensor.is_contiguous() for tensor in walked):
        return None
    orders = {tuple(dim - tensor.dim() for dim in _by_step(tensor) if tensor.shape[dim] > 1) for tensor in walked}
    if len({order[-1:] for order in orders}) > 1:
        return "transposed"
    is_one_list = len(orders) == 1 and all(tensor.permute(_by_step(tensor)).is_contiguous() for tensor in walked)
    return None if is_one_list else "rows"


def _by_step(tensor: torch.Tensor) -> list[int]:
    """Return the dimensions from the one with the largest stride to that with the smallest."""
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
