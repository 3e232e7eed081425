"""Restores Python's own functions after the user's file has replaced some of them.

The answer is written by the same interpreter, so a file that replaces `len` or `json.dumps` must not affect it.
"""

import sys
from collections.abc import Mapping
from typing import Any

_is_callable = callable  # saved because the file may replace it too


class StandardLibrary:
    """Remembers the functions and classes of the standard library, and restores them."""

    def __init__(self) -> None:
        self._modules: list[tuple[str, dict[str, Any], Mapping[str, Any]]] = []
        self._recursion_limit = sys.getrecursionlimit()

    def remember(self) -> None:
        """Save the contents of all standard library modules imported so far."""
        self._modules = [
            (name, vars(module), dict(vars(module)))
            for name, module in tuple(sys.modules.items())
            if name.partition(".")[0] in sys.stdlib_module_names and name != "__main__"
        ]

    def restore(self) -> list[str]:
        """Restore replaced functions and classes; return their names."""
        replaced = []
        for module, now, before in self._modules:
            for name, value in before.items():
                if now.get(name) is not value and _is_callable(value):
                    now[name] = value
                    replaced.append(f"{module}.{name}")
        sys.settrace(None)
        sys.setprofile(None)
        sys.setrecursionlimit(self._recursion_limit)
        return replaced
