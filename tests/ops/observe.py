"""Runs a function: every operator call that torch dispatches comes out as a row."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._python_dispatch import TorchDispatchMode

from advisor.ops.registry import formula_of
from advisor.records.workload import Operand, Row


def rows_on_fake_tensors(run: Callable[[], Any]) -> list[Row]:
    """The rows of one call of `run`, which makes its own tensors and modules; building them is observed too."""
    fake = FakeTensorMode(allow_non_fake_inputs=True, shape_env=ShapeEnv())
    with fake, _Observer() as observer:
        run()
    return observer.rows


def rows_of_a_real_run(run: Callable[[], Any]) -> list[Row]:
    """The same with memory and arithmetic, for what depends on the data."""
    with _Observer() as observer:
        run()
    return observer.rows


class _Observer(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.rows: list[Row] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.rows.append(_row(func, args, kwargs, result))
        return result


def _row(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Row:
    op = func._schema.name.replace("::", ".")
    formula = formula_of(op)
    arguments = func._schema.arguments
    # As in any dispatch mode, arguments that have their default value are not passed.
    passed = {**dict(zip((argument.name for argument in arguments), args, strict=False)), **kwargs}
    written = [
        passed[argument.name]
        for argument in arguments
        if argument.name in passed and argument.alias_info is not None and argument.alias_info.is_write
    ]
    named = formula.attributes if formula is not None else ()
    return Row(
        op=op,
        family=formula.family if formula is not None else "",
        phase="forward",
        module="",
        inputs=_operands(passed.values()),
        outputs=_operands([result if result is not None else written]),
        attributes={name: _attribute(passed[name]) for name in named if name in passed},
        count=1,
    )


def _operands(values: Iterable[Any]) -> tuple[Operand, ...]:
    return tuple(
        Operand(shape=tuple(int(length) for length in _known_shape(tensor)), dtype=str(tensor.dtype).split(".")[-1])
        for tensor in _tensors(values)
    )


def _known_shape(tensor: torch.Tensor) -> list[int]:
    """A length that depends on the data counts as 7."""
    return [length if isinstance(length, int) or length.node.has_hint() else 7 for length in tensor.shape]


def _tensors(values: Iterable[Any]) -> Iterator[torch.Tensor]:
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from _tensors(value)


def _attribute(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else value
