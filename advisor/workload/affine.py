"""Merges traces of one step at several batch sizes into rows whose dimensions are a + b x batch.

Its bytes are then a + b x batch too, unless the step compares the samples of a batch with each other: a batch x batch
tensor adds c x batch^2.
"""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from operator import ne
from typing import Any

import numpy as np

from advisor.ops.evaluate import bytes_at, falls
from advisor.records.workload import Blocks, Dim, MemoryLine, Operand, Phase, Row, StoredBytes, TakenRatios
from advisor.workload.allocators import Allocations, CachingAllocator, GlibcHeap
from advisor.workload.recorder import Recording
from advisor.workload.storages import CATEGORIES, CELL, STORINGS

_STORED_RATIOS: tuple[dict[str, float], ...] = ({}, {"low": 0.5}, {"low": 0.5, "full": 0.5, "double": 0.25})
"""Bytes stored per traced byte, by way of storing: as traced, under autocast, and with the whole model in half."""

_Numbers = np.ndarray[Any, Any]
_Key = tuple[Any, ...]
"""Op, family, phase, module, inputs, outputs and attributes of a row, which are equal for calls of one row."""

SQUARED_COUNT = 4
"""Traces needed of a step with batch x batch tensors."""
_ONLY_SQUARES_BATCH = 2**30
"""At this batch a tensor with 4 bytes for each pair of samples has 4 GiB per sample, far more than all others."""


class NotAffineError(Exception):
    """Dimensions of the traced steps are not a + b x batch, or their bytes not a + b x batch + c x batch^2."""


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
        is_fixed = len(batches) == 1 or all(isinstance(dim, int) for dim in shape)
        merged.append(replace(same[0], shape=shape, varies=same[0].varies and is_fixed))
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


def has_squares(recordings: Sequence[Recording]) -> bool:
    """Return whether the step, traced at two batches or more, has batch x batch tensors.

    Only then do its bytes grow faster than a + b x batch.
    """
    one, other = ([(*row.inputs, *row.outputs) for row in recording.rows] for recording in recordings[:2])
    shapes = {
        (first.shape, second.shape)
        for operands in zip(one, other, strict=False)
        for first, second in zip(*operands, strict=False)
    }
    return any(sum(map(ne, *pair)) > 1 for pair in shapes)


def memory_lines(recordings: Sequence[Recording], batches: Sequence[int]) -> tuple[MemoryLine, ...]:
    """Return the moments of the step at which memory peaks, for any batch size of at least 1 and any precision.

    The live bytes at each moment are a curve over the batch, as `_curves` finds it, and the peak is the upper envelope
    of these curves. The optimizer's state is created in the first step and is live throughout all later ones. Raises
    `NotAffineError` if a curve that is kept falls, or is below 0 at a batch of one.
    """
    curves = _curves([recording.live_bytes for recording in recordings], batches)
    allocations = recordings[0].allocations
    curves[0, :, CELL["optimizer_state", "full"]] += allocations.state_bytes - allocations.double_state_bytes
    curves[0, :, CELL["optimizer_state", "double"]] += allocations.double_state_bytes
    moments: set[int] = set()
    for ratios in _STORED_RATIOS:
        weights = np.array([ratios.get(storing, 1.0) for _, storing in CELL])
        moments.update(_upper_envelope(np.array([power @ weights for power in curves])))
    phases = recordings[0].phases
    in_optimizer = np.flatnonzero(np.array(phases) == "optimizer")
    if in_optimizer.size:  # on CUDA the optimizer needs more memory than on the CPU, and may become the peak
        heights = curves[:, in_optimizer].sum(axis=2).sum(axis=0)
        moments.add(int(in_optimizer[heights.argmax()]))
    return tuple(_line(phases[moment], curves[:, moment]) for moment in sorted(moments))


def merged_blocks(recordings: Sequence[Recording], batches: Sequence[int]) -> tuple[Blocks, ...]:
    """Return the blocks with the bytes they hold as curves over the batch; empty if the traces run different blocks.

    Raises `NotAffineError` as `memory_lines` does.
    """
    traced = [recording.blocks for recording in recordings]
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
                kept=_stored(_curves(kept.sum(axis=1), batches)),
                largest_kept=_stored(_curves(kept[:, largest], batches)),
                results=_stored(_curves(results.sum(axis=1), batches)),
            )
        )
    return tuple(merged)


def taken_ratios(allocations: Allocations) -> TakenRatios:
    """Return the peak memory that CPU and CUDA allocators reserve, relative to what the step's tensors need."""
    return TakenRatios(
        heap=allocations.taken_ratio(GlibcHeap(), has_scratch=True),
        cache=allocations.taken_ratio(CachingAllocator(), has_scratch=False),
    )


