"""Patches modules of libraries as soon as the user's code imports them, and always restores them."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from advisor.workload.patching import Patch, patched

PatchesOf = Callable[[ModuleType], Iterable[Patch]]
"""Returns the patches of an imported module."""


@contextmanager
def patched_on_import(patches_of: Mapping[str, PatchesOf]) -> Iterator[None]:
    """Apply the patches of each module, in all threads, when it is imported; at once if it is imported already."""
    with ExitStack() as stack:

        def apply(module: ModuleType) -> None:
            stack.enter_context(patched(patches_of[module.__name__](module), in_all_threads=True))

        for name in patches_of.keys() & sys.modules.keys():
            apply(sys.modules[name])
        finder = _Finder(patches_of.keys() - sys.modules.keys(), apply)
        sys.meta_path.insert(0, finder)
        stack.callback(sys.meta_path.remove, finder)
        yield


class _Finder(MetaPathFinder):
    """Calls `then` with each module of `names` that the finders after it find, once it is executed."""

    def __init__(self, names: Iterable[str], then: Callable[[ModuleType], None]) -> None:
        self._names = set(names)
        self._then = then

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        if fullname not in self._names:
            return None
        later = (one for one in sys.meta_path[sys.meta_path.index(self) + 1 :] if hasattr(one, "find_spec"))
        spec = next((found for finder in later if (found := finder.find_spec(fullname, path, target))), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_patch(module: ModuleType) -> None:
                execute(module)
                self._then(module)

            spec.loader.exec_module = execute_and_patch  # type: ignore[method-assign]
        return spec
