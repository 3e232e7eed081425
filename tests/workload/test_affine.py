from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from advisor.ops.evaluate import bytes_at
from advisor.records.workload import Operand, Row
from advisor.workload.affine import (
    NotAffineError,
    has_squares,
    memory_lines,
    merge_dim,
    merge_rows,
    merged_blocks,
    squared_taken_ratios,
    taken_ratios,
)
from advisor.workload.allocators import Allocations
from advisor.workload.recorder import Recording
from advisor.workload.storages import CELL, BlockBytes


def call(*shape, op="aten.mm", module="", attributes=(), dtype="float32"):
    operand = Operand(shape=shape, dtype=dtype)
    return Row(
        op=op,
        family="matmul",
        phase="forward",
        module=module,
        inputs=(replace(operand, varies=True),),
        outputs=(operand,),
        attributes=dict(attributes),
        count=1,
    )


def recording(*calls, live=None):
    samples = tuple(live or [(0,) * len(CELL)])
    return Recording(
        rows=calls,
        live_bytes=samples,
        phases=("forward",) * len(samples),
        unknown_ops={},
    )


@given(a=st.integers(-50, 50), b=st.integers(-5, 100), batches=st.lists(st.integers(1, 64), min_size=3, max_size=4))
def test_every_dimension_that_is_affine_is_found(a, b, batches):
    batches = sorted(set(batches))
    sizes = [a + b * batch for batch in batches]
    if len(batches) > 1 and (b < 0 or (b > 0 and a + b < 0)):  # no size at every batch: padding, or a slice's rest
        with pytest.raises(NotAffineError):
            merge_dim(sizes, batches)
        return
    merged = merge_dim(sizes, batches) if len(batches) > 1 else sizes[0]
    for batch in (1, 7, 1000) if len(batches) > 1 else batches:
        assert (merged if isinstance(merged, int) else merged[0] + merged[1] * batch) == a + b * batch


def test_a_constant_dimension_is_a_plain_number():
    assert merge_dim([64, 64, 64], [4, 8, 12]) == 64


def test_a_square_is_not_affine():
    with pytest.raises(NotAffineError):
        merge_dim([16, 64, 144], [4, 8, 12])


def test_a_dimension_that_the_third_batch_refutes_is_not_affine():
    with pytest.raises(NotAffineError):
        merge_dim([4, 8, 13], [4, 8, 12])


def test_a_slope_below_one_is_kept():
    # Pairs of samples: 2, 4, 6 at 4, 8, 12 is 0 + 0.5 x batch.
    assert merge_dim([2, 4, 6], [4, 8, 12]) == (0.0, 0.5)


def test_equal_calls_are_one_row_with_their_count():
    [row] = merge_rows([recording(call(4, 8), call(4, 8)), recording(call(8, 8), call(8, 8))], [4, 8])
    assert row.count == 2
    assert row.inputs == (Operand(shape=((0.0, 1.0), 8), dtype="float32"),)


def test_calls_that_only_vary_differently_are_one_row():
    def constant(size):
        varying = call(size)
        return replace(varying, inputs=(replace(varying.inputs[0], varies=False),))

    [row] = merge_rows([recording(call(4), constant(4)), recording(call(8), constant(8))], [4, 8])
    assert row.count == 2


def test_calls_that_part_at_another_batch_are_two_rows():
    # 8 is a constant in one and the batch in the other.
    rows = merge_rows([recording(call(8), call(8)), recording(call(8), call(16))], [8, 16])
    assert [row.inputs[0].shape for row in rows] == [(8,), ((0.0, 1.0),)]


def test_programs_that_differ_are_not_merged():
    batches = [4, 8]
    same = recording(call(4))
    merge_rows([same, recording(call(8))], batches)
    for other in (
        recording(call(8), call(8)),
        recording(call(8, op="aten.addmm")),
        recording(call(8, module="head")),
        recording(call(8, attributes=(("dim", 1),))),
        recording(call(8, dtype="int64")),
        recording(call(8, 1)),
    ):
        with pytest.raises(NotAffineError):
            merge_rows([same, other], batches)


def test_one_recording_gives_rows_for_its_batch():
    [row] = merge_rows([recording(call(4, 8))], [4])
    assert row.inputs == (Operand(shape=(4, 8), dtype="float32", varies=True),)
    assert row.outputs == (Operand(shape=(4, 8), dtype="float32"),)


def test_at_several_batches_the_shapes_say_what_varies():
    [row] = merge_rows([recording(call(4, 8)), recording(call(8, 8))], [4, 8])
    assert not row.inputs[0].varies


def sample(**bytes_of):
    cells = [0] * len(CELL)
    for name, size_bytes in bytes_of.items():
        category, _, storing = name.rpartition("_")
        cells[CELL[category, storing]] = size_bytes
    return tuple(cells)