def squared_taken_ratios(recordings: Sequence[Recording], batches: Sequence[int]) -> TakenRatios | None:
    """Return `taken_ratios` of the step's batch x batch tensors alone, or None if it has none.

    These are the ratios at a batch so large that all other tensors are negligible. They are not known, and None, if the
    allocations are others at another batch.
    """
    traced = [recording.allocations for recording in recordings]
    calls = [[(serial, size_bytes is None) for serial, size_bytes in one.events] for one in traced]
    if len(recordings) < SQUARED_COUNT or any(one != calls[0] for one in calls):
        return None
    sizes = [[size_bytes or 0 for _, size_bytes in one.events] for one in traced]
    try:
        curves = _curves(sizes, batches)
    except NotAffineError:  # oneDNN's scratch memory may grow otherwise
        return None
    if not curves[2].any():
        return None
    grown = [int(size_bytes) for size_bytes in bytes_at(tuple(curves), batch=_ONLY_SQUARES_BATCH)]
    events = ((serial, None if is_freed else size) for (serial, is_freed), size in zip(calls[0], grown, strict=True))
    return taken_ratios(replace(traced[0], events=tuple(events)))


def _curves(traced: Any, batches: Sequence[int]) -> _Numbers:
    """Return a, b and c of the bytes a + b x batch + c x batch^2, stacked, through those traced at each batch.

    One trace gives constants, two or three give the line through the first two. A step with squares is traced four
    times: the first three traces determine the curve and the last checks it. Raises `NotAffineError` if that check
    fails, or if the traces have unequal numbers of moments.
    """
    if len({len(samples) for samples in traced}) != 1:
        raise NotAffineError
    sizes = [np.array(samples, dtype=np.float64) for samples in traced]
    first, *others = batches
    if not others:
        return np.array([sizes[0], 0 * sizes[0], 0 * sizes[0]])
    slopes = [(size - sizes[0]) / (batch - first) for size, batch in zip(sizes[1:], others, strict=True)]
    squares = 0 * sizes[0]
    if len(sizes) >= SQUARED_COUNT:  # Newton's divided differences
        squares = (slopes[1] - slopes[0]) / (others[1] - others[0])
    slope = slopes[0] - squares * (first + others[0])
    curves = np.array([sizes[0] - slopes[0] * first + squares * first * others[0], slope, squares])
    for size, batch in zip(sizes[SQUARED_COUNT - 1 :], batches[SQUARED_COUNT - 1 :], strict=True):
        if np.abs(bytes_at(tuple(curves), batch=batch) - size).max() >= 1:
            raise NotAffineError
    return curves


def _upper_envelope(curves: _Numbers) -> list[int]:
    """Return the indices of the curves that are highest somewhere in batch >= 1, in that order; one may return."""
    _, slopes, squares = curves
    batch = 1.0
    found = []
    while True:
        heights = bytes_at(tuple(curves), batch=batch)
        most = float(heights.max())
        highest = np.flatnonzero(heights >= most * (1 - math.copysign(1e-12, most)))
        rises = (slopes + 2 * batch * squares)[highest]
        steepest = highest[rises == rises.max()]
        current = int(steepest[np.argmax(squares[steepest])])
        found.append(current)
        crossings = _crossings(curves - curves[:, current, np.newaxis], after=batch)
        if crossings.size == 0:
            return found
        batch = max(float(crossings.min()), batch * (1 + 1e-9))


def _crossings(differences: _Numbers, *, after: float) -> _Numbers:
    """Return the batches after this one, where none is positive, at which differences of curves become positive."""
    start, slope, square = differences
    inside = slope**2 - 4 * start * square
    root = np.sqrt(np.maximum(inside, 0.0))
    with np.errstate(divide="ignore", invalid="ignore"):  # the first form also holds for lines
        crossing = np.where(slope >= 0, -2 * start / (slope + root), (root - slope) / (2 * square))
    rises = (square > 0) | ((square == 0) & (slope > 0)) | ((square < 0) & (inside > 0) & (crossing > after))
    rising: _Numbers = np.nan_to_num(crossing[rises], nan=after)
    return rising


def _line(phase: Phase, curves: _Numbers) -> MemoryLine:
    by_category = np.moveaxis(curves.reshape(len(curves), len(CATEGORIES), len(STORINGS)), 1, 0)
    stored = zip(CATEGORIES, map(_stored, by_category), strict=True)
    return MemoryLine(phase=phase, **dict(stored))


def _stored(curves: _Numbers) -> StoredBytes:
    growths = [tuple(curve if curve[2] else curve[:2]) for curve in curves.T.tolist()]
    if any(falls(growth) or bytes_at(growth, batch=1) < 0 for growth in growths):
        raise NotAffineError
    return StoredBytes(**dict(zip(STORINGS, growths, strict=True)))
