"""What the user's file may replace in the interpreter that runs it, and how it is put back.

The answer is made in the same interpreter: a file that replaces `len` or `json.dumps` must not make it.
"""

import sys
from collections.abc import Mapping
from typing import Any

_is_callable = callable  # which may be replaced too


class StandardLibrary:
    """The functions and classes of Python's own modules as they are when they are remembered."""

    def __init__(self) -> None:
        self._modules: list[tuple[str, dict[str, Any], Mapping[str, Any]]] = []
        self._recursion_limit = sys.getrecursionlimit()

    def remember(self) -> None:
        """Keep what the modules that are imported so far hold."""
        self._modules = [
            (name, vars(module), dict(vars(module)))
            for name, module in tuple(sys.modules.items())
            if name.partition(".")[0] in sys.stdlib_module_names and name != "__main__"
        ]

    def restore(self) -> list[str]:
        """Put them back; give the names of those that were replaced."""
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