def test_a_moment_is_a_line_over_the_batch():
    # 100 bytes of parameters, 10 per sample of activations.
    at_4 = sample(parameters_full=100, activations_full=40)
    at_8 = sample(parameters_full=100, activations_full=80)
    [line] = memory_lines([recording(live=[at_4]), recording(live=[at_8])], [4, 8])
    assert line.parameters.full == (100, 0)
    assert line.activations.full == (0, 10)


def test_the_peak_may_be_elsewhere_at_another_precision():
    # In fp32 the first moment is higher, under autocast, where `low` halves, the second.
    first, second = sample(activations_low=100), sample(activations_full=80)
    lines = memory_lines([recording(live=[first, second]), recording(live=[first, second])], [4, 8])
    assert len(lines) == 2
    # In half, float64 is a quarter: 25 against 40.
    first = sample(activations_double=100)
    lines = memory_lines([recording(live=[first, second]), recording(live=[first, second])], [4, 8])
    assert len(lines) == 2


MOMENTS = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 30)), min_size=1, max_size=12)
BATCHES = np.arange(1, 200)


@given(moments=MOMENTS)
def test_the_lines_that_are_kept_give_the_peak_at_every_batch(moments):
    def at(size):
        return recording(live=[sample(activations_full=start + slope * size) for start, slope in moments])

    lines = memory_lines([at(4), at(8)], [4, 8])
    kept = [line.activations.full[0] + line.activations.full[1] * BATCHES for line in lines]
    expected = [start + slope * BATCHES for start, slope in moments]
    np.testing.assert_allclose(np.max(kept, axis=0), np.max(expected, axis=0), rtol=1e-9)
    assert len(lines) <= len(moments)


@given(moments=MOMENTS, low=MOMENTS, batch=st.integers(1, 10**4))
def test_they_do_so_at_every_precision(moments, low, batch):
    pairs = list(zip(moments, low, strict=False))

    def at(size):
        return recording(
            live=[sample(activations_full=a + b * size, temporaries_low=c + d * size) for (a, b), (c, d) in pairs]
        )

    lines = memory_lines([at(4), at(8)], [4, 8])
    for full_ratio, low_ratio in ((1, 1), (1, 0.5), (0.5, 0.5)):
        expected = max((a + b * batch) * full_ratio + (c + d * batch) * low_ratio for (a, b), (c, d) in pairs)
        kept = max(
            (line.activations.full[0] + line.activations.full[1] * batch) * full_ratio
            + (line.temporaries.low[0] + line.temporaries.low[1] * batch) * low_ratio
            for line in lines
        )
        np.testing.assert_allclose(kept, expected, rtol=1e-9)


def test_the_state_of_the_optimizer_is_live_all_the_time():
    moment = sample(activations_full=40)
    state = Recording(
        rows=(),
        live_bytes=(moment,),
        phases=("forward",),
        unknown_ops={},
        allocations=Allocations(state_bytes=64, double_state_bytes=48),
    )
    [line] = memory_lines([state], [4])
    assert (line.optimizer_state.full, line.optimizer_state.double) == ((16, 0), (48, 0))


# -- batch x batch tensors ---------------------------------------------------------------------------------------------

SQUARED_BATCHES = [4, 8, 12, 16]


def test_a_row_of_which_two_dimensions_grow_is_a_square():
    assert has_squares([recording(call(4, 4)), recording(call(8, 8))])
    assert has_squares([recording(call(4, 3, 5)), recording(call(8, 3, 9))])
    assert not has_squares([recording(call(4, 4)), recording(call(8, 4))])  # batch 4 of a width of 4


def test_four_traces_give_the_square_of_the_batch():
    # 100 bytes, 10 per sample, 2 per pair of samples, and at the fourth batch as many.
    live = [[sample(activations_full=100 + 10 * size + 2 * size**2)] for size in SQUARED_BATCHES]
    [line] = memory_lines([recording(live=samples) for samples in live], SQUARED_BATCHES)
    assert line.activations.full == (100, 10, 2)
    assert line.activations.low == (0, 0)  # nothing that grows by the square, so it is written as before


def test_a_square_is_found_from_any_order_of_batches():
    batches = [2, 4, 3, 6]
    live = [[sample(temporaries_other=7 + size**2)] for size in batches]
    [line] = memory_lines([recording(live=samples) for samples in live], batches)
    assert line.temporaries.other == (7, 0, 1)


@pytest.mark.parametrize("power", [3, 4])
def test_bytes_that_grow_faster_than_the_square_hold_for_no_other_batch(power):
    live = [[sample(activations_full=size**power + 10**5 * size)] for size in SQUARED_BATCHES]
    with pytest.raises(NotAffineError):
        memory_lines([recording(live=samples) for samples in live], SQUARED_BATCHES)


