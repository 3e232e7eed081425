"""Keeps the elements of sparse fake tensors, which torch's kernels for fake tensors lose."""

from collections.abc import Callable
from typing import Any

import torch

from advisor.workload.user_error import passes_arguments_on

_SUMS = frozenset(f"aten::{name}" for name in ("add", "add_", "sub", "sub_"))
_WITHOUT_ELEMENTS = frozenset(
    f"aten::{name}" for name in ("zero_", "zeros_like", "empty_like", "sparse_resize_and_clear_")
)
_ADD_IN_PLACE = "aten::add_"
_COALESCE = "aten::_coalesce"


def is_sparse(value: Any) -> bool:
    """Return whether the value is a sparse tensor in coordinate format, as gradients of embeddings are."""
    return isinstance(value, torch.Tensor) and value.layout is torch.sparse_coo


def parts_of(sparse: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the indices (dimensions, elements) and values (elements, ...) of a sparse tensor, coalesced or not."""
    return sparse._indices(), sparse._values()


@passes_arguments_on
def called_on_sparse(func: Any, args: Any, kwargs: Any) -> Any:
    """Run a call with sparse operands; on fake tensors, a result of their shape has as many elements as they have.

    A sum has those of all operands. Coalescing keeps all elements: fake indices are taken to be distinct.
    """
    operands = [one for one in args if is_sparse(one)]
    counts, first_is_coalesced = [one._nnz() for one in operands], operands[0].is_coalesced()
    name = func._schema.name
    if name == _ADD_IN_PLACE and hasattr(args[0], "fake_mode") and not is_sparse(args[0]):
        return args[0]  # torch would make a real tensor of the whole table
    result = func(*args, **kwargs)
    if not is_sparse(result) or not hasattr(result, "fake_mode") or name in _WITHOUT_ELEMENTS:
        return result
    count = sum(counts) if name in _SUMS else counts[0]
    if result.shape != operands[0].shape or result._nnz() == count:
        return result
    is_coalesced = name == _COALESCE or (first_is_coalesced and len(operands) == 1)
    filled = _of_elements(result, count=count, is_coalesced=is_coalesced)
    if result is not args[0]:
        return filled
    result.data = filled
    return result


def with_bags(args: Any) -> Any:
    """Return the arguments of `aten._embedding_bag_backward` with a bag for each look-up, as its kernels fill them in.

    The forward of fake tensors leaves them out; without them, a sparse gradient would have no row.
    """
    grad, lookups, offsets, bags, *others = args
    return (grad, lookups, offsets, bags if bags.numel() else torch.empty_like(lookups), *others)


def _of_elements(like: torch.Tensor, *, count: int, is_coalesced: bool) -> torch.Tensor:
    """Return a sparse fake tensor with this many elements, or rows if part of the dimensions is dense."""
    make: Callable[..., torch.Tensor] = torch.ops.aten._sparse_coo_tensor_with_dims_and_tensors
    return make(
        like.sparse_dim(),
        like.dense_dim(),
        like.shape,
        torch.empty((like.sparse_dim(), count), dtype=torch.int64),
        torch.empty((count, *like.shape[like.sparse_dim() :]), dtype=like.dtype),
        dtype=like.dtype,
        layout=torch.sparse_coo,
        device=like.device,
        is_coalesced=is_coalesced,
    )
