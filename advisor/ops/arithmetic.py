"""Maximum, minimum and logarithm that work on floats and on numpy arrays over batch sizes alike."""

import math

from advisor.ops.registry import Number


def larger(a: Number, b: Number) -> Number:
    """Return the elementwise maximum."""
    return (a + b + abs(a - b)) / 2


def smaller(a: Number, b: Number) -> Number:
    """Return the elementwise minimum."""
    return (a + b - abs(a - b)) / 2


def log2(value: Number) -> Number:
    """Return the base 2 logarithm; values below 1 count as 1."""
    value = larger(value, 1.0)
    if isinstance(value, float):
        return math.log2(value)
    import numpy as np  # an array argument means that numpy is already loaded; floats must not pay for the import

    return np.log2(value)
