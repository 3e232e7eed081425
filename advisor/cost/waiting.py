"""Computes how long requests that arrive at random wait for a server.

Arrivals are Poisson, and a step always takes as long. A server of one request at a time is M/D/1; n of them share one
queue, M/D/n. A server that takes several requests in a step (dynamic batching) starts as soon as it is free and one
request waits, with as many as wait, up to its batch; each has a queue of its own, and requests are spread at random.
Its step takes as long as a full one, so it waits no longer than this.
"""

from functools import cache

import numpy as np

from advisor.records.prediction import FloatArray, IndexArray
from advisor.units import MOST_UTILIZATION

_LARGEST_BATCH = 64
"""Larger batches wait like this one: a request waits for the rest of a step, and hardly ever for another one."""
_LOADS = np.linspace(0.0, MOST_UTILIZATION, 20)
_TAILS = np.geomspace(0.01, 1.0, 25)
"""Shares of the requests that wait longer: from the 99th percentile on."""
_POINT_COUNT = 512
"""Points of the transforms; queues of half as many are counted. At the largest load one in 10^11 is longer."""
_PHASE_COUNT = 8
"""Moments of a step at which requests arrive."""
_RADIUS = 1.04
_STEP_COUNT = 64


def wait_steps(utilization: FloatArray, *, batch: FloatArray, servers: FloatArray, tail: float) -> FloatArray:
    """Return the wait, in steps, that the share `tail` of the requests exceeds; `tail` is at least 0.01.

    `utilization` is the load over the capacity. n servers of one request at a time wait as one that is n times as fast
    (exact in heavy traffic), but all are busy less often, by utilization^(sqrt(2 (n + 1)) - 2) (Sakasegawa 1977,
    Annals of the Institute of Statistical Mathematics 29, 67-75: the mean wait of M/M/n; Cosmetatos 1976 and Allen 1990
    halve it for M/D/n).
    """
    shared = np.where(batch < 2, servers, 1.0)
    all_busy = np.maximum(utilization, 1e-9) ** (np.sqrt(2 * (shared + 1)) - 2)
    power = np.log2(np.clip(batch, 1, _LARGEST_BATCH)).astype(np.intp)
    load, load_share = _place(utilization, _LOADS)
    rank, rank_share = _place(np.log(tail / np.maximum(all_busy, tail)), np.log(_TAILS))
    place = (power * len(_LOADS) + load) * len(_TAILS) + rank
    waits = _waits_by_batch().ravel()

    def at_load(first: IndexArray) -> FloatArray:
        return waits[first] + rank_share * (waits[first + 1] - waits[first])

    below, above = at_load(place), at_load(place + len(_TAILS))
    return (below + load_share * (above - below)) / shared


def _place(value: FloatArray, grid: FloatArray) -> tuple[IndexArray, FloatArray]:
    """Return the index of the grid point below each value of an even grid, and the share of the way to the next."""
    place = np.clip((value - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1)
    index = np.minimum(place.astype(np.intp), len(grid) - 2)
    return index, place - index


@cache
def _waits_by_batch() -> FloatArray:
    """Return the waits of one server in steps, (powers of two as batch, loads, tails)."""
    return np.stack([_waits(1 << power) for power in range(_LARGEST_BATCH.bit_length())])


def _waits(batch: int) -> FloatArray:
    """Return the waits of one server in steps that are exceeded in the shares `_TAILS`, at each of the `_LOADS`.

    The requests still waiting when a step begins, m' = max(m + arrivals in a step - batch, 0), are the maximum of a
    random walk, whose distribution follows from Spitzer's identity (1956). A request that arrives during a step waits
    for its end, and one more step for each full batch of the requests ahead of it.
    """
    load = _LOADS[1:, np.newaxis]
    arrivals = load * batch
    unit = np.exp(-2j * np.pi * np.arange(_POINT_COUNT // 2 + 1) / _POINT_COUNT)
    radius = np.minimum(1 / load, _RADIUS)  # on a circle larger than 1, the logarithm is finite everywhere
    z = radius * unit
    upper = np.arange(1, _POINT_COUNT // 2)
    ladder = np.zeros((len(load), _POINT_COUNT))
    ladder[:, upper] = np.fft.irfft(-np.log(1 - np.exp(arrivals * (z - 1)) * z**-batch))[:, upper] / radius**upper
    left = np.exp(np.fft.rfft(ladder) - ladder.sum(axis=1, keepdims=True))
    phases = (np.arange(_PHASE_COUNT) + 0.5) / _PHASE_COUNT
    before = np.fft.irfft(left[:, np.newaxis] * np.exp((arrivals * phases)[..., np.newaxis] * (unit - 1)))
    shorter = np.concatenate([np.zeros_like(before[..., :1]), np.cumsum(before, axis=-1)], axis=-1)
    places = np.minimum(np.arange(_STEP_COUNT + 1) * batch, _POINT_COUNT // 2)
    ahead = np.cumsum(1 - shorter[..., places], axis=1)  # for each number of batches, summed over the phases
    ahead = np.concatenate([np.zeros_like(ahead[:, :1]), ahead], axis=1)
    # A wait of more than j + s steps: the rest of the step is longer than s and j batches are ahead, or j + 1 are.
    longer = ahead[:, :0:-1, :-1] + ahead[:, -1:, 1:] - ahead[:, :0:-1, 1:]
    is_empty = np.fft.irfft(left)[:, :1] * np.exp(-arrivals)  # after a step; the next request then starts at once
    survival = arrivals / (arrivals + is_empty) / _PHASE_COUNT * longer.transpose(0, 2, 1).reshape(len(load), -1)
    steps = np.arange(survival.shape[1]) / _PHASE_COUNT
    waits = [np.interp(-_TAILS, -of_load, steps) for of_load in survival]
    return np.stack([np.zeros_like(_TAILS), *waits])
