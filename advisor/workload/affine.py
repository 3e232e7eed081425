"""Merges traces of one step at several batch sizes into rows whose dimensions are a + b x batch."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from advisor.records.workload import Blocks, Dim, MemoryLine, Operand, Row, StoredBytes, TakenRatios
from advisor.workload.allocators import CachingAllocator, GlibcHeap
from advisor.workload.recorder import Recording
from advisor.workload.storages import CATEGORIES, CELL, STORINGS

_STORED_RATIOS = ({"low": 1.0, "full": 1.0}, {"low": 0.5, "full": 1.0}, {"low": 0.5, "full": 0.5})
"""Bytes stored per traced byte, by way of storing: as traced, under autocast, and with the whole model in half."""


_Key = tuple[Any, ...]
"""Op, family, phase, module, inputs, outputs and attributes of a row, which are equal for calls of one row."""


def merge_rows(recordings: Sequence[Recording], batches: Sequence[int]) -> tuple[Row, ...] | None:
    """Return rows merged from traces at `batches`; the first two determine the dimensions, the others check them.

    Return None if the sequence of calls or a dimension is not affine in the batch. Rows from a single recording hold
    only for its batch.
    """
    if len({len(recording.rows) for recording in recordings}) != 1:
        return None
    counts: Counter[_Key] = Counter()
    for keys, count in Counter(zip(*(map(_key, recording.rows) for recording in recordings), strict=True)).items():
        (*first, _, _, attributes) = keys[0]
        inputs, outputs = (merge_operands([key[side] for key in keys], batches) for side in (4, 5))
        if inputs is None or outputs is None or any((*key[:4], key[6]) != (*first, attributes) for key in keys):
            return None
        counts[(*first, inputs, outputs, attributes)] += count
    names = ("op", "family", "phase", "module", "inputs", "outputs")
    return tuple(
        Row(**dict(zip(names, key, strict=False)), attributes=dict(key[6]), count=count)
        for key, count in counts.items()
    )


def _key(row: Row) -> _Key:
    return row.op, row.family, row.phase, row.module, row.inputs, row.outputs, tuple(row.attributes.items())


def merge_operands(traced: Sequence[tuple[Operand, ...]], batches: Sequence[int]) -> tuple[Operand, ...] | None:
    """Return the operands that are `traced[i]` at `batches[i]`; None if one is not affine or their number changes."""
    if len({len(operands) for operands in traced}) != 1:
        return None
    merged = []
    for same in zip(*traced, strict=True):
        shape = merge_shape([one.shape for one in same], batches)
        if shape is None or len({one.dtype for one in same}) != 1:
            return None
        merged.append(replace(same[0], shape=shape, varies=same[0].varies and len(batches) == 1))
    return tuple(merged)


def merge_shape(shapes: Sequence[tuple[Any, ...]], batches: Sequence[int]) -> tuple[Dim, ...] | None:
    """Return the shape that is `shapes[i]` at `batches[i]`; None if the rank changes or a dimension is not affine."""
    if len({len(shape) for shape in shapes}) != 1:
        return None
    dims = [merge_dim(sizes, batches) for sizes in zip(*shapes, strict=True)]
    return None if None in dims else tuple(dim for dim in dims if dim is not None)


def merge_dim(sizes: Sequence[int], batches: Sequence[int]) -> Dim | None:
    """Return the dimension that is `sizes[i]` at `batches[i]`, or None if it is not of the form a + b x batch.

    A size that falls with the batch, or is negative at a batch of one, does not hold at other batches: it comes from
    padding to a fixed length, or from the rest of a slice.
    """
    if all(size == sizes[0] for size in sizes):
        return sizes[0]
    slope = (sizes[1] - sizes[0]) / (batches[1] - batches[0])
    start = sizes[0] - slope * batches[0]
    if slope < 0 or start + slope < 0:
        return None
    if any(start + slope * batch != size for size, batch in zip(sizes, batches, strict=True)):
        return None
    return (start, slope)


def memory_lines(recordings: Sequence[Recording], batches: Sequence[int]) -> tuple[MemoryLine, ...]:
    """Return the moments of the step at which memory peaks, for any batch size of at least 1 and any precision.

    Every storage is affine in the batch, so the live bytes at each moment are a line over the batch, and the peak is
    the upper envelope of these lines. With one recording the lines are flat. The optimizer's state is created in the
    first step and is live throughout all later ones.
    """
    live = [np.array(recording.live_bytes, dtype=np.float64) for recording in recordings[:2]]
    if len(live) == 2 and live[0].shape == live[1].shape:
        slopes = (live[1] - live[0]) / (batches[1] - batches[0])
        starts = live[0] - slopes * batches[0]
    else:
        starts, slopes = live[0], np.zeros_like(live[0])
    starts[:, CELL["optimizer_state", "full"]] += recordings[0].allocations.state_bytes
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
    first, second = recordings[0].blocks, recordings[min(1, len(recordings) - 1)].blocks
    step = max(1, batches[min(1, len(batches) - 1)] - batches[0])

    def stored(at_first: Any, at_second: Any) -> StoredBytes:
        slopes = (np.array(at_second, dtype=np.float64) - at_first) / step
        starts = np.array(at_first, dtype=np.float64) - slopes * batches[0]
        lines = zip(STORINGS, starts.tolist(), slopes.tolist(), strict=True)
        return StoredBytes(**{storing: (start, slope) for storing, start, slope in lines})

    if [(path, len(blocks)) for path, blocks in first.items()] != [(path, len(b)) for path, b in second.items()]:
        return ()
    merged = []
    for path, blocks in first.items():
        kept, results = (
            np.array([[getattr(block, held) for block in traced] for traced in (blocks, second[path])])
            for held in ("kept", "results")
        )
        largest = int(kept[0].sum(axis=1).argmax())
        merged.append(
            Blocks(
                path=path,
                count=len(blocks),
                parameter_bytes=sum(block.parameter_bytes for block in blocks),
                largest_parameter_bytes=max(block.parameter_bytes for block in blocks),
                kept=stored(*kept.sum(axis=1)),
                largest_kept=stored(*kept[:, largest]),
                results=stored(*results.sum(axis=1)),
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


def _upper_envelope(starts: "np.ndarray[Any, Any]", slopes: "np.ndarray[Any, Any]") -> list[int]:
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


def _line(phase: Any, starts: "np.ndarray[Any, Any]", slopes: "np.ndarray[Any, Any]") -> MemoryLine:
    kinds = {
        category: StoredBytes(
            **{
                storing: (float(starts[CELL[category, storing]]), float(slopes[CELL[category, storing]]))
                for storing in STORINGS
            }
        )
        for category in CATEGORIES
    }
    return MemoryLine(phase=phase, **kinds)
