"""The formulas of operators: operands and attributes in, FLOP and bytes out. No torch."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal

Number = Any
"""A float or a numpy array over batch sizes: every formula works on both."""
Autocast = Literal["low", "full", "widest"]
"""Under CUDA autocast the operator runs in half, in fp32, or in the widest type of its inputs.

As torch lists them (ATen/autocast_mode.h); a gradient follows its forward.
"""

IN_HALF = "in_half"
"""An attribute of calls that autocast leaves in half, whatever it lists: those inside an operator that it runs so."""
CHANNELS_LAST = "channels_last"
"""An attribute of calls whose images come so in a net that is otherwise in NCHW, as after norms of permuted ones."""
MADE_CONTIGUOUS = "made_contiguous"
"""An attribute: how many operands the kernel first copies into the order of their dimensions."""

ITEMSIZE_BYTES: Mapping[str, float] = {
    "float64": 8, "float32": 4, "float16": 2, "bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "complex128": 16, "complex64": 8, "complex32": 4,
    "int64": 8, "int32": 4, "int16": 2, "int8": 1, "uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8, "bool": 1,
    "qint8": 1, "quint8": 1, "qint32": 4,
    "int4": 0.5 + 2.5 / 128,  # as AWQ and GPTQ store weights: with an fp16 scale and a zero of 4 bits for each 128
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """An operand at a given batch size and precision."""

    shape: tuple[Number, ...]
    dtype: str

    @property
    def numel(self) -> Number:
        """Elements, counted as the shape says."""
        return math.prod(self.shape)

    @property
    def itemsize_bytes(self) -> float:
        """Bytes of one element."""
        return ITEMSIZE_BYTES[self.dtype]

    @property
    def size_bytes(self) -> Number:
        """Bytes of all elements."""
        return self.numel * self.itemsize_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One operator call. `inputs` and `outputs` are the tensors in the order of the operator's schema."""

    op: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any]

    @property
    def read_bytes(self) -> Number:
        """Bytes of all inputs."""
        return sum(tensor.size_bytes for tensor in self.inputs)

    @property
    def write_bytes(self) -> Number:
        """Bytes of all outputs."""
        return sum(tensor.size_bytes for tensor in self.outputs)

    @property
    def output_numel(self) -> Number:
        """Elements of all outputs."""
        return sum(tensor.numel for tensor in self.outputs)

    def streamed(self, *, flops: Number) -> "Cost":
        """The cost of reading every input once and writing every output once."""
        return Cost(flops=flops, read_bytes=self.read_bytes, write_bytes=self.write_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """FLOP (a multiply-add is two) and bytes that must move between the operator and memory.

    `revisited_bytes` of those it reads come from places that it has read before, `revisited_set_bytes` in all.
    """

    flops: Number
    read_bytes: Number
    write_bytes: Number
    revisited_bytes: Number = 0.0
    revisited_set_bytes: Number = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """How one operator is counted. `attributes` names the schema's non-tensor arguments that `cost` needs.

    `fusable`: torch.compile merges it with its neighbours (pointwise, norms, softmax, reductions).
    """

    op: str
    family: str
    autocast: Autocast
    attributes: tuple[str, ...]
    fusable: bool
    cost: Callable[[Call], Cost]


_FORMULAS: dict[str, Formula] = {}


def aten(names: str) -> tuple[str, ...]:
    """The full names of torch's own operators, given apart by spaces."""
    return tuple(f"aten.{name}" for name in names.split())


def formula(
    *ops: str, family: str, autocast: Autocast = "widest", attributes: tuple[str, ...] = (), fusable: bool = False
) -> Callable[[Callable[[Call], Cost]], Callable[[Call], Cost]]:
    """Register the decorated function as the cost of every operator in `ops`."""

    def register(cost: Callable[[Call], Cost]) -> Callable[[Call], Cost]:
        for op in ops:
            if op in _FORMULAS:
                raise ValueError(f"operator {op} has two formulas: {_FORMULAS[op].cost} and {cost}")
            _FORMULAS[op] = Formula(
                op=op, family=family, autocast=autocast, attributes=attributes, fusable=fusable, cost=cost
            )
        return cost

    return register


def formula_of(op: str) -> Formula | None:
    """The formula of `op`, or None: then the caller lists it as unknown, never as zero.

    An in-place operator ("aten.add_") is counted as the one that it is the in-place form of.
    """
    _load_families()
    return _FORMULAS.get(op) or _FORMULAS.get(op.removesuffix("_"))


def counted_as(op: str) -> str:
    """The operator whose formula counts `op`: "aten.add" for "aten.add_"; itself where it has none."""
    found = formula_of(op)
    return op if found is None else found.op


def autocast_of(op: str, attributes: Mapping[str, Any]) -> Autocast:
    """What autocast does with a call: its list, for an operator that it does not know what the widest input says."""
    found = formula_of(op)
    policy: Autocast = found.autocast if found is not None else "widest"
    return "low" if policy == "full" and attributes.get(IN_HALF) else policy


def formulas() -> Iterator[Formula]:
    """Every formula, in order of registration."""
    _load_families()
    return iter(_FORMULAS.values())


_loaded = False


def _load_families() -> None:
    global _loaded
    if not _loaded:
        package = import_module("advisor.ops")
        for module in iter_modules(package.__path__):
            import_module(f"advisor.ops.{module.name}")
        _loaded = True
