"""Predictions of the same devices at different batch sizes in, one prediction out."""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from advisor.records.prediction import Predictions


def join_batches(parts: Sequence[Predictions]) -> Predictions:
    """Put predictions side by side along the batches, for a workload that is traced anew at each."""
    arrays: dict[str, Any] = {
        field.name: np.concatenate([getattr(part, field.name) for part in parts], axis=-1)
        for field in fields(Predictions)
        if isinstance(getattr(parts[0], field.name), np.ndarray)
    }
    return replace(parts[0], **arrays)
