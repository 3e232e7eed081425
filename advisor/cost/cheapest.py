"""Computes the chance that each offer is the cheapest, and which offers are too close to the best to call.

A cost has log-normal errors: those of the device, the host, start-up, the price and the predicted watts of an owned
machine. Errors of different sources are independent; offers with the same source (device, host, provider or price list)
share it. An error of the model, its trace and its counts scales the time on every device by the same factor, so it is
left out, except for a service: with whole instances, it may make one offer need another instance.
"""

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from advisor.records.answer import Z_90, DeviceChance, Quote
from advisor.records.prediction import BoolArray, FloatArray, IndexArray

REACH = 4.0
"""Standard deviations covered on each side of a cost or a time; 3 in 100,000 lie above."""
_DRAW_COUNT = 4096
"""Draws of all errors together: the standard error of a chance is at most 0.5 / sqrt(4096) = 0.8 %."""
_SEED = 20261123
"""Any fixed number: the same question has the same answer."""
_DEVIATIONS = np.linspace(-8.0, 8.0, 1601)
_CUMULATIVE = np.array([math.erfc(-z / math.sqrt(2)) / 2 for z in _DEVIATIONS])
"""The standard normal distribution; numpy has no error function."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SharedError:
    """One kind of error of all offers: its standard deviation in the logarithm, shared where `source` is equal.

    Negative errors have the standard deviation `log_spread_below`, if it is given.
    """

    log_spread: FloatArray
    source: Sequence[Hashable]
    log_spread_below: FloatArray | None = None

    @property
    def below(self) -> FloatArray:
        """Return the standard deviation of errors below 0."""
        return self.log_spread if self.log_spread_below is None else self.log_spread_below


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CostsByTime:
    """The costs of offers by the error of the step's time.

    - `log_error`: errors in the logarithm, (points,), at equal distances
    - `usd`: the costs at these errors, (points, offers)
    - `errors`: what adds up to the error of the time
    """

    log_error: FloatArray
    usd: FloatArray
    errors: Sequence[SharedError]


def chances_of_cheapest(
    usd: FloatArray,
    *,
    errors: Sequence[SharedError],
    among: IndexArray | None = None,
    by_time: CostsByTime | None = None,
) -> FloatArray:
    """Return the chance that each offer is the cheapest; equal costs share it evenly, and so do free offers.

    With `among`, only the offers at these indices are compared, and the others have no chance. With `by_time`, the
    costs are those at the error of the step's time, and `errors` come on top.

    Each source of error is drawn once for all its offers, from equally likely strata in random order (Latin hypercube:
    McKay, Beckman and Conover 1979).
    """
    among = np.arange(len(usd)) if among is None else among
    chances = np.zeros_like(usd)
    if len(among) == 1 or (usd[among] == 0).any():
        is_free = usd[among] == usd[among].min()
        chances[among] = is_free / np.count_nonzero(is_free)
        return chances
    mid = np.log(usd[among])  # the others may be free
    below, above = (
        REACH * np.sqrt(sum((spread[among] ** 2 for spread in spreads), start=np.zeros_like(mid)))
        for spreads in ([error.below for error in errors], [error.log_spread for error in errors])
    )
    low = high = mid
    if by_time is not None:
        by_error = np.log(by_time.usd[:, among])
        low, high = by_error.min(axis=0), by_error.max(axis=0)
    is_able = low - below <= (high + above).min()
    may_win = among[is_able]
    logs = np.repeat(mid[is_able, np.newaxis], _DRAW_COUNT, axis=1)
    random = np.random.default_rng(_SEED)
    if by_time is not None:
        of_time = np.zeros_like(logs)
        _add_draws(of_time, by_time.errors, may_win=may_win, random=random)
        places = np.arange(len(by_time.log_error))
        at = np.rint(np.interp(of_time, by_time.log_error, places)).astype(np.intp)
        logs = by_error[:, is_able][at, np.arange(len(may_win))[:, np.newaxis]]
    _add_draws(logs, errors, may_win=may_win, random=random)
    is_least = logs == logs.min(axis=0)
    chances[may_win] = (is_least / is_least.sum(axis=0)).mean(axis=1)
    return chances


def _add_draws(
    logs: FloatArray, errors: Sequence[SharedError], *, may_win: IndexArray, random: np.random.Generator
) -> None:
    """Add draws of the errors of the offers `may_win` to their logarithms, (offers, draws)."""
    for error in errors:
        above, below = error.log_spread[may_win, np.newaxis], error.below[may_win, np.newaxis]
        source = _numbered([error.source[offer] for offer in may_win.tolist()])
        if above.any() or below.any():
            strata = np.tile(_strata(), (int(source.max()) + 1, 1))
            draws = random.permuted(strata, axis=1)[source]
            logs += draws * np.where(draws < 0, below, above)


def chances_by_device(quotes: Iterable[Quote]) -> tuple[DeviceChance, ...]:
    """Return the chance that the cheapest offer has each device, the likeliest first; devices without one are left out.

    Two offers are never the cheapest together, so the chances of a device's offers add up.
    """
    found: dict[str, DeviceChance] = {}
    for quote in quotes:
        device = quote.device
        before = found[device.id].chance if device.id in found else 0.0
        found[device.id] = DeviceChance(
            id=device.id, name=device.name, kind=device.kind, chance=before + quote.chance_among_trusted
        )
    return tuple(sorted((one for one in found.values() if one.chance > 0), key=lambda one: -one.chance))


def indistinguishable(amounts: FloatArray, *, errors: Iterable[SharedError], best: int = 0) -> BoolArray:
    """Return which offers are too close to the one at index `best` to call: their 90 % intervals overlap.

    The dearer offer's negative errors and the cheaper one's positive errors decide. An error that an offer shares with
    the best counts only by its difference. The best itself is never marked.
    """
    overlaps: BoolArray = amounts == 0  # free offers
    if amounts[best] != 0 and not overlaps.any():
        others, bests = np.zeros_like(amounts), np.zeros_like(amounts)
        is_dearer = amounts >= amounts[best]
        for error in errors:
            is_shared = np.array([source == error.source[best] for source in error.source])
            below, above = error.below, error.log_spread
            own, of_best = np.where(is_dearer, below, above), np.where(is_dearer, below[best], above[best])
            others += np.where(is_shared, own - of_best, own) ** 2
            bests += np.where(is_shared, 0.0, np.where(is_dearer, above[best], below[best])) ** 2
        gap = np.abs(np.log(amounts / amounts[best]))
        overlaps = gap <= Z_90 * (np.sqrt(others) + np.sqrt(bests))
    overlaps[best] = False
    return overlaps


def _numbered(sources: Sequence[Hashable]) -> IndexArray:
    """Return a number for each source, counted from 0 in order of appearance."""
    number = {source: place for place, source in enumerate(dict.fromkeys(sources))}
    return np.array([number[source] for source in sources], dtype=np.intp)


@cache
def _strata() -> FloatArray:
    """Return the standard normal's quantiles in the middle of equally likely strata."""
    middles = (np.arange(_DRAW_COUNT) + 0.5) / _DRAW_COUNT
    return np.interp(middles, _CUMULATIVE, _DEVIATIONS)
