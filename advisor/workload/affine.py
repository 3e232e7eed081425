"""Merges traces of one step at several batch sizes into rows whose dimensions are a + b x batch."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.records.workload import Blocks, Dim, MemoryLine, Operand, Phase, Row, StoredBytes, TakenRatios
from advisor.workload.allocators import CachingAllocator, GlibcHeap
from advisor.workload.recorder import Recording
from advisor.workload.storages import CATEGORIES, CELL, STORINGS

_STORED_RATIOS: tuple[dict[str, float], ...] = ({}, {"low": 0.5}, {"low": 0.5, "full": 0.5, "double": 0.25})
"""Bytes stored per traced byte, by way of storing: as traced, under autocast, and with the whole model in half."""

_Numbers = np.ndarray[Any, Any]
_Key = tuple[Any, ...]
"""Op, family, phase, module, inputs, outputs and attributes of a row, which are equal for calls of one row."""


class NotAffineError(Exception):
    """The steps traced at several batch sizes do not grow as a + b x batch."""


def merge_rows(recordings: Sequence[Recording], batches: Sequence[int]) -> tuple[Row, ...]:
    """Return rows merged from traces at `batches`; the first two determine the dimensions, the others check them.

    Rows from a single recording hold only for its batch. Raises `NotAffineError` if the sequence of calls changes, or a
    dimension is not affine in the batch.
    """
    if len({len(recording.rows) for recording in recordings}) != 1:
        raise NotAffineError
    counts: Counter[_Key] = Counter()
    for keys, count in Counter(zip(*(map(_key, recording.rows) for recording in recordings), strict=True)).items():
        (*first, _, _, attributes) = keys[0]
        if any((*key[:4], key[6]) != (*first, attributes) for key in keys):
            raise NotAffineError
        inputs, outputs = (merge_operands([key[side] for key in keys], batches) for side in (4, 5))
        counts[(*first, inputs, outputs, attributes)] += count
    names = ("op", "family", "phase", "module", "inputs", "outputs")
    return tuple(
        Row(**dict(zip(names, key, strict=False)), attributes=dict(key[6]), count=count)
        for key, count in counts.items()
    )


def _key(row: Row) -> _Key:
    return row.op, row.family, row.phase, row.module, row.inputs, row.outputs, tuple(row.attributes.items())


def merge_operands(traced: Sequence[tuple[Operand, ...]], batches: Sequence[int]) -> tuple[Operand, ...]:
    """Return the operands that are `traced[i]` at `batches[i]`; raise `NotAffineError` unless all are affine."""
    if len({len(operands) for operands in traced}) != 1:
        raise NotAffineError
    merged = []
    for same in zip(*traced, strict=True):
        if len({(one.dtype, len(one.shape)) for one in same}) != 1:
            raise NotAffineError
        sizes: Iterator[tuple[Any, ...]] = zip(*(one.shape for one in same), strict=True)
        shape = tuple([merge_dim(at_batch, batches) for at_batch in sizes])
        merged.append(replace(same[0], shape=shape, varies=same[0].varies and len(batches) == 1))
    return tuple(merged)


def merge_dim(sizes: Sequence[int], batches: Sequence[int]) -> Dim:
    """Return the dimension that is `sizes[i]` at `batches[i]`; raise `NotAffineError` if it is not a + b x batch.

    A size that falls with the batch, or is negative at a batch of one, does not hold at other batches: it comes from
    padding to a fixed length, or from the rest of a slice.
    """
    if all(size == sizes[0] for size in sizes):
        return sizes[0]
    slope = (sizes[1] - sizes[0]) / (batches[1] - batches[0])
    start = sizes[0] - slope * batches[0]
    is_line = all(start + slope * batch == size for size, batch in zip(sizes, batches, strict=True))
    if slope < 0 or start + slope < 0 or not is_line:
        raise NotAffineError
    return (start, slope)


def memory_lines(recordings: Sequence[Recording], batches: Sequence[int]) -> tuple[MemoryLine, ...]:
    """Return the moments of the step at which memory peaks, for any batch size of at least 1 and any precision.

    Every storage is affine in the batch, so the live bytes at each moment are a line over the batch, and the peak is
    the upper envelope of these lines. With one recording the lines are flat. The optimizer's state is created in the
    first step and is live throughout all later ones.
    """
    live = [recording.live_bytes for recording in recordings[:2]]
    starts, slopes = _lines(live if len({len(samples) for samples in live}) == 1 else live[:1], batches)
    allocations = recordings[0].allocations
    starts[:, CELL["optimizer_state", "full"]] += allocations.state_bytes - allocations.double_state_bytes
    starts[:, CELL["optimizer_state", "double"]] += allocations.double_state_bytes
    moments: set[int] = set()
    for ratios in _STORED_RATIOS:
        weights = np.array([ratios.get(storing, 1.0) for _, storing in CELL])
        moments.update(_upper_envelope(starts @ weights, slopes @ weights))
    phases = recordings[0].phases
    in_optimizer = np.flatnonzero(np.array(phases) == "optimizer")
    if in_optimizer.size:  # on CUDA the optimizer needs more memory than on the CPU, and may become the peak
        heights = starts[in_optimizer].sum(axis=1) + slopes[in_optimizer].sum(axis=1)
        moments.add(int(in_optimizer[heights.argmax()]))
    return tuple(_line(phases[moment], starts[moment], slopes[moment]) for moment in sorted(moments))


def merged_blocks(recordings: Sequence[Recording], batches: Sequence[int]) -> tuple[Blocks, ...]:
    """Return the blocks with the bytes they hold as lines over the batch; empty if the traces run different blocks."""
    traced = [recording.blocks for recording in recordings[:2]]
    if len({tuple((path, len(blocks)) for path, blocks in by_path.items()) for by_path in traced}) != 1:
        return ()
    merged = []
    for path, blocks in traced[0].items():
        kept, results = (
            np.array([[getattr(block, held) for block in by_path[path]] for by_path in traced])
            for held in ("kept", "results")
        )
        largest = int(kept[0].sum(axis=1).argmax())
        merged.append(
            Blocks(
                path=path,
                count=len(blocks),
                parameter_bytes=sum(block.parameter_bytes for block in blocks),
                largest_parameter_bytes=max(block.parameter_bytes for block in blocks),
                kept=_stored(*_lines(kept.sum(axis=1), batches)),
                largest_kept=_stored(*_lines(kept[:, largest], batches)),
                results=_stored(*_lines(results.sum(axis=1), batches)),
            )
        )
    return tuple(merged)


def taken_ratios(recording: Recording) -> TakenRatios:
    """Return the peak memory that CPU and CUDA allocators reserve, relative to what the step's tensors need."""
    allocations = recording.allocations
    return TakenRatios(
        heap=allocations.taken_ratio(GlibcHeap(), has_scratch=True),
        cache=allocations.taken_ratio(CachingAllocator(), has_scratch=False),
    )


