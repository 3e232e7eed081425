"""torch's own log, quiet while a step is traced."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_FAKE_TENSORS = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def fake_tensor_log_silenced() -> Iterator[None]:
    """What goes wrong on fake tensors comes as an exception; the log would print it with torch's traceback as well."""
    level = _FAKE_TENSORS.level
    _FAKE_TENSORS.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _FAKE_TENSORS.setLevel(level)
