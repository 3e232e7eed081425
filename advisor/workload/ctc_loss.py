"""Answers torch's CTC loss on fake tensors, for which torch has no kernel: the size of its states depends on values."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.nn import functional

from advisor.workload.assumed_sizes import AssumedSizes
from advisor.workload.user_error import passes_arguments_on

CTC_LOSSES = frozenset((functional.ctc_loss, torch.ctc_loss))
"""The functions of which `with_length_tensors` takes the arguments."""
_FORWARD = (torch.ops.aten._ctc_loss.default, torch.ops.aten._ctc_loss.Tensor)
_BACKWARD = (torch.ops.aten._ctc_loss_backward.default, torch.ops.aten._ctc_loss_backward.Tensor)
_CALLS = frozenset((*_FORWARD, *_BACKWARD))
_LENGTHS = ("input_lengths", "target_lengths")
_FIRST_LENGTHS = 2
"""Place of the first of `_LENGTHS` among the arguments."""
_PADDED_DIMS = 2
"""Dimensions of targets that are padded to one length; others are concatenated."""


def with_length_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[Sequence[Any], Mapping[str, Any]]:
    """Return the arguments of a CTC loss with lengths that are lists of integers as tensors, which are real.

    In C++ torch makes tensors of them, and writes into these what a fake tensor cannot hold.
    """
    places = {_FIRST_LENGTHS + place: name for place, name in enumerate(_LENGTHS)}
    made = [_as_tensor(value) if place in places else value for place, value in enumerate(args)]
    return made, {name: _as_tensor(value) if name in _LENGTHS else value for name, value in kwargs.items()}


def _as_tensor(lengths: Any) -> Any:
    is_list = isinstance(lengths, (list, tuple)) and all(isinstance(length, int) for length in lengths)
    with unset_fake_temporarily():
        return torch.tensor(lengths, dtype=torch.int64) if is_list else lengths


def is_ctc_loss_on_fakes(func: Any, args: Sequence[Any]) -> bool:
    """Return whether the call is a CTC loss, or its gradient, on fake tensors."""
    return func in _CALLS and isinstance(args[0], FakeTensor)


def ctc_loss_on_fakes(func: Any, args: Sequence[Any], sizes: AssumedSizes) -> Any:
    """Return the results of the call; `sizes` assumes the length of the longest target if it is not known.

    The loss of each sample, and alpha (batch, time, 2 x longest target + 1), as in `ctc_loss_allocate_outputs` of
    ATen/native/LossCTC.cpp; the gradient is as large as the log-probabilities. Raises RuntimeError as torch does if the
    sizes do not fit together.
    """
    if func in _BACKWARD:
        return args[1].new_empty(args[1].shape)
    log_probabilities, targets, *lengths = args[:4]
    of_inputs, of_targets = map(_values, lengths)
    time_steps, batch = log_probabilities.shape[:2]
    _check(targets, lengths, of_inputs, of_targets, time_steps=time_steps, batch=batch)
    longest = sizes.longest_target(targets, batch=batch) if of_targets is None else max(of_targets)
    return (
        log_probabilities.new_empty((batch,)),
        log_probabilities.new_empty((batch, time_steps, 2 * longest + 1)),
    )


def _values(lengths: Any) -> list[int] | None:
    """Return the lengths, or None if they are fake."""
    if isinstance(lengths, FakeTensor):
        return None
    with unset_fake_temporarily():
        return list(map(int, lengths))


@passes_arguments_on
def _check(
    targets: torch.Tensor,
    lengths: Sequence[Any],
    of_inputs: Sequence[int] | None,
    of_targets: Sequence[int] | None,
    *,
    time_steps: int,
    batch: int,
) -> None:
    """Raise RuntimeError for arguments that torch refuses, as far as their values are known."""
    is_padded = targets.dim() == _PADDED_DIMS
    for name, each in zip(_LENGTHS, lengths, strict=True):
        if len(each) != batch:
            raise RuntimeError(f"ctc_loss: {name} must be of size batch_size = {batch}, found {len(each)}")
    if is_padded and len(targets) != batch:
        raise RuntimeError(f"ctc_loss: expected targets of {batch} samples, found {tuple(targets.shape)}")
    if of_inputs is not None and max(of_inputs) > time_steps:
        raise RuntimeError(f"ctc_loss: expected input_lengths of at most {time_steps}, found {max(of_inputs)}")
    if of_targets is not None and targets.shape[-1] < (needed := max(of_targets) if is_padded else sum(of_targets)):
        raise RuntimeError(f"ctc_loss: expected targets of at least {needed}, found {tuple(targets.shape)}")
