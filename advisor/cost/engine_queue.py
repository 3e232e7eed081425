"""Simulates the requests that arrive at an inference engine at random, to find percentiles of their times.

In each pass the engine decodes one token of every request that has its first one, and reads as many parts of waiting
prompts as the token budget leaves room for (chunked prefill; Agrawal et al., Sarathi-Serve, 2024). A request joins when
fewer than the largest number are in flight. Between an arrival and the end of an answer all passes are alike, so the
simulation leaps over them.

Arrivals are Poisson, and always the same: the quantiles of the exponential distribution in an order drawn once, so that
the load is exact and answers are reproducible. Each replica of the model has a queue of its own. A run begins with as
many requests as the load keeps in flight, at random points of their answers, and its first requests are not counted.
"""

from dataclasses import dataclass, fields
from functools import cache
from itertools import count

import numpy as np

from advisor.records.options import PERCENTILES
from advisor.records.prediction import EXACT_PARTS, BoolArray, EnginePasses, FloatArray, IndexArray

TAILS = {name: int(name[1:]) / 100 for name in PERCENTILES}
"""The shares of the requests that are at most as slow as each percentile."""
_RUNS, _UNCOUNTED, _COUNTED = 8, 40, 240
"""Runs side by side, and the requests of each before and while they are counted."""
_TURNS = 64
"""Turns of the simulation between checks for runs that are over."""
_BLOCK = 4096
"""Gaps drawn at a time for the requests that are in flight before and after those counted."""
_NEVER = float(1 << 40)
_SEED = 19
"""Draws the order of the gaps. Of 150 orders it is the one whose waits in M/D/1 at loads from 0.2 to 0.8 are closest to
the analytic ones: p50 and p99 of wait and service within 3 %. With most orders p99 differs by 10 to 20 %."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QueueTimes:
    """The times that the shares `TAILS` of the requests keep, (tails, services).

    - `first_s`: from arrival to the first token
    - `between_s`: mean time between later tokens of a request
    - `whole_s`: from arrival to the last token
    """

    first_s: FloatArray
    between_s: FloatArray
    whole_s: FloatArray

    def of(self, services: IndexArray) -> "QueueTimes":
        """Return the times of the services at these indices."""
        return QueueTimes(**{one.name: getattr(self, one.name)[:, services] for one in fields(self)})

    def at(self, service: int) -> dict[str, float]:
        """Return the percentiles of tokens of one service, named as in `TokenQuote`."""
        return {
            f"{name}_{tail}_s": float(times_s[number, service])
            for name, times_s in (("ttft", self.first_s), ("tpot", self.between_s))
            for number, tail in enumerate(TAILS)
        }


@dataclass(slots=True, kw_only=True, eq=False)
class _Lanes:
    """The runs that are not over, one element each: constants of their service, then their state.

    - `lane`: index among all runs
    - `most`, `part_count`, `top`: `most_in_flight`, `part_count` and `most_parts` of the passes
    - `time_at`, `room_at`: where the run's service starts in the flat arrays of passes
    - `now_s`, `done`: the time, and the passes made so far
    - `next_at`: place of the next arrival in the flat array of arrivals
    - `join_at`, `left_at`: places of the next request to get its first token, and of the oldest that decodes, in the
      flat arrays of requests
    - `decoding`, `waiting`: requests that decode, and that wait for their first token
    - `read`: parts of the oldest waiting prompt that have been read
    """

    lane: IndexArray
    most: IndexArray
    part_count: IndexArray
    top: IndexArray
    time_at: IndexArray
    room_at: IndexArray
    now_s: FloatArray
    done: FloatArray
    next_at: IndexArray
    join_at: IndexArray
    left_at: IndexArray
    decoding: IndexArray
    waiting: IndexArray
    read: IndexArray

    def of(self, chosen: BoolArray) -> "_Lanes":
        """Return some of the runs."""
        return _Lanes(**{one.name: getattr(self, one.name)[chosen] for one in fields(self)})


def queue_times(
    passes: EnginePasses,
    *,
    requests_per_s: FloatArray,
    decode_counts: IndexArray | int,
    runs: int = _RUNS,
    counted: int = _COUNTED,
) -> QueueTimes:
    """Return the percentiles at this rate of each replica, (services,).

    `decode_counts` are the decode passes of all requests, or of each of the `runs` x (uncounted + counted) in turn.
    Services that are alike are simulated once.
    """
    distinct, back = _distinct(passes, requests_per_s)
    if len(distinct) < len(back):
        requests_per_s, passes = requests_per_s[distinct], passes.of(distinct)
        return queue_times(
            passes, requests_per_s=requests_per_s, decode_counts=decode_counts, runs=runs, counted=counted
        ).of(back)
    requests = _UNCOUNTED + counted
    arrivals, first_s, last_s = _Simulation(
        passes, gap_s=1 / requests_per_s, decode_counts=decode_counts, runs=runs, requests=requests
    ).run()
    of_request = np.broadcast_to(decode_counts, (runs * requests,) if np.ndim(decode_counts) else ())
    if of_request.ndim:
        of_request = np.tile(of_request.reshape(runs, requests)[:, _UNCOUNTED:], (len(requests_per_s), 1))
    arrivals, first_s, last_s = (times[:, _UNCOUNTED:] for times in (arrivals, first_s, last_s))

    def percentiles(times_s: FloatArray) -> FloatArray:
        of_tails: FloatArray = np.quantile(times_s.reshape(len(requests_per_s), -1), [*TAILS.values()], axis=1)
        return of_tails

    return QueueTimes(
        first_s=percentiles(first_s - arrivals) + passes.serving_s,
        between_s=percentiles((last_s - first_s) / of_request),
        whole_s=percentiles(last_s - arrivals) + passes.serving_s,
    )


def _distinct(passes: EnginePasses, requests_per_s: FloatArray) -> tuple[IndexArray, IndexArray]:
    """Return the first of each kind of service with the same passes and rate, and for each service its place there."""
    of_service = [getattr(passes, one.name) for one in fields(passes) if one.name != "decoding"]
    rows = np.concatenate([one.reshape(len(one), -1) for one in (*of_service, requests_per_s)], axis=1)
    places: dict[bytes, int] = {}
    back = [places.setdefault(row.tobytes(), len(places)) for row in rows]
    _, first = np.unique(back, return_index=True)
    return first, np.array(back, dtype=np.intp)


@cache
def _gaps(runs: int, requests: int, block: int = 0) -> FloatArray:
    """Return the gaps between arrivals relative to their mean, (runs, requests); each block has an order of its own."""
    count = runs * requests
    gaps = -np.log1p(-(np.arange(count) + 0.5) / count)
    order = np.random.default_rng([_SEED, block] if block else _SEED).permutation(count)
    drawn: FloatArray = (gaps / gaps.mean())[order].reshape(runs, requests)
    return drawn


class _Simulation:
    """Runs of services side by side; all arrays of requests are flat, with a row for each run.

    A row has the requests in flight at the beginning, the others in turn, and one that never ends.
    """

    def __init__(
        self, passes: EnginePasses, *, gap_s: FloatArray, decode_counts: IndexArray | int, runs: int, requests: int
    ) -> None:
        pass_s = _at_every_number(passes)
        services, levels, self._numbers = pass_s.shape
        self._runs, self._requests = runs, requests
        self._is_alike, self._mean_count = np.ndim(decode_counts) == 0, float(np.mean(decode_counts))
        self._counts = np.broadcast_to(decode_counts, runs * requests).reshape(runs, requests)
        steady = _steady_numbers(passes, pass_s, gap_s=gap_s, decode_count=self._mean_count, runs=runs)
        self._begun = begun = steady.ravel()
        lanes = np.arange(services * runs)
        of = lanes // runs
        most_begun = int(begun.max(initial=0))
        total = requests + most_begun + 8
        self._width = most_begun + total + 1
        self._own = begun[:, np.newaxis] + np.arange(requests)
        self._arrivals, begun_shares = _drawn(begun, gap_s=gap_s, runs=runs, requests=requests, total=total)
        self._flat_arrivals = self._arrivals.ravel()
        # The pass after which each request ends.
        self._ends = np.full((len(lanes), self._width), np.inf)
        self._ends[:, :most_begun] = np.where(
            np.arange(most_begun) < begun[:, np.newaxis], np.ceil(self._mean_count * begun_shares), np.inf
        )
        self._flat_ends = self._ends.ravel()
        self._first_s, self._last_s = (np.full(self._ends.size, np.nan) for _ in range(2))
        self._pass_s = pass_s.ravel()
        rooms = (passes.budget_tokens[:, np.newaxis] - np.arange(self._numbers)) // passes.part_tokens[:, np.newaxis]
        rooms = np.minimum(np.maximum(1, rooms), passes.most_parts[:, np.newaxis])
        self._rooms = rooms.astype(np.intp).ravel()
        self._at = _Lanes(
            lane=lanes,
            most=passes.most_in_flight[of],
            part_count=passes.part_count[of],
            top=passes.most_parts[of],
            time_at=of * levels * self._numbers,
            room_at=of * self._numbers,
            now_s=np.zeros(len(lanes)),
            done=np.zeros(len(lanes)),
            next_at=lanes * (total + 1),
            join_at=lanes * self._width + begun,
            left_at=lanes * self._width,
            decoding=begun.copy(),
            **{name: np.zeros(len(lanes), dtype=np.intp) for name in ("waiting", "read")},
        )

    def run(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return when requests arrive, get their first token and get their last, (services x runs, requests)."""
        for turn in count():
            if turn % _TURNS == 0 and not self._is_any_open():
                break
            next_s = self._arrive()
            end_at = self._oldest()
            parts = self._parts_read()
            self._leap(parts, next_s=next_s, soonest=self._flat_ends.take(end_at))
            self._end(end_at)
            self._join(parts)
        first_s, last_s = (
            np.take_along_axis(one.reshape(self._ends.shape), self._own, axis=1)
            for one in (self._first_s, self._last_s)
        )
        return self._arrivals[:, : self._requests], first_s, last_s

    def _is_any_open(self) -> bool:
        """Leave out the runs that are over; return whether others remain."""
        lane = self._at.lane
        last_own = self._own[lane, -1:] if self._is_alike else self._own[lane]
        is_open = np.isnan(self._last_s[lane[:, np.newaxis] * self._width + last_own]).any(axis=1)
        if not is_open.all():
            self._at = self._at.of(is_open)
        return bool(is_open.any())

    def _oldest(self) -> IndexArray:
        """Return the place of the request in each run that ends first."""
        at = self._at
        return at.left_at if self._is_alike else at.lane * self._width + self._ends[at.lane].argmin(axis=1)

    def _arrive(self) -> FloatArray:
        """Let requests arrive, in an idle run the next one; return when the one after them does."""
        at = self._at
        next_s = self._flat_arrivals.take(at.next_at)
        is_idle = (at.decoding + at.waiting) == 0
        if np.count_nonzero(is_idle):
            is_idle &= np.isfinite(next_s)
            at.now_s[is_idle] = np.maximum(at.now_s, next_s)[is_idle]
        while np.count_nonzero(is_here := next_s <= at.now_s):
            at.next_at += is_here
            at.waiting += is_here
            next_s = self._flat_arrivals.take(at.next_at)
        return next_s

    def _parts_read(self) -> IndexArray:
        """Return the parts of waiting prompts that the next pass reads."""
        at = self._at
        parts: IndexArray = np.minimum(at.waiting, at.most - at.decoding)
        parts *= at.part_count
        parts -= at.read
        return np.minimum(parts, self._rooms.take(at.room_at + at.decoding), out=parts)

    def _leap(self, parts: IndexArray, *, next_s: FloatArray, soonest: FloatArray) -> None:
        """Make a pass, or all passes until the next arrival or end if they read no prompts."""
        at = self._at
        place = np.minimum(parts, EXACT_PARTS)
        place *= self._numbers
        place += at.time_at
        place += at.decoding
        one_s = self._pass_s.take(place)
        if len(who := (parts > EXACT_PARTS).nonzero()[0]):
            share = (parts[who] - EXACT_PARTS) / (at.top[who] - EXACT_PARTS)
            one_s[who] += share * (self._pass_s[place[who] + self._numbers] - one_s[who])
        step = np.ceil((next_s - at.now_s) / one_s)
        step[at.decoding >= at.most] = _NEVER
        np.minimum(step, soonest - at.done, out=step)
        np.minimum(step, _NEVER, out=step)
        np.maximum(step, 1, out=step)
        step[parts > 0] = 1
        at.done += step
        step *= one_s
        at.now_s += step

    def _end(self, end_at: IndexArray) -> None:
        """End the requests whose last token the passes gave; `end_at` are those that end first."""
        at = self._at
        is_over = self._flat_ends.take(end_at) <= at.done
        while np.count_nonzero(is_over):
            ended = end_at[is_over]
            self._last_s[ended] = at.now_s[is_over]
            self._flat_ends[ended] = np.inf
            at.left_at += is_over
            at.decoding -= is_over
            end_at = self._oldest()
            is_over = self._flat_ends.take(end_at) <= at.done

    def _join(self, parts: IndexArray) -> None:
        """Let requests decode whose first token the pass gave."""
        at = self._at
        at.read += parts
        while len(who := (at.read >= at.part_count).nonzero()[0]):
            lane, joined = at.lane[who], at.join_at[who]
            self._first_s[joined] = at.now_s[who]
            turn = (joined % self._width - self._begun[lane]) % self._requests
            own_count = self._mean_count if self._is_alike else self._counts[lane % self._runs, turn]
            self._flat_ends[joined] = at.done[who] + own_count
            at.read[who] -= at.part_count[who]
            at.join_at[who] += 1
            at.decoding[who] += 1
            at.waiting[who] -= 1


