"""Tells which calls of networks belong to a training step, by the loop in which the script makes them.

Before the forward pass, a script may run a teacher, an image encoder, a target network, or the model itself to label
data. Such a call belongs to the step if the innermost loop around the forward pass makes it, too. An evaluation before
the loop does not belong to it.
"""

import ast
import inspect
import linecache
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import lru_cache
from types import FrameType
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from advisor.ops.registry import IN_FULL
from advisor.workload.recorder import PAUSED, Recorder

MOST_CALLS = 64
"""Calls of networks that one step may make. A loop that samples an image makes more."""
_Loop = ast.For | ast.AsyncFor | ast.While


@dataclass(frozen=True, slots=True)
class Place:
    """A position in the running script.

    - `lines`: the current line of each function on the call stack, by the id of its frame, innermost first
    - `loop`: the innermost loop around one of these lines
    - `frame`: the id of the frame with that line
    """

    lines: Mapping[int, int]
    loop: _Loop | None
    frame: int

    @classmethod
    def now(cls) -> "Place":
        """Return the current position."""
        frames = list(_frames())
        around = ((loop, id(frame)) for frame in frames if (loop := _loop_around(frame)))
        return cls({id(frame): frame.f_lineno for frame in frames}, *next(around, (None, 0)))

    def recurs_with(self, later: "Place") -> bool:
        """Return whether each iteration of the innermost loop around `later` passes here; True if both are in none."""
        if later.loop is None:
            return self.loop is None
        line = self.lines.get(later.frame)
        return line is not None and _is_repeated(line, loop=later.loop, with_line=later.lines[later.frame])


def count_before_step(places: Sequence[Place], *, first: int) -> int:
    """Return how many calls are made before the step; `first` is the number of its first call with gradients.

    `places` are those of the calls. Calls before the step are outside of its loop, or in an earlier iteration: a later
    call is made at the same lines.
    """
    step = places[first]
    own = [
        index
        for index, place in enumerate(places[:first])
        if place.recurs_with(step) and all(_lines(place) != _lines(other) for other in places[index + 1 : first])
    ]
    return min(own, default=first)


def _lines(place: Place) -> tuple[int, ...]:
    return tuple(place.lines.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenCall:
    """A call without gradients, with the shapes of its tensors; `in_autocast`: it is inside the script's autocast."""

    network: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    in_autocast: bool
    place: Place

    def repeat(self, recorder: Recorder, *, under_autocast: bool) -> None:
        """Call the network on zeros of the same shapes, in fp32 if the step is in autocast and the call was not."""
        with recorder.within(PAUSED):
            args, kwargs = pytree.tree_map_only(_Shape, _Shape.zeros, (self.args, dict(self.kwargs)))
        is_full = under_autocast and not self.in_autocast
        is_full &= all(parameter.dtype == torch.float32 for parameter in self.network.parameters())
        with torch.no_grad(), recorder.within(IN_FULL) if is_full else nullcontext():
            self.network(*args, **kwargs)


@dataclass(frozen=True, slots=True)
class _Shape:
    size: tuple[int, ...]
    dtype: torch.dtype

    @classmethod
    def of(cls, tensor: torch.Tensor) -> "_Shape":
        return cls(tuple(tensor.shape), tensor.dtype)

    def zeros(self) -> torch.Tensor:
        return torch.zeros(self.size, dtype=self.dtype)


_REPEATABLE = (_Shape, str, int, float, complex, torch.dtype, torch.device, type(None))
"""Arguments that a call cannot change."""


class FrozenCalls:
    """The calls without gradients so far; the latest are kept."""

    def __init__(self) -> None:
        self._calls: list[FrozenCall] = []
        self._count = 0

    def note(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, in_autocast: bool) -> None:
        """Note a call that the script is about to make. One with a KV cache, which it changes, is only counted."""
        self._count += 1
        shapes_of_args, shapes_of_kwargs = shapes = pytree.tree_map_only(torch.Tensor, _Shape.of, (args, kwargs))
        if not all(isinstance(leaf, _REPEATABLE) for leaf in pytree.tree_leaves(shapes)):
            return
        call = FrozenCall(
            network=network,
            args=shapes_of_args,
            kwargs=shapes_of_kwargs,
            in_autocast=in_autocast,
            place=Place.now(),
        )
        self._calls = [*self._calls, call][-MOST_CALLS - 1 :]

    def of_step(self, trained: nn.Module) -> tuple[list[FrozenCall], int]:
        """Return the calls that each step makes before the current call of `trained`, and the number of other calls."""
        now = Place.now()
        calls = [
            call
            for call in self._calls
            if call.place.recurs_with(now) and (now.loop is not None or call.network is not trained)
        ]
        calls = calls if len(calls) <= MOST_CALLS else []
        return calls, self._count - len(calls)


def _frames() -> Iterator[FrameType]:
    """Yield the call stack of the script, innermost first, without the frames of this program and of module hooks."""
    own = f"{__name__.partition('.')[0]}."
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(own) and name != nn.Module.__module__:
            yield frame
        if name == "__main__" and frame.f_code.co_name == "<module>":
            return


def _loop_around(frame: FrameType) -> _Loop | None:
    """Return the innermost loop of the frame's function around its current line."""
    first_line = 0 if frame.f_code.co_name == "<module>" else frame.f_code.co_firstlineno
    found = [
        loop
        for loop in _loops(frame.f_code.co_filename)
        if first_line <= loop.lineno and _encloses(loop, frame.f_lineno)
    ]
    return max(found, key=lambda loop: loop.lineno, default=None)


@lru_cache
def _loops(path: str) -> tuple[_Loop, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))


def _is_repeated(line: int, *, loop: ast.AST, with_line: int) -> bool:
    """Return whether each iteration of `loop` that runs `with_line` also runs `line`.

    It does not if `line` is under an `if` that tests a remainder, or a variable that the loop sets.
    """
    parts = list(ast.walk(loop))
    set_names = {part.id for part in parts if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)}
    conditions = [
        part
        for node in parts
        if isinstance(node, ast.If) and _encloses(node, line) and not _encloses(node, with_line)
        for part in ast.walk(node.test)
    ]
    depends = any(isinstance(part, ast.Mod) or getattr(part, "id", None) in set_names for part in conditions)
    return _encloses(loop, line) and not depends


def _encloses(node: Any, line: int) -> bool:
    return bool(node.lineno <= line <= node.end_lineno)
