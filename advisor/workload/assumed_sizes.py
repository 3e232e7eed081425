"""Assumes numbers for sizes that depend on data, which fake tensors do not have.

The number of elements that a mask selects is its size times the share expected to be true. If the mask comes from a
choice among n (`topk`, `argmax`), as in mixture-of-experts routing, all are assumed equally frequent, so the share is
1 / n. A limit on the running count of such a mask, as an expert's capacity, cuts its share. All values are assumed to
be finite, as trainers check of a loss. Nothing is known about other masks; they are assumed to be half true. A loop
over the experts that some token chose visits the first ones. The targets of a CTC loss are assumed to fill the length
to which they are padded; if they are concatenated, to be of equal length.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from advisor import units
from advisor.workload.loaded import tensors_in

_TRUE_RATIO = 0.5
_CHOICES = frozenset({"aten.topk", "aten.sort", "aten.argsort", "aten.argmax", "aten.argmin", "aten.max", "aten.min"})
_EQUALITIES = frozenset({"aten.eq", "aten.eq_"})
_INEQUALITIES = frozenset({"aten.ne", "aten.logical_not", "aten.bitwise_not"})
_LIMITS = frozenset({"aten.le", "aten.lt"})
_PRODUCTS = frozenset({"aten.mul", "aten.logical_and", "aten.bitwise_and"})
_REDUCTIONS = frozenset({"aten.any", "aten.sum", "aten.amax"})
_SAME_ELEMENTS = frozenset({"aten._to_copy", "aten.clone", "aten.gt", "aten.greater", "aten.copy_", "aten.index"})
_INTEGERS = frozenset({torch.int64, torch.int32, torch.bool})


@dataclass(frozen=True, slots=True)
class _Choice:
    """A tensor whose elements are one of `count` values, each equally frequent."""

    count: int


@dataclass(frozen=True, slots=True)
class _Mask:
    """A tensor of whose elements the share `true_ratio` is expected to be true, or nonzero."""

    true_ratio: float


@dataclass(frozen=True, slots=True)
class _RunningCount:
    """How many elements of a mask are true up to each place; `most` is expected at the last one."""

    most: float


class _Places:
    """The places of a mask of one dimension that are true."""


class AssumedSizes:
    """Turns sizes into numbers; a size that depends on data is assumed and listed in `notes`."""

    def __init__(self) -> None:
        self._assumed: dict[Any, int] = {}
        self._of_targets: dict[str, None] = {}
        self._known: Any = WeakIdKeyDictionary()

    def __call__(self, size: Any) -> int:
        """Return the number for `size`, an int or a torch symbol."""
        if isinstance(size, int):
            return size
        expression = size.node.expr
        for symbol in sorted(expression.free_symbols, key=str):
            if symbol not in self._assumed:
                self._assumed[symbol] = int(self._most(size.node.shape_env, symbol) * _TRUE_RATIO)
        return max(0, int(expression.subs(self._assumed)))

    def value_of(self, expression: Any) -> Any:
        """Return the expression with the assumed numbers filled in, or None if it has a symbol without one."""
        if not expression.free_symbols <= self._assumed.keys():
            return None
        return expression.subs(self._assumed)

    def slices(self, tensor: torch.Tensor, dim: int = 0) -> list[torch.Tensor]:
        """Return the slices along a dimension whose size depends on data; the places of a mask are the first ones."""
        slices = [tensor.select(dim, place) for place in range(self(tensor.shape[dim]))]
        if isinstance(self._known.get(tensor), _Places):
            self._known.update(zip(slices, range(len(slices)), strict=True))
        return slices

    def longest_target(self, targets: torch.Tensor, *, batch: int) -> int:
        """Return the length of the longest target of a CTC loss, padded to (batch, length) or concatenated."""
        is_padded = targets.dim() > 1
        longest = self(targets.shape[-1]) if is_padded else math.ceil(self(targets.shape[0]) / self(batch))
        which = "the longest target of ctc_loss is" if is_padded else "all targets of ctc_loss are"
        self._of_targets[f"{which} assumed to have {longest} labels"] = None
        return longest

    def number_in(self, tensor: Any) -> int | None:
        """Return the number that the tensor is assumed to hold, or None."""
        known = self._known.get(tensor) if isinstance(tensor, torch.Tensor) else None
        if isinstance(known, _Mask) and known.true_ratio in (0, 1) and tensor.dtype is torch.bool:
            return int(known.true_ratio)
        return known if isinstance(known, int) else None

    def learn_mask(self, mask: torch.Tensor, *, true_ratio: float) -> None:
        """Learn which share of the mask is expected to be true."""
        self._known[mask] = _Mask(true_ratio)

    def observe(self, op: str, args: tuple[Any, ...], results: list[torch.Tensor]) -> None:
        """Learn what an operator's results are likely to contain; must be called for every operator, in order."""
        tensors = tensors_in(args)
        if not tensors:
            return
        if op in ("aten.nonzero", "aten.index", "aten.masked_select"):
            self._assume_selected(tensors, results)
        if op == "aten.nonzero" and tensors[0].dim() == 1:
            self._known[results[0]] = _Places()
        if op in _CHOICES:
            self._learn_choice(op, args, results)
            return
        known = self._known.get(tensors[0])
        if known is None and op == "aten.sum" and tensors[0].dtype is torch.bool:
            known = _Mask(_TRUE_RATIO)  # so that some of them are true
        if op == "aten.unbind" and isinstance(known, _Places):
            return  # each slice has its own place
        if known is None or not results or results[0].dtype not in _INTEGERS:
            return
        learned = self._passed_on(op, known, args, results[0])
        if learned is not None:
            self._known[results[0]] = learned

    def _learn_choice(self, op: str, args: tuple[Any, ...], results: list[torch.Tensor]) -> None:
        numbers = [value for value in args[1:] if isinstance(value, int) and not isinstance(value, bool)]
        if op == "aten.topk":  # its first number is how many it chooses
            numbers = numbers[1:]
        dim = numbers[0] if numbers else -1
        for result in results:
            if result.dtype is torch.int64 and args[0].dim() > 0:
                self._known[result] = _Choice(self(args[0].shape[dim]))

    def _assume_selected(self, tensors: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        """Assume a number for the size symbol that this operator created, from the mask that it selects by."""
        mask = next((tensor for tensor in tensors[::-1] if tensor.dtype is torch.bool), tensors[0])
        known = self._known.get(mask)
        ratio = known.true_ratio if isinstance(known, _Mask) else _TRUE_RATIO
        selected = round(math.prod(self(size) for size in mask.shape) * ratio)
        for size in (size for result in results for size in result.shape):
            if isinstance(size, torch.SymInt):
                for symbol in size.node.expr.free_symbols:
                    self._assumed.setdefault(symbol, selected)

    def _passed_on(self, op: str, known: Any, args: tuple[Any, ...], result: torch.Tensor) -> Any:
        """Return what is known about an operator's result, given what is known about its first input."""
        if isinstance(known, _Choice):
            return _Mask(1 / known.count) if op in _EQUALITIES else _same_elements(op, known, args, result)
        if isinstance(known, _RunningCount):
            limited = op in _LIMITS and isinstance(args[1], (int, float))
            return _Mask(min(1.0, args[1] / known.most)) if limited else _same_elements(op, known, args, result)
        if op in _INEQUALITIES and result.dtype is torch.bool:
            return known if op == "aten.ne" else _Mask(1 - known.true_ratio)
        if op == "aten.cumsum":
            return _RunningCount(known.true_ratio * self(args[0].shape[args[1]]))
        if op in _PRODUCTS:
            other = self._known.get(args[1]) if isinstance(args[1], torch.Tensor) else None
            return _Mask(known.true_ratio * other.true_ratio) if isinstance(other, _Mask) else None
        if op == "aten.all" and known.true_ratio in (0, 1):
            return known
        if op in _REDUCTIONS:
            merged = args[0].numel() / max(1, result.numel())
            return _Mask(min(1.0, known.true_ratio * merged))
        return _same_elements(op, known, args, result)

    @staticmethod
    def _most(shape_env: Any, symbol: Any) -> int:
        upper = shape_env.bound_sympy(symbol).upper
        return int(upper) if upper.is_Integer and upper < torch.iinfo(torch.int32).max else 0

    def notes(self) -> tuple[str, ...]:
        """Return what was assumed, in words."""
        sizes = [size for size in self._assumed.values() if size > 0]
        if not sizes:
            return tuple(self._of_targets)
        shown = ", ".join(str(size) for size in sizes[:6]) + (", ..." if len(sizes) > 6 else "")
        subject = "1 size depends on data and is" if len(sizes) == 1 else f"{len(sizes)} sizes depend on data and are"
        return (
            f"{subject} assumed to be {shown}: masks are {units.format_ratio(_TRUE_RATIO)} true, choices (experts) "
            "equally frequent",
            *self._of_targets,
        )


def _same_elements(op: str, known: Any, args: tuple[Any, ...], result: torch.Tensor) -> Any:
    """Return `known` if the operator is a view or a conversion, which keep the elements; else None."""
    is_view = result.untyped_storage()._cdata == args[0].untyped_storage()._cdata
    return known if is_view or op in _SAME_ELEMENTS else None
