"""Joins predictions of different batch sizes or devices, and selects batch sizes of a prediction."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any, TypeVar

import numpy as np

from advisor.records.prediction import IndexArray, Predictions, Scaling, TokenTimes
from advisor.records.scale import Plan

_Record = TypeVar("_Record", Predictions, Scaling, TokenTimes)


def join_batches(parts: Sequence[Predictions]) -> Predictions:
    """Concatenate predictions along the batches, for a workload that is traced separately at each batch size."""

    def joined(records: Sequence[_Record]) -> _Record:
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(one, name) for one in records], axis=-1) for name in _array_names(records[0])
        }
        return replace(records[0], **arrays)

    scalings = [part.scaling for part in parts if part.scaling is not None]
    return replace(joined(parts), scaling=joined(scalings) if scalings else None)


def at_batches(predictions: Predictions, batches: IndexArray) -> Predictions:
    """Return the predictions at only these of their batches."""
    chosen = np.flatnonzero(np.isin(predictions.batches, batches))
    found = with_arrays(predictions, lambda array: array[..., chosen])
    if found.tokens is None or found.tokens.passes_at is None:
        return found
    passes_at = found.tokens.passes_at
    return replace(
        found, tokens=replace(found.tokens, passes_at=lambda devices, places: passes_at(devices, chosen[places]))
    )


def with_arrays(predictions: Predictions, changed: Callable[[Any], Any]) -> Predictions:
    """Return the predictions with every array changed, those of scaling and tokens included."""

    def of(record: _Record) -> _Record:
        return replace(record, **{name: changed(getattr(record, name)) for name in _array_names(record)})

    scaling, tokens = predictions.scaling, predictions.tokens
    return replace(of(predictions), scaling=scaling and of(scaling), tokens=tokens and of(tokens))


def join_devices(parts: Sequence[tuple[Sequence[int], Predictions]]) -> Predictions:
    """Join predictions of different devices at the same batches, each device at its index.

    The steps of a part without `scaling` run on one device each. The result has no `part_ratio`.
    """
    predictions = [replace(part, part_ratio=None) for _, part in parts]
    order = np.argsort(np.concatenate([indices for indices, _ in parts]))

    devices = [device for one in predictions for device in one.devices]
    names = [name for name in _array_names(predictions[0]) if name != "batches"]
    arrays: dict[str, Any] = {
        name: np.concatenate([getattr(one, name) for one in predictions])[order] for name in names
    }
    return replace(
        predictions[0],
        devices=tuple(devices[index] for index in order),
        scaling=_join_scalings(predictions, order),
        **arrays,
    )


def _join_scalings(predictions: Sequence[Predictions], order: IndexArray) -> Scaling | None:
    if all(one.scaling is None for one in predictions):
        return None
    plans: list[Plan] = []
    plan, efficiency_ratio = [], []
    for one in predictions:
        shape = one.step_s.shape
        on_one = Scaling(plans=(Plan(),), plan=np.zeros(shape, dtype=np.intp), efficiency_ratio=np.ones(shape))
        scaling = one.scaling or on_one
        plan.append(scaling.plan + len(plans))
        efficiency_ratio.append(scaling.efficiency_ratio)
        plans += scaling.plans
    return Scaling(
        plans=tuple(plans),
        plan=np.concatenate(plan)[order],
        efficiency_ratio=np.concatenate(efficiency_ratio)[order],
    )


def _array_names(record: Any) -> list[str]:
    """Return the fields whose last dimension is the batch."""
    return [field.name for field in fields(record) if isinstance(getattr(record, field.name), np.ndarray)]
