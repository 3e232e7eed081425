"""Predicts which operators torch.compile fuses, and so which of their operands never pass through memory.

Follows Inductor's scheduler without its cost model: an operator joins the kernel of its producer if both can be fused
and no path between them passes through another kernel (torch/_inductor/scheduler.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from operator import or_

from advisor.records.workload import Attribute, Phase

_GRAPH_OF: Mapping[Phase, int] = {"forward": 0, "loss": 0, "backward": 1, "optimizer": 2}
"""Forward with loss, and backward, are two graphs; values passed from one to the other go through memory."""
_UNFUSED_READERS = frozenset({"pool", "interpolate"})
"""Each result reads many elements, so the input is written first (torch/_inductor/lowering.py, `realize_hint`)."""
_TWO_PASS_NORMS = ("batch_norm", "group_norm")
"""Norms over more elements than a thread block holds; their statistics need a separate pass, like reductions."""
_KEPT_WIDE = frozenset(
    {"aten.silu", "aten.hardswish", "aten.gelu", "aten.mish", "aten.leaky_relu", "aten.elu", "aten.softplus"}
)
"""Activations whose formula takes its operand more than once, in fp32 (torch/_inductor/decomposition.py)."""
_MOST_JOINED = 8
"""A concatenation of more parts is not fused into readers (torch/_inductor/config.py, `max_pointwise_cat_inputs`)."""

Described = tuple[tuple[int, ...], str, bool, bool]
"""Shape, dtype, and whether autocast stores it in half on GPUs, and on CPUs."""


@dataclass(slots=True)
class TracedCall:
    """An operator call as it was traced; `reads` and `writes` number the values of `inputs` and `outputs`."""

    op: str
    family: str
    phase: Phase
    module: str
    inputs: list[Described]
    outputs: list[Described]
    attributes: tuple[tuple[str, Attribute], ...]
    fusable: bool
    casts_low: bool
    reads: list[int]
    writes: list[int]
    storages: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Fusion:
    """The operands that torch.compile keeps out of memory."""

    read_inside: set[tuple[int, int]] = field(default_factory=set)
    """Reads, as (call, value), that do not read memory because the value is already in the call's kernel."""
    unwritten: set[int] = field(default_factory=set)
    """Values that are never written."""
    joined: set[int] = field(default_factory=set)
    """Values whose kernel continues with the call that reads them."""
    narrowed: set[int] = field(default_factory=set)
    """Values that are written in half, because every reader casts them."""
    widened: set[int] = field(default_factory=set)
    """Values of half that are kept in fp32, because a kernel writes what they are computed from."""


def fuse(calls: Sequence[TracedCall]) -> Fusion:
    """Return the operands that torch.compile keeps out of memory."""
    readers: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        for value in call.reads:
            readers.setdefault(value, []).append(index)
    in_place = frozenset(index for index, call in enumerate(calls) if _is_in_place(call, calls, readers))
    fusion, reach, kernels = Fusion(), _Reach(), _FusedKernels()
    makers: dict[int, int] = {}
    taken: set[int] = set()
    """Values that were overwritten or have a place in a concatenation; a value has only one place."""
    for index, call in enumerate(calls):
        made_by = {value: makers[value] for value in call.reads if _in_one_graph(makers.get(value), call, calls)}
        free = {value: maker for value, maker in made_by.items() if value not in taken and calls[maker].fusable}
        if index in in_place:
            inside = {value for value, maker in free.items() if _is_whole(value, call, calls[maker])}
            reach.add(made_by, wanted=set())
            taken |= inside
        else:
            can_join = {value for value in free if _can_join(call, reader_count=len(readers[value]))}
            # A kernel cannot continue with a reduction's results, which are known only when it ends.
            ends = {value for value in can_join if free[value] in in_place or calls[free[value]].family == "reduction"}
            inside = reach.add(made_by, wanted=can_join - ends)
            fusion.joined.update(inside)
        kernels.add(made_by[value] for value in inside)
        fusion.read_inside.update((index, value) for value in inside)
        taken.update(value for value in call.writes if value in makers)
        makers |= dict.fromkeys(call.writes, index)
    for value, maker in makers.items():
        if calls[maker].fusable:
            _settle(value, readers.get(value, []), calls, in_place, fusion)
            if _is_kept_wide(value, makers, readers.get(value, []), calls, fusion):
                fusion.widened.add(value)
    for value, maker in makers.items():
        if value not in taken and _is_recomputed(value, maker, readers.get(value, []), calls, fusion):
            # Readers in other kernels recompute it; if none is in its maker's kernel, that kernel is dropped.
            fusion.unwritten.add(value)
            if not any((index, value) in fusion.read_inside for index in readers[value]):
                fusion.joined.add(value)
                fusion.read_inside.update((maker, one) for one in calls[maker].reads)
    fusion.read_inside.update(kernels.read_again(calls, fusion.read_inside))
    return fusion


@dataclass(frozen=True, slots=True)
class _Reach:
    """The dependencies of every call so far, as bit sets of call indices."""

    needed: list[int] = field(default_factory=list)
    """All calls that it depends on."""
    apart: list[int] = field(default_factory=list)
    """The calls that it depends on through a kernel other than its own."""

    def add(self, made_by: Mapping[int, int], *, wanted: set[int]) -> set[int]:
        """Add a call that reads the values in `made_by`; return the values of `wanted` whose kernels it can join.

        It cannot join the kernel of a value's maker if it also depends on that maker through another kernel.
        """
        through = {value: self.needed[maker] | 1 << maker for value, maker in made_by.items()}
        joined = set(wanted)
        while True:
            parts = (self.apart[maker] if value in joined else through[value] for value, maker in made_by.items())
            apart = reduce(or_, parts, 0)
            refused = {value for value in joined if apart >> made_by[value] & 1}
            if not refused:
                break
            joined -= refused
        self.needed.append(reduce(or_, through.values(), 0))
        self.apart.append(apart)
        return joined


