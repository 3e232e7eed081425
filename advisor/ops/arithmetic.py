"""Arithmetic on a float or on a numpy array over batch sizes alike, where Python's own works on floats only."""

import math

from advisor.ops.registry import Number


def larger(a: Number, b: Number) -> Number:
    """The larger of the two, element by element."""
    return (a + b + abs(a - b)) / 2


def smaller(a: Number, b: Number) -> Number:
    """The smaller of the two, element by element."""
    return (a + b - abs(a - b)) / 2


def log2(value: Number) -> Number:
    """The logarithm to base 2, of 1 where the value is less than 1."""
    value = larger(value, 1.0)
    if isinstance(value, float):
        return math.log2(value)
    import numpy as np  # an array is there, so numpy is loaded; the plain path must not pay for it

    return np.log2(value)
