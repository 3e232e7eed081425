"""Functions of torch replaced for one thread and put back, whatever happens."""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

Patch = tuple[Any, str, Any]
"""Owner, name and what is to stand there."""


@contextmanager
def patched(patches: Iterable[Patch], *, in_all_threads: bool = False) -> Iterator[None]:
    """Have `patches` in force in this thread alone; other threads of the process go on with what was there.

    `in_all_threads`: in those that the code inside starts, too, where the process exists for it.
    """
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            original = getattr(owner, name)
            stack.callback(setattr, owner, name, original)
            setattr(owner, name, replacement if in_all_threads else in_this_thread(replacement, otherwise=original))
        yield


def in_this_thread(replacement: Any, *, otherwise: Callable[..., Any]) -> Any:
    """What does as `replacement` where this thread calls it, and as `otherwise` in every other one."""
    thread_id = threading.get_ident()
    if isinstance(replacement, type):

        def made(cls: type, *args: Any, **kwargs: Any) -> Any:
            return object.__new__(cls) if threading.get_ident() == thread_id else otherwise(*args, **kwargs)

        return type(replacement.__name__, (replacement,), {"__new__": made})

    def called(*args: Any, **kwargs: Any) -> Any:
        return (replacement if threading.get_ident() == thread_id else otherwise)(*args, **kwargs)

    return called