def _upper_envelope(starts: _Numbers, slopes: _Numbers) -> list[int]:
    """Return the indices of the lines start + slope x batch that are highest somewhere in batch >= 1, in that order."""
    batch = 1.0
    found = []
    while True:
        heights = starts + slopes * batch
        highest = np.flatnonzero(heights >= heights.max() * (1 - 1e-12))
        current = int(highest[np.argmax(slopes[highest])])
        found.append(current)
        steeper = np.flatnonzero(slopes > slopes[current])
        if steeper.size == 0:
            return found
        crossings = (starts[current] - starts[steeper]) / (slopes[steeper] - slopes[current])
        batch = max(float(crossings.min()), batch * (1 + 1e-9))


def _lines(traced: Any, batches: Sequence[int]) -> tuple[_Numbers, _Numbers]:
    """Return the starts and slopes of the lines over the batch through numbers traced at one batch or two."""
    at_batch = np.array(traced, dtype=np.float64)
    step = batches[1] - batches[0] if len(at_batch) > 1 else 1
    slopes = (at_batch[-1] - at_batch[0]) / step
    return at_batch[0] - slopes * batches[0], slopes


def _line(phase: Phase, starts: _Numbers, slopes: _Numbers) -> MemoryLine:
    by_category = (len(CATEGORIES), len(STORINGS))
    lines = zip(CATEGORIES, starts.reshape(by_category), slopes.reshape(by_category), strict=True)
    return MemoryLine(phase=phase, **{category: _stored(start, slope) for category, start, slope in lines})


def _stored(starts: _Numbers, slopes: _Numbers) -> StoredBytes:
    lines = zip(STORINGS, starts.tolist(), slopes.tolist(), strict=True)
    return StoredBytes(**{storing: (start, slope) for storing, start, slope in lines})