def _drawn(
    begun: IndexArray, *, gap_s: FloatArray, runs: int, requests: int, total: int
) -> tuple[FloatArray, FloatArray]:
    """Return when `total` requests arrive in each run, then inf, and the share of their answers that is left of others.

    The others are the requests in flight at the beginning, `begun` in each run.
    """
    lanes, most_begun = np.arange(len(begun)), int(begun.max(initial=0))
    services = len(begun) // runs
    # In whole blocks, so that no gap depends on how many others are needed.
    blocks = range(-(-max(most_begun + 1, total - requests) // _BLOCK))
    others = [_gaps(runs, _BLOCK, block) for block in blocks]
    gaps = np.tile(np.concatenate([_gaps(runs, requests), *others], axis=1)[:, :total], (services, 1))
    arrivals = np.full((len(lanes), total + 1), np.inf)
    arrivals[:, :-1] = np.cumsum(gaps * gap_s[lanes // runs, np.newaxis], axis=1)
    before = np.concatenate(others, axis=1)[:, : most_begun + 1]
    place = np.cumsum(np.tile(before, (services, 1)), axis=1)
    return arrivals, place[:, :-1] / place[lanes, begun][:, np.newaxis]


def _at_every_number(passes: EnginePasses) -> FloatArray:
    """Return the times of passes at each number of decoding requests from 0 on, (services, levels, numbers)."""
    numbers = np.arange(int(passes.most_in_flight.max()) + 1)
    above = np.clip(np.searchsorted(passes.decoding, numbers), 1, len(passes.decoding) - 1)
    low, high = passes.decoding[above - 1], passes.decoding[above]
    share = (numbers - low) / (high - low)
    pass_s: FloatArray = passes.pass_s[..., above - 1] * (1 - share) + passes.pass_s[..., above] * share
    return pass_s


def _steady_numbers(
    passes: EnginePasses, pass_s: FloatArray, *, gap_s: FloatArray, decode_count: float, runs: int
) -> IndexArray:
    """Return how many requests decode at the beginning of each run, (services, runs).

    The mean is the smallest number that answers requests as fast as they arrive; the runs are spread around it like
    the quantiles of a Poisson distribution, as for independent requests.
    """
    numbers = np.arange(pass_s.shape[2])
    prompt_s = passes.part_count[:, np.newaxis] * np.maximum(pass_s[:, 1] - pass_s[:, 0], 0.0)
    per_s = numbers / (decode_count * pass_s[:, 0] + numbers * prompt_s)
    mean = np.argmax(per_s >= 1 / gap_s[:, np.newaxis], axis=1)
    mean = np.where(per_s.max(axis=1) < 1 / gap_s, passes.most_in_flight, mean)
    spread = np.linspace(-1.0, 1.0, runs) if runs > 1 else np.zeros(1)
    begun = np.rint(mean[:, np.newaxis] + np.sqrt(mean)[:, np.newaxis] * 1.5 * spread)
    most = np.maximum(passes.most_in_flight - 1, 0)[:, np.newaxis]
    numbers_begun: IndexArray = np.clip(begun, 0, most).astype(np.intp)
    return numbers_begun
