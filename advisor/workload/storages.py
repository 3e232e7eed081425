"""Live memory over a step, from the lifetimes of tensor storages."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch

from advisor.workload.allocations import Event

Category = Literal["parameters", "buffers", "gradients", "optimizer_state", "activations", "temporaries"]
Storing = Literal["low", "full", "other"]
"""float32 that autocast stores in half; other float32; every other dtype."""

CATEGORIES: tuple[Category, ...] = (
    "parameters",
    "buffers",
    "gradients",
    "optimizer_state",
    "activations",
    "temporaries",
)
STORINGS: tuple[Storing, ...] = ("low", "full", "other")
CELL = {
    (category, storing): row * len(STORINGS) + column
    for row, category in enumerate(CATEGORIES)
    for column, storing in enumerate(STORINGS)
}
"""Where a (category, storing) pair stands in a sample of live bytes."""

SizeOf = Callable[[int | torch.SymInt], int]


class Stored:
    """One storage: a serial number in order of first sight, whether autocast keeps it in half, and its bytes."""

    __slots__ = ("cell", "low", "reference", "serial", "size_bytes", "value")

    def __init__(self, *, serial: int, low: bool) -> None:
        self.serial = serial
        self.low = low
        self.value = serial  # changes with every write in place
        self.cell = -1
        self.size_bytes = 0
        self.reference: weakref.ref[torch.UntypedStorage] | None = None


class Storages:
    """The storages seen in a step. `live_bytes` is by (category, storing), see `CELL`; `events` say when each came and
    went, and `scratch` which of them are no tensor's."""

    def __init__(self, *, size_of: SizeOf) -> None:
        self.live_bytes = [0] * len(CELL)
        self.events: list[Event] = []
        self.scratch: set[int] = set()
        self._kept_with: dict[int, int] = {}
        self._size_of = size_of
        self._by_address: dict[int, Stored] = {}
        self._serials = 0

    def of(self, tensor: torch.Tensor, category: Category) -> Stored:
        """The storage of `tensor`; counted as live in `category` when it is seen for the first time."""
        storage = tensor.untyped_storage()
        address = storage._cdata
        stored = self._by_address.get(address)
        if stored is None:
            stored = Stored(serial=self.new_serial(), low=False)
            stored.size_bytes = self._size_of(storage.nbytes())
            stored.reference = weakref.ref(storage, lambda _, address=address: self._forget(address))  # type: ignore[misc]
            self._by_address[address] = stored
            self._enter(stored, category, tensor.dtype)
            self.events.append((stored.serial, stored.size_bytes))
        return stored

    @property
    def live(self) -> Iterator[Stored]:
        """Those that were not freed yet."""
        return iter(self._by_address.values())

    def hold(self, sizes_bytes: Sequence[int]) -> None:
        """Note blocks that one call holds at once, and nothing after it."""
        serials = [self._new_scratch(size_bytes) for size_bytes in sizes_bytes]
        self.events += ((serial, None) for serial in serials)

    def keep_with(self, stored: Stored, size_bytes: int) -> None:
        """Note a block that lives as long as `stored`."""
        self._kept_with[stored.serial] = self._new_scratch(size_bytes)

    def _new_scratch(self, size_bytes: int) -> int:
        serial = self.new_serial()
        self.scratch.add(serial)
        self.events.append((serial, size_bytes))
        return serial

    def new_serial(self) -> int:
        """The next number for a storage or for a value written in place."""
        self._serials += 1
        return self._serials

    def mark_low(self, stored: Stored, *, dtype: torch.dtype) -> None:
        """Autocast keeps this storage in half."""
        if dtype is torch.float32 and not stored.low:
            self._leave(stored)
            stored.low = True
            self._enter(stored, CATEGORIES[stored.cell // len(STORINGS)], dtype)

    def move(self, tensor: torch.Tensor, category: Category) -> None:
        """Count the storage of `tensor` in another category, where autocast keeps fp32."""
        stored = self.of(tensor, category)
        self._leave(stored)
        stored.low = False
        self._enter(stored, category, tensor.dtype)

    def leave_out(self, tensor: torch.Tensor) -> int:
        """Count the storage of `tensor` no more; the bytes that it was counted with."""
        stored = self.of(tensor, "temporaries")
        counted_bytes = stored.size_bytes
        self._leave(stored)
        stored.size_bytes = 0
        self.events.append((stored.serial, None))
        return counted_bytes

    def _enter(self, stored: Stored, category: Category, dtype: torch.dtype) -> None:
        storing: Storing = "other" if dtype is not torch.float32 else "low" if stored.low else "full"
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
