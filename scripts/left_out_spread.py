"""Estimates a standard deviation from the errors of devices or models that were left out of a fit."""

from collections.abc import Sequence

import numpy as np

from advisor.records.prediction import FloatArray


def rms(errors: FloatArray | Sequence[float]) -> float:
    """Return the root mean square, the standard deviation of errors around 0."""
    return float(np.sqrt(np.mean(np.square(errors))))
