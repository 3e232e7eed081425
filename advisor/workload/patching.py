"""Replaces functions of torch for one thread and changes settings, and always restores them."""

import inspect
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

Patch = tuple[Any, str, Any]
"""Owner, attribute name and replacement."""


@contextmanager
def patched(patches: Iterable[Patch], *, in_all_threads: bool = False) -> Iterator[None]:
    """Apply `patches` in this thread; other threads keep the originals unless `in_all_threads` is set.

    Set `in_all_threads` if the process exists only for the code inside, which may start threads.
    """
    with ExitStack() as stack:
        for owner, name, replacement in patches:
            original, own = getattr(owner, name), vars(owner)
            if name in own:
                stack.callback(setattr, owner, name, own[name])
            else:
                stack.callback(delattr, owner, name)
            setattr(owner, name, replacement if in_all_threads else in_this_thread(replacement, otherwise=original))
        yield


@contextmanager
def switched(read: Callable[[], Any], write: Callable[[Any], object], value: Any) -> Iterator[None]:
    """Set a setting of a library to `value` inside the `with`, and back to what `read` returned before."""
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


@contextmanager
def with_variables(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables inside the `with`, unless they are set already."""
    added = [name for name in values if name not in os.environ]
    os.environ.update({name: values[name] for name in added})
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


def in_this_thread(replacement: Any, *, otherwise: Callable[..., Any] = lambda *_, **__: None) -> Any:
    """Return a callable that acts as `replacement` in this thread and as `otherwise` in every other thread."""
    thread_id = threading.get_ident()
    if isinstance(replacement, type):

        def made(cls: type, *args: Any, **kwargs: Any) -> Any:
            return object.__new__(cls) if threading.get_ident() == thread_id else otherwise(*args, **kwargs)

        return type(replacement.__name__, (replacement,), {"__new__": made})

    def called(*args: Any, **kwargs: Any) -> Any:
        return (replacement if threading.get_ident() == thread_id else otherwise)(*args, **kwargs)

    return called


def caller(*, skipping: Iterable[str]) -> str:
    """Return the file whose code is running, apart from this one and those to skip; "" if there is none."""
    own = (__file__, *skipping)
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename in own:
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename
