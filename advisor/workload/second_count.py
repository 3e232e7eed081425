"""Counts the forward FLOP a second time, independently, with fvcore on the real model."""

import logging
import warnings
from typing import Any

import torch
from torch import nn

from advisor.errors import LoadError
from advisor.records.workload import SecondCount
from advisor.workload.fakes import to_clone, untouched, with_tensors
from advisor.workload.loaded import LoadedModel

_FLOPS_PER_FVCORE_FLOP = 2
"""fvcore counts one multiply-add as one (its docs/flop_count.md)."""


class _Keywords(nn.Module):
    """Passes positional values on as keyword arguments, which fvcore's tracer cannot do."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], positional: int) -> None:
        super().__init__()
        self.model = model
        self._names = names
        self._positional = positional

    def forward(self, *values: Any) -> Any:
        positional, named = values[: self._positional], values[self._positional :]
        return self.model(*positional, **dict(zip(self._names, named, strict=True)))


def count_with_fvcore(loaded: LoadedModel, *, batch: int) -> SecondCount:
    """Run fvcore's FlopCountAnalysis on a copy of the parameters; takes seconds, and the memory of a forward pass.

    Raises `LoadError` if fvcore's jit tracer cannot trace the model.
    """
    args, kwargs = loaded.make_inputs(batch)
    logging.getLogger("fvcore").setLevel(logging.ERROR)
    with untouched([loaded.model]), torch.no_grad(), warnings.catch_warnings():
        # fvcore's import warns about its use of torch.jit, and torch.jit's tracer about every branch on a size.
        warnings.simplefilter("ignore")
        from fvcore.nn import FlopCountAnalysis

        with_tensors([loaded.model], to_clone)
        loaded.model.eval()
        model = _Keywords(loaded.model, tuple(kwargs), len(args)) if kwargs else loaded.model
        analysis = FlopCountAnalysis(model, (*args, *kwargs.values()))
        analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False)
        try:
            by_op = analysis.by_operator()
        except (RuntimeError, TypeError, ValueError) as error:
            raise LoadError(
                f"fvcore cannot trace {loaded.name}: {error}",
                hint="omit --second-count; the main count needs no jit trace",
            ) from error
        return SecondCount(
            batch=batch,
            flops=float(analysis.total() * _FLOPS_PER_FVCORE_FLOP),
            flops_by_op={op: float(count * _FLOPS_PER_FVCORE_FLOP) for op, count in by_op.items()},
            unsupported_ops=dict(analysis.unsupported_ops()),
        )
