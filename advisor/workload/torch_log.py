"""Silences torch's log while a step is traced."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_FAKE_TENSORS = logging.getLogger("torch._subclasses.fake_tensor")


@contextmanager
def fake_tensor_log_silenced() -> Iterator[None]:
    """Silence the fake tensor log, which would print errors with torch's traceback in addition to raising them."""
    level = _FAKE_TENSORS.level
    _FAKE_TENSORS.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        _FAKE_TENSORS.setLevel(level)
