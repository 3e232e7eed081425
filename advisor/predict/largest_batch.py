"""Finds the largest batch whose step fits in a given memory."""

from collections.abc import Sequence

import numpy as np

from advisor.predict.remedies import Step

_MOST = 2**30
_PROBE_COUNT = 16
"""Batches tried at a time between the largest known to fit and the smallest known not to."""


def largest_batches(step: Step, *, memory_bytes: float) -> tuple[int, int]:
    """Return the largest batch that surely fits and the largest that may fit; 0 if none does.

    A larger batch never needs less memory. If the step is known only at its own batch, that is the only candidate.
    """
    return _largest(step, "high", memory_bytes=memory_bytes), _largest(step, "low", memory_bytes=memory_bytes)


def _largest(step: Step, end: str, *, memory_bytes: float) -> int:
    def fitting(batches: Sequence[int]) -> list[int]:
        needed = getattr(step.at(batches), end)
        return [batch for batch, size_bytes in zip(batches, needed.tolist(), strict=True) if size_bytes <= memory_bytes]

    if not step.workload.batch_is_affine:
        return max(fitting([step.batch]), default=0)
    fits = max(fitting([1 << exponent for exponent in range(_MOST.bit_length())]), default=0)
    too_large = max(1, 2 * fits)
    while fits and too_large - fits > 1 and fits < _MOST:
        probes = np.unique(np.linspace(fits + 1, too_large - 1, min(_PROBE_COUNT, too_large - fits - 1)).astype(int))
        best = max(fitting(probes.tolist()), default=fits)
        too_large = min((int(probe) for probe in probes if probe > best), default=too_large)
        fits = best
    return fits
