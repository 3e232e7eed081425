"""What torch.compile merges: the calls of a step in, which of their operands never pass through memory out.

Inductor's schedule without its cost model: an operator joins the kernel of the one before it where both can be fused
and nothing that cannot stands between them on any path (torch/_inductor/scheduler.py).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import reduce
from math import prod
from operator import or_
from typing import Protocol

from advisor.records.workload import Attribute, Phase

_GRAPH_OF: Mapping[Phase, int] = {"forward": 0, "loss": 0, "backward": 1, "optimizer": 2}
"""Forward with loss, and backward, are two graphs: what crosses from one to the other is written and read."""
_READS_ANEW = frozenset({"pool", "interpolate"})
"""Each result reads many elements, which are therefore written first (torch/_inductor/lowering.py, `realize_hint`)."""
_NORMS_OF_MANY = ("batch_norm", "group_norm")
"""Their statistics are of more elements than one block of threads holds: a pass of their own, as reductions are."""
_MOST_JOINED = 8
"""Parts of a concatenation computed where they are used (torch/_inductor/config.py, `max_pointwise_cat_inputs`)."""

Described = tuple[tuple[int, ...], str, bool]
"""Shape, dtype, whether autocast stores it in half."""


class Fusable(Protocol):
    """What fusion needs to know of a call. `reads` and `writes` number the values of `inputs` and `outputs`."""

    op: str
    family: str
    phase: Phase
    attributes: tuple[tuple[str, Attribute], ...]
    fusable: bool
    casts_low: bool
    inputs: list[Described]
    outputs: list[Described]
    reads: list[int]
    writes: list[int]


@dataclass(frozen=True, slots=True)
class Fusion:
    """Under torch.compile: reads, as (call, value), that stay in the call's kernel; values that nobody writes; values
    that the kernel which makes them goes on with; values that are written in half, since every reader casts them."""

    read_inside: set[tuple[int, int]] = field(default_factory=set)
    unwritten: set[int] = field(default_factory=set)
    joined: set[int] = field(default_factory=set)
    narrowed: set[int] = field(default_factory=set)


def fuse(calls: Sequence[Fusable]) -> Fusion:
    """The operands that torch.compile keeps out of memory."""
    readers: dict[int, list[int]] = {}
    for index, call in enumerate(calls):
        for value in call.reads:
            readers.setdefault(value, []).append(index)
    in_place = frozenset(index for index, call in enumerate(calls) if _is_in_place(call, calls, readers))
    fusion, reach, kernels = Fusion(), _Reach(), _FusedKernels()
    makers: dict[int, int] = {}
    taken: set[int] = set()
    """Values that are written over, or have their place in a concatenation: one place is all that a value has."""
    for index, call in enumerate(calls):
        made_by = {value: makers[value] for value in call.reads if _in_one_graph(makers.get(value), call, calls)}
        free = {value: maker for value, maker in made_by.items() if value not in taken and calls[maker].fusable}
        if index in in_place:
            inside = {value for value, maker in free.items() if _is_whole(value, call, calls[maker])}
            reach.add(made_by, wanted=set())
            taken |= inside
        else:
            can_join = {value for value in free if _can_join(call, reader_count=len(readers[value]))}
            inside = reach.add(
                made_by,
                wanted={value for value in can_join if free[value] not in in_place and _goes_on(calls[free[value]])},
            )
            fusion.joined.update(inside)
        kernels.add(made_by[value] for value in inside)
        fusion.read_inside.update((index, value) for value in inside)
        taken.update(value for value in call.writes if value in makers)
        makers |= dict.fromkeys(call.writes, index)
    for value, maker in makers.items():
        if calls[maker].fusable:
            _settle(value, readers.get(value, []), calls, in_place, fusion)
    for value, maker in makers.items():
        if value not in taken and _is_recomputed(value, maker, readers.get(value, []), calls, fusion):
            _recompute(value, maker, calls[maker], readers[value], fusion)
    fusion.read_inside.update(kernels.read_again(calls, fusion.read_inside))
    return fusion


@dataclass(frozen=True, slots=True)
class _Reach:
    """Of every call so far, as bits: the calls it needs, and those it needs through another kernel than its own."""

    needed: list[int] = field(default_factory=list)
    apart: list[int] = field(default_factory=list)

    def add(self, made_by: Mapping[int, int], *, wanted: set[int]) -> set[int]:
        """Add a call that needs the values `made_by` earlier calls; those of `wanted` whose kernel it can be part of.

        It cannot where it also needs, through another kernel, the call that makes the value.
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
    """Of every call so far one of its kernel that came before it, or itself: the way to the first."""

    of: list[int] = field(default_factory=list)

    def add(self, makers: Iterable[int]) -> None:
        """Add a call to the kernels of `makers`, which are one from now on."""
        index = len(self.of)
        self.of.append(index)
        for maker in makers:
            first, second = sorted((self.first(maker), self.first(index)))
            self.of[second] = first

    def first(self, index: int) -> int:
        while self.of[index] != index:
            index = self.of[index]
        return index

    def read_again(self, calls: Sequence[Fusable], read_inside: Set[tuple[int, int]]) -> Iterator[tuple[int, int]]:
        """The reads, as (call, value), of what another call of the same kernel has read from memory."""
        known: set[tuple[int, int]] = set()
        for index, call in enumerate(calls):
            for value in set(call.reads) if call.fusable else ():
                if (index, value) in read_inside:
                    continue
                if (self.first(index), value) in known:
                    yield index, value
                known.add((self.first(index), value))


