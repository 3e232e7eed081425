"""Finds the calls that a training script makes for each step before it calls the network that it trains.

A teacher, an image encoder or a target network often runs first, without gradients. Such a call belongs to the step if
it is made inside the innermost loop around the call of the trained network. An evaluation before the loop does not.
"""

import ast
import inspect
import linecache
import traceback
from collections.abc import Iterator, Mapping
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

_MOST_CALLS = 64
"""More calls are no part of a training step, but, for example, an image sampled in hundreds of steps."""


@dataclass(frozen=True, slots=True)
class Place:
    """The current lines of the functions that run, by the id of their frame, and whether one of them is in a loop."""

    lines: Mapping[int, int]
    in_loop: bool

    @classmethod
    def now(cls) -> "Place":
        """Return the place that the script has reached."""
        frames = list(_frames())
        return cls({id(frame): frame.f_lineno for frame in frames}, any(map(_loop_around, frames)))

    def is_passed_each_time(self) -> bool:
        """Return whether each turn of the innermost loop around the line that runs now has come by here before.

        Without a loop, whether this place is in none either.
        """
        around = ((frame, loop) for frame in _frames() if (loop := _loop_around(frame)))
        frame, loop = next(around, (None, None))
        if frame is None or loop is None:
            return not self.in_loop
        line = self.lines.get(id(frame))
        return line is not None and _is_repeated(line, loop=loop, with_line=frame.f_lineno)


@dataclass(frozen=True, slots=True, kw_only=True)
class FrozenCall:
    """A call whose tensors are replaced by their shapes; `in_autocast`: made inside the script's autocast."""

    network: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    in_autocast: bool
    place: Place

    def repeat(self, recorder: Recorder, *, under_autocast: bool) -> None:
        """Call the network on zeros of the same shapes; in fp32 if it is made outside of the autocast of the step."""
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


class FrozenCalls:
    """The latest calls of networks without gradients."""

    def __init__(self) -> None:
        self._calls: list[FrozenCall] = []

    def note(self, network: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], *, in_autocast: bool) -> None:
        """Note a call that the script is about to make."""
        shapes_of_args, shapes_of_kwargs = pytree.tree_map_only(torch.Tensor, _Shape.of, (args, kwargs))
        call = FrozenCall(
            network=network,
            args=shapes_of_args,
            kwargs=shapes_of_kwargs,
            in_autocast=in_autocast,
            place=Place.now(),
        )
        self._calls = [*self._calls, call][-_MOST_CALLS - 1 :]

    def of_step(self, trained: nn.Module) -> list[FrozenCall]:
        """Return the calls of other networks than `trained`, which is being called, that its step makes each time."""
        own = {id(part) for part in trained.modules()}
        calls = [
            call
            for call in self._calls
            if id(call.network) not in own
            and all(part is not trained for part in call.network.modules())
            and call.place.is_passed_each_time()
        ]
        return calls if len(calls) <= _MOST_CALLS else []


def _frames() -> Iterator[FrameType]:
    """Yield the running frames, from the innermost to the script's own, without those of this program and its hooks."""
    own = f"{__name__.partition('.')[0]}."
    for frame, _ in traceback.walk_stack(inspect.currentframe()):
        name = frame.f_globals.get("__name__", "")
        if not name.startswith(own) and name != nn.Module.__module__:
            yield frame
        if name == "__main__" and frame.f_code.co_name == "<module>":
            return


def _loop_around(frame: FrameType) -> ast.For | ast.AsyncFor | ast.While | None:
    """Return the innermost loop of the frame's function around its current line."""
    first_line = 0 if frame.f_code.co_name == "<module>" else frame.f_code.co_firstlineno
    found = [
        loop
        for loop in _loops(frame.f_code.co_filename)
        if first_line <= loop.lineno and _encloses(loop, frame.f_lineno)
    ]
    return max(found, key=lambda loop: loop.lineno, default=None)


@lru_cache
def _loops(path: str) -> tuple[ast.For | ast.AsyncFor | ast.While, ...]:
    try:
        tree = ast.parse("".join(linecache.getlines(path)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    return tuple(node for node in ast.walk(tree) if isinstance(node, (ast.For, ast.AsyncFor, ast.While)))


def _is_repeated(line: int, *, loop: ast.AST, with_line: int) -> bool:
    """Return whether each turn of `loop` that runs `with_line` runs `line`, unlike one under an `if` for every n-th."""
    conditions = (
        node.test
        for node in ast.walk(loop)
        if isinstance(node, ast.If) and _encloses(node, line) and not _encloses(node, with_line)
    )
    is_nth = any(isinstance(part, ast.Mod) for condition in conditions for part in ast.walk(condition))
    return _encloses(loop, line) and not is_nth


def _encloses(node: Any, line: int) -> bool:
    return bool(node.lineno <= line <= node.end_lineno)