@dataclass(frozen=True, slots=True)
class _FusedKernels:
    """Union-find over calls: `of[i]` is an earlier call in the same kernel as call i, or i itself."""

    of: list[int] = field(default_factory=list)

    def add(self, makers: Iterable[int]) -> None:
        """Add a call to the kernels of `makers`, which are merged into one."""
        index = len(self.of)
        self.of.append(index)
        for maker in makers:
            first, second = sorted((self.first(maker), self.first(index)))
            self.of[second] = first

    def first(self, index: int) -> int:
        while self.of[index] != index:
            index = self.of[index]
        return index

    def read_again(self, calls: Sequence[TracedCall], read_inside: Set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """Yield the reads, as (call, value), of values that another call in the same kernel has already read."""
        known: set[tuple[int, int]] = set()
        for index, call in enumerate(calls):
            for value in set(call.reads) if call.fusable else ():
                if (index, value) in read_inside:
                    continue
                if (self.first(index), value) in known:
                    yield index, value
                known.add((self.first(index), value))


def _is_recomputed(value: int, maker: int, readers: Sequence[int], calls: Sequence[TracedCall], fusion: Fusion) -> bool:
    """Return True if every kernel that reads the value recomputes it from the single equally large input of its maker.

    Inductor recomputes if that takes up to four reads (torch/_inductor/ir.py, `should_realize_on_reuse`). With more
    than one such input, recomputing moves as many bytes as writing the value once.
    """
    call = calls[maker]
    if call.family != "pointwise" or len(call.outputs) != 1 or len(set(readers)) < 2:
        return False
    if not _all_fuse(readers, maker, calls):
        return False
    made = call.outputs[0]
    whole = [(source, read) for source, read in zip(call.reads, call.inputs, strict=True) if _as_large(read, made)]
    if len(whole) != 1:
        return False
    source, read = whole[0]
    return read[1:] == made[1:] and (maker, source) not in fusion.read_inside


def _is_kept_wide(
    value: int, makers: Mapping[int, int], readers: Sequence[int], calls: Sequence[TracedCall], fusion: Fusion
) -> bool:
    """Return True if the value is an activation of a norm's result that several kernels compute again from fp32.

    A norm has five operands, more than Inductor computes again (`should_realize_on_reuse`), so its result is written
    where the activation takes it more than once. It is in fp32 there, since casts to half and back cancel
    (torch/_inductor/fx_passes/joint_graph.py, `pointless_convert`). Squeeze-and-excitation has such readers: a mean
    and a product. A matmul or a convolution reads the activation itself, in half.
    """
    maker = makers[value]
    call = calls[maker]
    if call.op.removesuffix("_") not in _KEPT_WIDE or value in fusion.unwritten or len(set(readers)) < 2:
        return False
    is_of_norm = any(
        (maker, source) in fusion.read_inside and calls[makers[source]].family == "norm" for source in call.reads
    )
    return is_of_norm and _all_fuse(readers, maker, calls)


def _settle(
    value: int, readers: Sequence[int], calls: Sequence[TracedCall], in_place: frozenset[int], fusion: Fusion
) -> None:
    """Decide if a value made by a fused kernel is written to memory, and at which width."""
    outside = [index for index in readers if index in in_place or (index, value) not in fusion.read_inside]
    if readers and not outside:
        fusion.unwritten.add(value)
    elif outside and all(not calls[index].fusable and calls[index].casts_low for index in outside):
        fusion.narrowed.add(value)


def _can_join(call: TracedCall, *, reader_count: int) -> bool:
    """Return True if the call can join its producer's kernel; a reduction cannot if the value has other readers.

    Long reductions are split over thread blocks, in loops that other kernels do not share.
    """
    if call.family == "reduction" and reader_count > 1:
        return False
    return call.fusable and call.family not in _UNFUSED_READERS and not _is_two_passes(call)


def _all_fuse(readers: Sequence[int], maker: int, calls: Sequence[TracedCall]) -> bool:
    """Return True if all readers can join kernels of their maker's graph."""
    return all(calls[index].fusable and _in_one_graph(maker, calls[index], calls) for index in readers)


def _in_one_graph(maker: int | None, call: TracedCall, calls: Sequence[TracedCall]) -> bool:
    return maker is not None and _GRAPH_OF[calls[maker].phase] == _GRAPH_OF[call.phase]


def _is_two_passes(call: TracedCall) -> bool:
    of_many = call.family == "norm" and any(name in call.op for name in _TWO_PASS_NORMS)
    return of_many and "no_training" not in call.op and ("training", False) not in call.attributes


def _is_in_place(call: TracedCall, calls: Sequence[TracedCall], readers: Mapping[int, Sequence[int]]) -> bool:
    """Return True if the parts of a concatenation are written in place, unless they are few and all readers fuse."""
    if call.op != "aten.cat":
        return False
    users = [index for value in call.writes for index in readers.get(value, ())]
    return len(call.reads) > _MOST_JOINED or not users or not all(calls[index].fusable for index in users)


def _is_whole(value: int, call: TracedCall, maker: TracedCall) -> bool:
    """Return True if the call reads the whole value and not a part of it."""
    return _as_large(call.inputs[call.reads.index(value)], maker.outputs[maker.writes.index(value)])


def _as_large(one: Described, other: Described) -> bool:
    return prod(one[0]) == prod(other[0])
