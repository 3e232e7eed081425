"""Predictions of the same devices at different batch sizes in, one prediction out; and the other way round."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from advisor.records.prediction import IndexArray, Predictions, Scaling

_Record = TypeVar("_Record", Predictions, Scaling)


def join_batches(parts: Sequence[Predictions]) -> Predictions:
    """Put predictions side by side along the batches, for a workload that is traced anew at each."""

    def joined(records: Sequence[_Record]) -> _Record:
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(one, name) for one in records], axis=-1) for name in _arrays(records[0])
        }
        return replace(records[0], **arrays)

    scalings = [part.scaling for part in parts if part.scaling is not None]
    return replace(joined(parts), scaling=joined(scalings) if scalings else None)


def at_batches(predictions: Predictions, batches: IndexArray) -> Predictions:
    """The predictions at some of their batches alone."""
    chosen = np.isin(predictions.batches, batches)

    def at_chosen(record: _Record) -> _Record:
        arrays: dict[str, Any] = {name: getattr(record, name)[..., chosen] for name in _arrays(record)}
        return replace(record, **arrays)

    scaling = predictions.scaling
    return replace(at_chosen(predictions), scaling=None if scaling is None else at_chosen(scaling))


def _arrays(record: Any) -> list[str]:
    """The fields whose last dimension is the batch."""
    return [field.name for field in fields(record) if isinstance(getattr(record, field.name), np.ndarray)]
