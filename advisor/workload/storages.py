"""Tracks live memory over a step by the lifetimes of storages, and what each repeated block holds for backward."""

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

import torch
from torch import nn

from advisor.workload.allocators import Event

Category = Literal["parameters", "buffers", "gradients", "optimizer_state", "activations", "temporaries"]
Storing = Literal["low", "full", "double", "other"]
"""float32 that autocast stores in half; other float32; float64; every other dtype."""

CATEGORIES: tuple[Category, ...] = get_args(Category)
STORINGS: tuple[Storing, ...] = get_args(Storing)
CELL = {
    (category, storing): row * len(STORINGS) + column
    for row, category in enumerate(CATEGORIES)
    for column, storing in enumerate(STORINGS)
}
"""Index of a (category, storing) pair in a sample of live bytes."""
_STORED_AS: Mapping[torch.dtype, Storing] = {torch.float32: "full", torch.float64: "double"}


@dataclass(slots=True, eq=False)
class Stored:
    """A tensor storage, numbered in order of appearance."""

    serial: int
    value: int
    """Changes with every write in place."""
    size_bytes: int
    reference: "weakref.ref[torch.UntypedStorage]"
    low: bool = False
    """Autocast keeps it in half on GPUs."""
    low_on_cpus: bool = False
    """Autocast keeps it in half on CPUs; `live_bytes` counts storages as on GPUs."""
    cell: int = -1


class Storages:
    """The storages seen in a step.

    `live_bytes` is indexed by `CELL`, `events` lists allocations and frees, and `scratch` contains the serial numbers
    of blocks that belong to no tensor.
    """

    def __init__(self, *, size_of: Callable[[int | torch.SymInt], int]) -> None:
        self.live_bytes = [0] * len(CELL)
        self.events: list[Event] = []
        self.scratch: set[int] = set()
        self._kept_with: dict[int, int] = {}
        self._size_of = size_of
        self._by_address: dict[int, Stored] = {}
        self._serials = 0

    def of(self, tensor: torch.Tensor, category: Category) -> Stored:
        """Return the storage of `tensor`; a new one is counted as live in `category`."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        stored = self._by_address.get(address)
        if stored is None:
            serial = self.new_serial()
            reference = weakref.ref(storage, lambda _, address=address: self._forget(address))  # type: ignore[misc]
            stored = Stored(serial, serial, self._size_of(storage.nbytes()), reference)
            self._by_address[address] = stored
            self._enter(stored, category, tensor.dtype)
            self.events.append((stored.serial, stored.size_bytes))
        return stored

    @property
    def live(self) -> Iterator[Stored]:
        """The storages that are not freed yet."""
        return iter(self._by_address.values())

    def hold(self, sizes_bytes: Sequence[int]) -> None:
        """Record blocks that one call holds at the same time and frees when it ends."""
        serials = [self._new_scratch(size_bytes) for size_bytes in sizes_bytes]
        self.events += ((serial, None) for serial in serials)

    def keep_with(self, stored: Stored, size_bytes: int) -> None:
        """Record a block that lives as long as `stored`."""
        self._kept_with[stored.serial] = self._new_scratch(size_bytes)

    def _new_scratch(self, size_bytes: int) -> int:
        serial = self.new_serial()
        self.scratch.add(serial)
        self.events.append((serial, size_bytes))
        return serial

    def new_serial(self) -> int:
        """Return the next number for a storage or for a value written in place."""
        self._serials += 1
        return self._serials

    def mark_low(self, stored: Stored, *, dtype: torch.dtype) -> None:
        """Mark a float32 storage as kept in half under autocast."""
        if dtype is torch.float32 and not stored.low:
            self._leave(stored)
            stored.low = True
            self._enter(stored, CATEGORIES[stored.cell // len(STORINGS)], dtype)

    def move(self, tensor: torch.Tensor, category: Category) -> None:
        """Count the storage of `tensor` in another category, and as kept in fp32 under autocast."""
        stored = self.of(tensor, category)
        self._leave(stored)
        stored.low = stored.low_on_cpus = False
        self._enter(stored, category, tensor.dtype)

    def leave_out(self, tensor: torch.Tensor) -> int:
        """Stop counting the storage of `tensor`; return the bytes that it was counted with."""
        stored = self.of(tensor, "temporaries")
        counted_bytes = stored.size_bytes
        self._leave(stored)
        stored.size_bytes = 0
        self.events.append((stored.serial, None))
        return counted_bytes

    def _enter(self, stored: Stored, category: Category, dtype: torch.dtype) -> None:
        storing: Storing = "low" if stored.low else _STORED_AS.get(dtype, "other")
        stored.cell = CELL[category, storing]
        self.live_bytes[stored.cell] += stored.size_bytes

    def _leave(self, stored: Stored) -> None:
        self.live_bytes[stored.cell] -= stored.size_bytes

    def _forget(self, address: int) -> None:
        stored = self._by_address.pop(address)
        self._leave(stored)
        self.events.append((stored.serial, None))
        if stored.serial in self._kept_with:
            self.events.append((self._kept_with.pop(stored.serial), None))


_ACTIVATIONS = CATEGORIES.index("activations")


@dataclass(slots=True)
class BlockBytes:
    """The bytes that one block holds, for each of `STORINGS`."""

    path: str
    parameter_bytes: int
    runs: bool = False
    kept: list[int] = field(default_factory=lambda: [0] * len(STORINGS))
    """Activations held when backward begins."""
    results: list[int] = field(default_factory=lambda: [0] * len(STORINGS))
    """The block's output, which checkpointing holds instead."""


