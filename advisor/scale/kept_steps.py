"""Keeps the predicted steps of a model for further questions about it."""

from collections.abc import Callable
from typing import Any, TypeVar

_Steps = TypeVar("_Steps")


class KeptSteps:
    """The steps of one model, with the same efficiencies and corrections, which rankings under other limits share."""

    def __init__(self) -> None:
        self._found: list[tuple[tuple[object, ...], Any]] = []

    def get(self, key: tuple[object, ...], predict: Callable[[], _Steps]) -> _Steps:
        """Return the steps with this key; predict them at the first call. Keys have devices, which have no hash."""
        for known, found in self._found:
            if known == key:
                steps: _Steps = found
                return steps
        steps = predict()
        self._found.append((key, steps))
        return steps
