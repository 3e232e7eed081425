"""Estimates a standard deviation from the errors of devices or models that were left out of a fit."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import t as student

from advisor.records.answer import Z_90
from advisor.records.prediction import FloatArray, NameArray

COVERAGE = 0.9


def rms(errors: FloatArray | Sequence[float]) -> float:
    """Return the root mean square, the standard deviation of errors around 0."""
    return float(np.sqrt(np.mean(np.square(errors))))


def student_ratio(count: int) -> float:
    """Return how much wider Student's 90 % interval is than a normal one of the same standard deviation.

    A root mean square of `count` independent errors around 0 has as many degrees of freedom: no mean is estimated.
    """
    return float(student.ppf((1 + COVERAGE) / 2, count) / Z_90)


def log_spread(errors: FloatArray, parts: NameArray) -> float:
    """Return the spread of left-out errors, whose interval is Student's for as many errors as there are parts.

    Errors within a part are alike, as those of models of one shape are, so the mean square of a part counts once.
    """
    of_parts = [rms(errors[parts == part]) for part in dict.fromkeys(parts.tolist())]
    return rms(of_parts) * student_ratio(len(of_parts))
