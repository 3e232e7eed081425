"""Measures how much memory each repeated block of a model holds for backward."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from torch import nn

from advisor.workload.storages import CATEGORIES, STORINGS, Stored

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
    """The part of `kept` that is the block's output."""


class BlockMemory:
    """Follows which blocks are running; a storage belongs to all blocks that were running when it was allocated."""

    def __init__(self, model: nn.Module, *, paths: Mapping[int, str]) -> None:
        self._blocks = {
            id(module): BlockBytes(path, sum(each.numel() * each.element_size() for each in module.parameters()))
            for module in model.modules()
            if (path := paths[id(module)]).rpartition(".")[2] == "*"
        }
        self._running: list[int] = []
        self._makers: dict[int, tuple[int, ...]] = {}
        self._results: dict[int, set[int]] = {}

    def enter(self, module: nn.Module) -> None:
        """Note that a module begins to run."""
        block = self._blocks.get(id(module))
        if block is not None:
            block.runs = True
            self._running.append(id(module))

    def leave(self, module: nn.Module, results: Iterable[Stored]) -> None:
        """Note that a module ends and returns `results`."""
        if id(module) in self._blocks:
            self._running.remove(id(module))
            self._results[id(module)] = {stored.serial for stored in results}

    def is_block(self, module: nn.Module) -> bool:
        """Return True if the module is one of a list of repeated blocks."""
        return id(module) in self._blocks

    def made(self, stored: Stored) -> None:
        """Note that a storage is written; if it is new, it belongs to the running blocks."""
        if self._running:
            self._makers.setdefault(stored.serial, tuple(self._running))

    def hold(self, live: Iterable[Stored]) -> None:
        """Count the storages that are live when backward begins."""
        for stored in live:
            category, storing = divmod(stored.cell, len(STORINGS))
            if category != _ACTIVATIONS:
                continue
            for identity in self._makers.get(stored.serial, ()):
                block = self._blocks[identity]
                block.kept[storing] += stored.size_bytes
                if stored.serial in self._results.get(identity, ()):
                    block.results[storing] += stored.size_bytes

    def by_path(self) -> dict[str, list[BlockBytes]]:
        """Return the blocks that ran, in the order of the model, grouped by path."""
        grouped: dict[str, list[BlockBytes]] = {}
        for block in self._blocks.values():
            if block.runs:
                grouped.setdefault(block.path, []).append(block)
        return grouped