@pytest.mark.parametrize("sizes", [[80, 40], [8, 48]], ids=["falls", "is below 0 at a batch of one"])
def test_bytes_that_no_step_can_have_hold_for_no_other_batch(sizes):
    # 120 - 10 x batch; -32 + 10 x batch.
    with pytest.raises(NotAffineError):
        memory_lines([recording(live=[sample(activations_full=size)]) for size in sizes], [4, 8])


def test_traces_with_unequal_moments_hold_for_no_other_batch():
    moment = sample(activations_full=40)
    with pytest.raises(NotAffineError):
        memory_lines([recording(live=[moment]), recording(live=[moment, moment])], [4, 8])


def test_a_moment_may_be_the_peak_at_small_and_at_large_batches():
    # 21 + batch^2 is more than 10 x batch below 3 and above 7 samples.
    live = [[sample(activations_full=21 + size**2), sample(temporaries_full=10 * size)] for size in SQUARED_BATCHES]
    lines = memory_lines([recording(live=samples) for samples in live], SQUARED_BATCHES)
    assert [line.temporaries.full for line in lines] == [(0, 0), (0, 10)]


SQUARED_MOMENTS = st.lists(
    st.tuples(st.integers(0, 10**6), st.integers(0, 3000), st.integers(0, 9)), min_size=1, max_size=12
)


@given(moments=SQUARED_MOMENTS, low=SQUARED_MOMENTS, batch=st.integers(1, 10**5))
def test_the_curves_that_are_kept_give_the_peak_at_every_batch_and_precision(moments, low, batch):
    pairs = list(zip(moments, low, strict=False))

    def at(size):
        return [(a + b * size + c * size**2, d + e * size + f * size**2) for (a, b, c), (d, e, f) in pairs]

    recordings = [
        recording(live=[sample(activations_full=full, temporaries_low=half) for full, half in at(size)])
        for size in SQUARED_BATCHES
    ]
    lines = memory_lines(recordings, SQUARED_BATCHES)
    for full_ratio, low_ratio in ((1, 1), (1, 0.5), (0.5, 0.5)):
        expected = max(full * full_ratio + half * low_ratio for full, half in at(batch))
        kept = max(
            bytes_at(line.activations.full, batch=batch) * full_ratio
            + bytes_at(line.temporaries.low, batch=batch) * low_ratio
            for line in lines
        )
        np.testing.assert_allclose(kept, expected, rtol=1e-9)


def test_blocks_keep_squares_too():
    def at(size):
        # A block keeps 3 per pair of samples and 5 per sample, and hands on 2 per sample.
        block = BlockBytes("layers.*", 8, kept=[0, 3 * size**2 + 5 * size, 0, 0], results=[0, 2 * size, 0, 0])
        return replace(recording(), blocks={"layers.*": [block, block]})

    [blocks] = merged_blocks([at(size) for size in SQUARED_BATCHES], SQUARED_BATCHES)
    assert (blocks.kept.full, blocks.largest_kept.full) == ((0, 10, 6), (0, 5, 3))
    assert blocks.results.full == (0, 4)


def with_events(size):
    """A pair of samples takes 4 bytes in a tensor that is freed before another one of 3 bytes; 10 bytes a sample."""
    events = ((1, 10 * size), (2, 4 * size**2), (2, None), (3, 3 * size**2), (3, None), (1, None))
    return replace(recording(), allocations=Allocations(events=events))


def test_the_allocators_overhead_of_squares_is_that_of_a_large_batch():
    taken = squared_taken_ratios([with_events(size) for size in SQUARED_BATCHES], SQUARED_BATCHES)
    # The second tensor reuses the first one's segment, and all small ones are negligible: 4 bytes of 4 per pair.
    assert (taken.cache, taken.heap) == (pytest.approx(1, abs=1e-6), pytest.approx(1, abs=1e-6))
    # At a batch of 4 each pool of the cache holds a segment of 2 MiB for less than 120 bytes.
    assert taken_ratios(with_events(4).allocations).cache > 10_000


def test_a_step_without_squares_has_no_such_overhead():
    linear = [replace(recording(), allocations=Allocations(events=((1, 10 * size),))) for size in SQUARED_BATCHES]
    assert squared_taken_ratios(linear, SQUARED_BATCHES) is None
    few = [with_events(size) for size in SQUARED_BATCHES[:3]]
    assert squared_taken_ratios(few, SQUARED_BATCHES[:3]) is None


def test_it_is_unknown_if_the_allocations_are_others_at_another_batch():
    first, *others = (with_events(size) for size in SQUARED_BATCHES)
    fewer = replace(first, allocations=Allocations(events=first.allocations.events[:-1]))
    assert squared_taken_ratios([fewer, *others], SQUARED_BATCHES) is None
