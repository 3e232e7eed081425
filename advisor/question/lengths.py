"""Prices sequences by the distribution of their lengths: padded to the longest of each batch, or without padding.

A model is traced at three lengths, between which its dimensions grow linearly. The step of a batch is taken at the one
length whose FLOP equal the mean over the batches of the distribution, so that the quadratic part of attention is
counted. The memory is that of the longest sequence.
"""

import csv
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from advisor.errors import TraceError, UsageError
from advisor.files.regular_file import read_regular_file
from advisor.records.fine_tuning import DEFAULT_TOKENS
from advisor.records.flag_values import flag_name, is_given, is_workload_file
from advisor.records.options import Options
from advisor.records.workload import Dim, Operand, Row, Workload
from advisor.workload.sources import kind_of

_MEAN_AND_P95 = re.compile(r"(\d+(?:\.\d+)?)\s*,\s*(\d+(?:\.\d+)?)")
_QUANTILES = 20_000
"""Points that stand for a log-normal distribution, at equal probabilities."""
_LEAST_TRACED = 9
_STEP = 64
"""Traced lengths differ by multiples of it where they can, so that strided convolutions divide them alike."""
_ROUNDING = 1
"""The most by which a dimension may differ from a line, as the rounded sizes of strided convolutions do."""
_HINT = "write --lengths FILE with one length per line, FILE:COLUMN of a CSV file, or MEAN,P95 such as 180,512"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of sequences, ascending, with the number of samples of each; `kind` begins the note on them."""

    counts: Mapping[int, int]
    kind: str

    @property
    def longest(self) -> int:
        """The longest."""
        return max(self.counts)

    @property
    def mean(self) -> float:
        """The mean over the samples."""
        return sum(length * count for length, count in self.counts.items()) / sum(self.counts.values())

    def cut(self, limit: int) -> "Lengths":
        """Return the lengths with longer ones cut to `limit`, as tokenizers truncate."""
        cut: Counter[int] = Counter()
        for length, count in self.counts.items():
            cut[min(length, limit)] += count
        return Lengths(counts=cut, kind=f"{self.kind}cut at {limit:,}, " if self.longest > limit else self.kind)

    def quantile(self, share: float) -> int:
        """Return the shortest length that at least this share of the samples does not exceed."""
        wanted = share * sum(self.counts.values())
        reached = zip(self.counts, accumulate(self.counts.values()), strict=True)
        return next((length for length, seen in reached if seen >= wanted), self.longest)

    def longest_of(self, batch: int) -> dict[int, float]:
        """Return the probability that each length is the longest of `batch` samples drawn at random.

        The longest is at most x if all are: (share of samples up to x)^batch.
        """
        total = sum(self.counts.values())
        until = [(seen / total) ** batch for seen in accumulate(self.counts.values())]
        return {length: end - start for length, (start, end) in zip(self.counts, pairwise([0.0, *until]), strict=True)}


def read_lengths(text: str) -> Lengths:
    """Read `--lengths`: MEAN,P95 of a log-normal distribution, or a file; raise `UsageError` if it is neither."""
    if found := _MEAN_AND_P95.fullmatch(text.strip()):
        return _log_normal(float(found[1]), float(found[2]), text=text)
    path, colon, column = text.rpartition(":") if not Path(text).exists() else (text, "", "")
    try:
        content = read_regular_file(Path(path if colon else text)).decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"--lengths {text}: {error.strerror}", hint=_HINT) from None
    except UnicodeDecodeError:
        raise UsageError(f"--lengths {text}: not a text file", hint=_HINT) from None
    return _counted(_column(list(csv.reader(content.splitlines())), column, text=text), kind="")


def _column(rows: Sequence[Sequence[str]], name: str, *, text: str) -> list[int]:
    """Return the whole numbers of a column; the first line may be its heading."""
    filled = [(number, row) for number, row in enumerate(rows, start=1) if any(map(str.strip, row))]
    if not filled:
        raise UsageError(f"--lengths {text}: the file is empty", hint=_HINT)
    heading = [cell.strip() for cell in filled[0][1]]
    has_heading = not all(cell.isdecimal() for cell in heading)
    if name not in heading and (name or len(heading) > 1):
        listed = ", ".join(heading) if has_heading else f"{len(heading)} without names"
        raise UsageError(f"--lengths {text}: which column? It has {listed}", hint="write FILE:COLUMN")
    at = heading.index(name) if name else 0
    found = []
    for number, row in filled[has_heading:]:
        cell = row[at].strip() if at < len(row) else ""
        if not cell.isdecimal() or int(cell) < 1:
            raise UsageError(f"--lengths {text}:{number}: {cell!r:.40} is not a length", hint="write whole numbers")
        found.append(int(cell))
    if not found:
        raise UsageError(f"--lengths {text}: the file has a heading only", hint=_HINT)
    return found


def _log_normal(mean: float, p95: float, *, text: str) -> Lengths:
    """Return the quantiles of the log-normal distribution with this mean and 95th percentile.

    ln mean = m + s^2 / 2 and ln p95 = m + z s, so s^2 / 2 - z s + ln(p95 / mean) = 0, of which s is the smaller root.
    """
    from statistics import NormalDist  # late, because every command imports this module

    normal = NormalDist()
    z, apart = normal.inv_cdf(0.95), math.log(p95 / mean) if mean else -1.0
    if not 0 <= apart <= z * z / 2:
        most = math.exp(z * z / 2)
        raise UsageError(
            f"--lengths {text}: no log-normal distribution has this mean and 95th percentile",
            hint=f"the 95th percentile is 1 to {most:.2g} times the mean; otherwise give a file of lengths",
        )
    spread = z - math.sqrt(z * z - 2 * apart)
    middle = math.log(mean) - spread * spread / 2
    points = ((index + 0.5) / _QUANTILES for index in range(_QUANTILES))
    sizes = (max(1, round(math.exp(middle + spread * normal.inv_cdf(point)))) for point in points)
    return _counted(sizes, kind="log-normal, ")


def _counted(sizes: Iterable[int], *, kind: str) -> Lengths:
    return Lengths(counts=dict(sorted(Counter(sizes).items())), kind=kind)


def check_lengths(source: str, options: Options, *, run: bool) -> None:
    """Raise `UsageError` if `--lengths`, which is given, does not suit the source or the other options."""
    kind = kind_of(source)
    other = next((name for name in ("prompt_tokens", "measure", "mean_tokens") if is_given(options, name)), None)
    if other is not None:
        raise UsageError(f"--lengths does not go with {flag_name(other)}", hint="keep one of them")
    if run or is_workload_file(source):
        what = "a script" if run else "a saved workload"
        raise UsageError(f"--lengths: {source} is {what}, whose inputs are its own", hint="name the model's source")
    if not options.input and not (kind and kind.takes_tokens):
        raise UsageError(
            f"--lengths: which dimension of the inputs of {source} is the sequence is not known",
            hint="give the inputs with the sequence first: --input ids=512:int64",
        )


def of_trace(options: Options) -> Lengths | None:
    """Return the lengths to trace at; None without `--lengths`, and if samples are packed into full sequences."""
    if options.lengths is None or _packs_full(options):
        return None
    return _as_cut(options.lengths, options)


def _packs_full(options: Options) -> bool:
    return options.packing and options.finetune != "none"


def _as_cut(text: str, options: Options) -> Lengths:
    """Read `--lengths`, cut at the tokens of a sequence of fine-tuning."""
    lengths = read_lengths(text)
    limit = None if options.finetune == "none" else options.sequence or DEFAULT_TOKENS
    return lengths if limit is None else lengths.cut(limit)


def settled(workload: Workload, options: Options, *, longest: int | None = None) -> tuple[Workload, Options]:
    """Return the workload and the options of a job with lengths: `--tokens` as samples.

    `longest` is what the trace at the longest has; a model may take no longer ones. If samples are packed into full
    sequences, the lengths only give the mean tokens of a sample, and are then dropped.
    """
    if options.lengths is None:
        return workload, options
    if _packs_full(options):
        lengths = _as_cut(options.lengths, options)
        noted = replace(workload, assumptions=(*workload.assumptions, _note(lengths, "packed into full sequences")))
        return noted, replace(options, mean_tokens=lengths.mean, lengths=None)
    if options.tokens is None:
        return workload, options
    lengths = _as_taken(_as_cut(options.lengths, options), longest)
    return workload, replace(options, tokens=None, samples=math.ceil(options.tokens / lengths.mean))


def _as_taken(lengths: Lengths, longest: int | None) -> Lengths:
    """Return the lengths that the model takes, of which a trace at the longest has length `longest`."""
    return lengths if longest in (None, traced_length(lengths)) else lengths.cut(longest or 0)


def traced_length(lengths: Lengths) -> int:
    """Return the longest length at which to trace: odd, because an even one may equal some width of the model."""
    longest = max(lengths.longest, _LEAST_TRACED)
    return longest + 1 - longest % 2


def at_batches(
    first: Workload, options: Options, lengths: Lengths, trace_at_length: Callable[[Sequence[int]], Sequence[Workload]]
) -> Callable[[int], Workload]:
    """Return a function that gives the step at a batch size; `first` was traced at `traced_length(lengths)`.

    `trace_at_length` traces at other lengths. Raises `TraceError` if dimensions do not grow linearly with the length.
    """
    actual = sequence_of(first)
    lengths = _as_taken(lengths, actual)
    top = actual - 1 + actual % 2
    apart = (top // 3) // _STEP * _STEP or max(1, top // 3)
    sizes = [top, top - apart, top - 2 * apart]
    missing = [size for size in sizes if size != actual]
    known = {actual: first, **dict(zip(missing, trace_at_length(missing), strict=True))}
    traced = {size: known[size] for size in sizes}
    line = _Line(traced, longest=first)
    how = "packed without padding" if options.packing else _padded(lengths, sorted({1, first.batch, 256}))
    note = _note(lengths, f"{how}; memory for the longest")
    common = [note for note in first.assumptions if all(note in one.assumptions for one in traced.values())]

    def at(batch: int) -> Workload:
        chances = lengths.longest_of(1 if options.packing else batch)
        length = line.length_of(chances, batch=batch)
        return line.workload(length, batch=batch, assumptions=(*common, note))

    return at


def _note(lengths: Lengths, how: str) -> str:
    p95 = lengths.quantile(0.95)
    return f"lengths: {lengths.kind}mean {lengths.mean:,.0f}, 95 % up to {p95:,}, longest {lengths.longest:,}; {how}"


def _padded(lengths: Lengths, batches: Sequence[int]) -> str:
    def mean_longest(batch: int) -> str:
        mean = sum(length * chance for length, chance in lengths.longest_of(batch).items())
        return f"{mean:,.0f} on average at batch {batch}"

    return f"padded to the longest of a batch: {', '.join(map(mean_longest, batches))}"


def sequence_of(workload: Workload) -> int:
    """Return the traced length: the first dimension after the batch of the first input that has one."""
    for operand in workload.inputs:
        if len(operand.shape) > 1 and isinstance(size := operand.shape[1], int):
            return size
    raise UsageError(f"--lengths: {workload.name} has no input with a sequence", hint="give one: --input ids=512:int64")


class _Line:
    """A step as a function of the sequence length, from traces at three lengths; `longest` has the memory."""

    def __init__(self, traced: Mapping[int, Workload], *, longest: Workload) -> None:
        self._lengths, self._steps = list(traced), list(traced.values())
        self._longest = longest
        keys = [[_key(row) for row in step.rows] for step in self._steps]
        if any(one != keys[0] for one in keys) or not all(step.batch_is_affine for step in self._steps):
            raise self._refusal("runs other operators at other lengths")

    def length_of(self, chances: Mapping[int, float], *, batch: int) -> int:
        """Return the length whose FLOP are closest to the mean over batches of these lengths."""
        import numpy as np

        from advisor.ops.evaluate import row_cost

        flops = [sum(row.count * float(row_cost(row, batch=batch).flops) for row in step.rows) for step in self._steps]
        of_length = np.polynomial.Polynomial.fit(self._lengths, flops, 2)
        sizes, shares = np.array(list(chances)), np.array(list(chances.values()))
        expected = float((of_length(sizes) * shares).sum())
        candidates = np.arange(1, sizes.max() + 1)
        return int(candidates[np.abs(of_length(candidates) - expected).argmin()])

    def workload(self, length: int, *, batch: int, assumptions: Sequence[str]) -> Workload:
        """Return the step at a length; `batch` becomes its default batch."""
        rows = [
            replace(
                same[0],
                inputs=self._operands([row.inputs for row in same], length),
                outputs=self._operands([row.outputs for row in same], length),
            )
            for same in zip(*(step.rows for step in self._steps), strict=True)
        ]
        return replace(
            self._longest,
            batch=batch,
            rows=tuple(rows),
            inputs=self._operands([step.inputs for step in self._steps], length),
            assumptions=tuple(assumptions),
        )

    def _operands(self, traced: Sequence[tuple[Operand, ...]], length: int) -> tuple[Operand, ...]:
        return tuple(
            replace(
                same[0],
                shape=tuple(self._dim(dims, length) for dims in zip(*(one.shape for one in same), strict=True)),
            )
            for same in zip(*traced, strict=True)
        )

    def _dim(self, dims: Sequence[Dim], length: int) -> Dim:
        if all(dim == dims[0] for dim in dims):
            return dims[0]
        parts = [(float(dim), 0.0) if isinstance(dim, int) else dim for dim in dims]
        start, slope = (self._between([part[index] for part in parts], length) for index in range(2))
        return round(start) if slope == 0 else (start, slope)

    def _between(self, sizes: Sequence[float], length: int) -> float:
        """Return the size at a length, on the line from the shortest to the longest; the middle one checks the line."""
        top, middle, low = self._lengths

        def at(one: int) -> float:
            return sizes[2] + (sizes[0] - sizes[2]) * (one - low) / (top - low)

        if abs(at(middle) - sizes[1]) > _ROUNDING:
            raise self._refusal("has sizes that do not grow linearly with the length")
        return max(0.0, at(length))

    def _refusal(self, problem: str) -> TraceError:
        listed = ", ".join(map(str, sorted(self._lengths)))
        return TraceError(
            f"--lengths: {self._longest.name} {problem} (traced at {listed})",
            hint="leave --lengths out and give the padded length of a batch, such as --input ids=512:int64",
        )


def _key(row: Row) -> tuple[Any, ...]:
    def kinds(operands: Sequence[Operand]) -> list[tuple[Any, ...]]:
        return [(len(one.shape), one.dtype, one.low) for one in operands]

    return row.op, row.phase, row.module, row.count, tuple(row.attributes), kinds(row.inputs), kinds(row.outputs)
