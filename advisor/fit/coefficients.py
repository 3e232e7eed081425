"""Defines a coefficient of a fit, with its prior, and the families and fields that have one of their own."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from advisor.records.device import Efficiency, Prior
from advisor.records.prediction import FloatArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Coefficient:
    """One number to fit, in logarithm."""

    name: tuple[str, ...]
    prior: Prior


COMPUTING = (
    "matmul", "conv", "conv_backward", "conv_grouped", "conv_grouped_backward", "conv_depthwise",
    "conv_depthwise_backward", "attention", "attention_backward", "rnn",
)  # fmt: skip
"""Families that compute throughput can limit; the others only stream data."""
BY_PRECISION = tuple(field.name for field in fields(Efficiency) if field.metadata.get("by_precision"))
"""Fields of `Efficiency` with a coefficient for each precision; the others have one for all."""


def starts(coefficients: Sequence[Coefficient]) -> FloatArray:
    """Return the logarithms of the priors' centers."""
    return np.log([coefficient.prior.start for coefficient in coefficients])
