"""Computes how long requests that arrive at random wait for a server.

Arrivals are Poisson, and a step always takes as long. A server of one request at a time is M/D/1; n of them share one
queue, M/D/n. A server that takes several requests in a step (dynamic batching) starts as soon as it is free and one
request waits, with as many as wait, up to its batch; each has a queue of its own, and requests are spread at random.
Its step takes as long as a full one. So it is busy for most of the time as soon as a few requests arrive in a step,
however small its utilization.
"""

import operator
from functools import cache
from itertools import accumulate, repeat

import numpy as np

from advisor.records.prediction import FloatArray, IndexArray
from advisor.units import MOST_UTILIZATION

_LARGEST_BATCH = 256
"""Larger batches wait like this one: for the rest of a step. At the largest load latencies differ by 1 %."""
_LOADS = np.linspace(0.0, MOST_UTILIZATION, 20)
_TAILS = np.geomspace(0.01, 1.0, 49)
"""Shares of the requests that wait longer, of those that arrive during a step."""
_POINT_COUNT = 512
"""Points of the transforms, or four batches. Half of them are counted: at the largest load one in 10^11 is longer."""
_PHASE_COUNT = 8
"""Moments of a step at which requests arrive."""
_RADIUS = 1.04
_STEP_COUNT = 64


def wait_steps(utilization: FloatArray, *, batch: FloatArray, servers: FloatArray, tail: float) -> FloatArray:
    """Return the wait, in steps, that the share `tail` of the requests exceeds; `tail` is at least 0.01.

    `utilization` is the load over the capacity, `batch` that of one server. A request that finds its server idle does
    not wait. Between two idle times lie 1 / P(nobody waits at the end of a step) steps, so that with a arrivals in a
    step the share a / (a + P(nobody waits)) of the requests arrives during one.

    n servers of one request at a time wait as one that is n times as fast (exact in heavy traffic), but all are busy
    less often, by utilization^(sqrt(2 (n + 1)) - 2) (Sakasegawa 1977, Annals of the Institute of Statistical
    Mathematics 29, 67-75: the mean wait of M/M/n; Cosmetatos 1976 and Allen 1990 halve it for M/D/n).
    """
    sizes = np.clip(batch, 1, _LARGEST_BATCH).astype(np.intp)
    if not sizes.size:
        return np.zeros(sizes.shape)
    asked = np.flatnonzero(np.bincount(sizes.ravel()))
    queues = [_queue(int(size)) for size in asked]
    empty = np.concatenate([shares for shares, _ in queues])
    waits: FloatArray = np.concatenate([of_size for _, of_size in queues])
    load, load_share = _place(utilization, _LOADS)
    place = np.searchsorted(asked, sizes) * len(_LOADS) + load

    arrivals = utilization * batch
    nobody_waits = (empty[place] + load_share * (empty[place + 1] - empty[place])) * np.exp(-arrivals)
    shared = np.where(batch < 2, servers, 1.0)
    busy = arrivals / (arrivals + nobody_waits) * np.maximum(utilization, 1e-9) ** (np.sqrt(2 * (shared + 1)) - 2)

    rank, rank_share = _place(np.log(tail / np.maximum(busy, tail)), np.log(_TAILS))

    def at_load(place: IndexArray) -> FloatArray:
        first: IndexArray = place * len(_TAILS) + rank
        return waits[first] + rank_share * (waits[first + 1] - waits[first])

    below, above = at_load(place), at_load(place + 1)
    idle: FloatArray = 1 - np.minimum(utilization, MOST_UTILIZATION)
    return (below + load_share * (above - below)) / idle / shared


def _place(value: FloatArray, grid: FloatArray) -> tuple[IndexArray, FloatArray]:
    """Return the index of the grid point below each value of an even grid, and the share of the way to the next."""
    place = np.clip((value - grid[0]) / (grid[1] - grid[0]), 0, len(grid) - 1)
    index = np.minimum(place.astype(np.intp), len(grid) - 2)
    return index, place - index


@cache
def _queue(batch: int) -> tuple[FloatArray, FloatArray]:
    """Return the share of the steps that leave nobody waiting when they begin, and the waits during steps.

    The shares are at each of the `_LOADS`. The waits, (loads, tails) in one row, are exceeded in the shares `_TAILS`.
    They are in steps, times 1 - load, which makes them nearly linear in the load.

    The requests left waiting when a step begins, m' = max(m + arrivals in a step - batch, 0), are the maximum of a
    random walk, whose distribution follows from Spitzer's identity (1956); the chain is that of bulk service (Bailey
    1954, Journal of the Royal Statistical Society B 16, 80-87). A request that arrives during a step waits for its end,
    and one more step for each full batch of the requests ahead of it.
    """
    load = _LOADS[1:, np.newaxis]
    arrivals = load * batch
    point_count = max(_POINT_COUNT, 4 * batch)
    unit = np.exp(-2j * np.pi * np.arange(point_count // 2 + 1) / point_count)
    radius = np.minimum(1 / load, _RADIUS)  # on a circle larger than 1, the logarithm is finite everywhere
    z = radius * unit
    upper = np.arange(1, point_count // 2)
    ladder = np.zeros((len(load), point_count))
    ladder[:, upper] = np.fft.irfft(-np.log(1 - np.exp(arrivals * (z - 1)) * z**-batch))[:, upper] / radius**upper
    left = np.exp(np.fft.rfft(ladder) - ladder.sum(axis=1, keepdims=True))
    half = np.exp(arrivals / (2 * _PHASE_COUNT) * (unit - 1))  # of the arrivals until the middle of the first phase
    phases = accumulate(repeat(half**2, _PHASE_COUNT - 1), operator.mul, initial=left * half)
    shorter = np.cumsum(np.fft.irfft(np.stack([*phases], axis=1)), axis=-1)
    places = np.minimum(np.arange(1, _STEP_COUNT + 1) * batch, point_count // 2) - 1
    ahead = np.ones((len(load), _PHASE_COUNT, _STEP_COUNT + 1))
    ahead[..., 1:] = 1 - shorter[..., places]
    ahead = np.cumsum(ahead, axis=1)  # for each number of batches, summed over the phases
    ahead = np.concatenate([np.zeros_like(ahead[:, :1]), ahead], axis=1)
    # A wait of more than j + s steps: the rest of the step is longer than s and j batches are ahead, or j + 1 are.
    longer = ahead[:, :0:-1, :-1] + ahead[:, -1:, 1:] - ahead[:, :0:-1, 1:]
    survival = longer.transpose(0, 2, 1).reshape(len(load), -1) / _PHASE_COUNT
    steps = np.arange(survival.shape[1]) / _PHASE_COUNT
    waits = [1 - _TAILS, *(np.interp(-_TAILS, -of_load, steps) for of_load in survival)]
    empty = np.exp(-ladder.sum(axis=1))
    return np.concatenate([[1.0], empty]), ((1 - _LOADS)[:, np.newaxis] * waits).ravel()
