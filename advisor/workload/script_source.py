"""Reads a script and the modules beside it, without running them: what it imports, and whether it trains."""

import ast
import sys
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path

from advisor.files.regular_file import read_regular_file

_TRAINS = frozenset({"backward", "optim"})
"""Names that only code for training uses."""
TORCHRUN_VARIABLES: Mapping[str, str] = {
    "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "1",
    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500",
}  # fmt: skip
"""The variables that torchrun sets for a single process (PyTorch docs, "torchrun")."""
_TRAINER = "Trainer"
"""The end of the class names with which libraries train: `Trainer`, `SFTTrainer`."""


class ScriptSource:
    """The syntax of a script and of the modules of its own folder that it imports."""

    def __init__(self, path: Path) -> None:
        self._folder = path.resolve().parent
        self._trees: dict[Path, ast.Module] = {}
        self._read(path.resolve())

    @cached_property
    def imports(self) -> tuple[str, ...]:
        """Top-level modules that the code imports and that are neither its own nor Python's, sorted."""
        found = {name.partition(".")[0] for tree in self._trees.values() for name in _imported(tree)}
        own = {name for name in found if self._files_of(name) or (self._folder / name).is_dir()}
        return tuple(sorted(found - own - sys.stdlib_module_names))

    @cached_property
    def trains(self) -> bool:
        """True if the code computes gradients, makes an optimizer or uses a library's trainer."""
        return bool(self.names & _TRAINS) or any(name.endswith(_TRAINER) for name in self.names)

    @cached_property
    def needs_torchrun(self) -> bool:
        """True if the code reads a variable that torchrun sets, and has no default for it."""
        return any(
            isinstance(node, ast.Subscript)
            and isinstance(node.ctx, ast.Load)
            and isinstance(node.slice, ast.Constant)
            and node.slice.value in TORCHRUN_VARIABLES
            for tree in self._trees.values()
            for node in ast.walk(tree)
        )

    @cached_property
    def names(self) -> frozenset[str]:
        """All names of variables, attributes and imports in the code."""
        return frozenset(name for tree in self._trees.values() for name in _names(tree))

    def _read(self, path: Path) -> None:
        if path in self._trees:
            return
        try:
            tree = ast.parse(read_regular_file(path))
        except (OSError, ValueError, SyntaxError, RecursionError):  # running the script says what is wrong with it
            return
        self._trees[path] = tree
        for name in _imported(tree):
            for file in self._files_of(name):
                self._read(file)

    def _files_of(self, module: str) -> list[Path]:
        """Return the files of a module beside the script, with those of the packages around it."""
        parts = module.split(".")
        paths = [self._folder.joinpath(*parts[: count + 1]) for count in range(len(parts))]
        choices = [file for path in paths for file in (path.with_name(f"{path.name}.py"), path / "__init__.py")]
        return [file for file in choices if file.is_file()]


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield from node.name.split(".")
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