class BlockMemory:
    """Follows which blocks are running; a storage belongs to all blocks that were running when it was allocated."""

    def __init__(self, model: nn.Module, *, paths: Mapping[int, str]) -> None:
        self._blocks = {
            id(module): BlockBytes(path, sum(each.numel() * each.element_size() for each in module.parameters()))
            for module in model.modules()
            if (path := paths[id(module)]).endswith("*")
        }
        self._running: list[int] = []
        self._makers: dict[int, tuple[int, ...]] = {}
        self._results: dict[int, tuple[Stored, ...]] = {}

    def enter(self, module: nn.Module) -> None:
        """Note that a module begins to run."""
        block = self._blocks.get(id(module))
        if block is not None:
            block.runs = True
            self._running.append(id(module))

    def leave(self, module: nn.Module, results: Iterable[Stored]) -> None:
        """Note that a block ends and returns `results`."""
        self._running.remove(id(module))
        self._results[id(module)] = tuple({stored.serial: stored for stored in results}.values())

    def is_block(self, module: nn.Module) -> bool:
        """Return True if the module is one of a list of repeated blocks."""
        return id(module) in self._blocks

    def made(self, stored: Stored) -> None:
        """Note that a storage is written; if it is new, it belongs to the running blocks."""
        if self._running:
            self._makers.setdefault(stored.serial, tuple(self._running))

    def hold(self, live: Iterable[Stored]) -> None:
        """Count the storages that are live when backward begins, and the blocks' results, even if they are freed."""
        for stored in live:
            category, storing = divmod(stored.cell, len(STORINGS))
            if category != _ACTIVATIONS:
                continue
            for identity in self._makers.get(stored.serial, ()):
                block = self._blocks[identity]
                block.kept[storing] += stored.size_bytes
        for identity, results in self._results.items():
            for stored in results:
                if identity in self._makers.get(stored.serial, ()):
                    self._blocks[identity].results[stored.cell % len(STORINGS)] += stored.size_bytes

    def by_path(self) -> dict[str, list[BlockBytes]]:
        """Return the blocks that ran, in the order of the model, grouped by path."""
        grouped: dict[str, list[BlockBytes]] = {}
        for block in self._blocks.values():
            if block.runs:
                grouped.setdefault(block.path, []).append(block)
        return grouped