def _is_recomputed(value: int, maker: int, readers: Sequence[int], calls: Sequence[Fusable], fusion: Fusion) -> bool:
    """Whether every kernel that reads the value computes it again, from the one tensor as large that its maker reads.

    Inductor does so where that takes up to four reads (torch/_inductor/ir.py, `should_realize_on_reuse`): of more than
    one such tensor it is as many bytes as to write the value once.
    """
    call = calls[maker]
    if call.family != "pointwise" or len(call.outputs) != 1 or len(set(readers)) < 2:
        return False
    if not all(calls[index].fusable and _in_one_graph(maker, calls[index], calls) for index in readers):
        return False
    made = call.outputs[0]
    whole = [(source, read) for source, read in zip(call.reads, call.inputs, strict=True) if _as_large(read, made)]
    if len(whole) != 1:
        return False
    source, read = whole[0]
    return read[1:] == made[1:] and (maker, source) not in fusion.read_inside


def _recompute(value: int, maker: int, call: Fusable, readers: Sequence[int], fusion: Fusion) -> None:
    """Readers in other kernels read what it is computed of in its place; without any in its own it needs none."""
    fusion.unwritten.add(value)
    if not any((index, value) in fusion.read_inside for index in readers):
        fusion.joined.add(value)
        fusion.read_inside.update((maker, one) for one in call.reads)


def _settle(
    value: int, readers: Sequence[int], calls: Sequence[Fusable], in_place: frozenset[int], fusion: Fusion
) -> None:
    """Whether a value that a fused kernel makes is written, and how wide."""
    outside = [index for index in readers if index in in_place or (index, value) not in fusion.read_inside]
    if readers and not outside:
        fusion.unwritten.add(value)
    elif outside and all(not calls[index].fusable and calls[index].casts_low for index in outside):
        fusion.narrowed.add(value)


def _can_join(call: Fusable, *, reader_count: int) -> bool:
    """Whether it can run in the kernel that makes what it reads: not where others need that too, and it reduces it.

    Long reductions are split over blocks of threads, in loops that other kernels do not share.
    """
    if call.family == "reduction" and reader_count > 1:
        return False
    return call.fusable and call.family not in _READS_ANEW and not _is_two_passes(call)


def _goes_on(call: Fusable) -> bool:
    """Whether a kernel can go on with the results: a reduction's are known only when it has ended."""
    return call.family != "reduction"


def _in_one_graph(maker: int | None, call: Fusable, calls: Sequence[Fusable]) -> bool:
    return maker is not None and _GRAPH_OF[calls[maker].phase] == _GRAPH_OF[call.phase]


def _is_two_passes(call: Fusable) -> bool:
    of_many = call.family == "norm" and any(name in call.op for name in _NORMS_OF_MANY)
    return of_many and "no_training" not in call.op and ("training", False) not in call.attributes


def _is_in_place(call: Fusable, calls: Sequence[Fusable], readers: Mapping[int, Sequence[int]]) -> bool:
    """Whether the parts of a concatenation are written to their place: unless they are few, for readers that fuse."""
    if call.op != "aten.cat":
        return False
    users = [index for value in call.writes for index in readers.get(value, ())]
    return len(call.reads) > _MOST_JOINED or not users or not all(calls[index].fusable for index in users)


def _is_whole(value: int, call: Fusable, maker: Fusable) -> bool:
    """Whether the call reads all of the value, not a part that lies among others."""
    read, made = call.inputs[call.reads.index(value)], maker.outputs[maker.writes.index(value)]
    return _as_large(read, made)


def _as_large(one: Described, other: Described) -> bool:
    return prod(one[0]) == prod(other[0])
