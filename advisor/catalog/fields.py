"""Reads the values of a profile file into records in base units, with errors that name the line.

A key may use any unit of `_UNITS`: `memory_gib: 16` and `memory_bytes: 17179869184` both set `memory_bytes`.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from decimal import Decimal
from functools import cache
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from advisor.catalog.ranges import range_of
from advisor.catalog.strict_yaml import Node
from advisor.errors import did_you_mean

RecordT = TypeVar("RecordT")

_UNITS = (
    ("_gb_per_s", "_bytes_per_s", 10**9),
    ("_tflops", "_flops_per_s", 10**12),
    ("_gib", "_bytes", 2**30),
    ("_mib", "_bytes", 2**20),
    ("_ghz", "_hz", 10**9),
    ("_mhz", "_hz", 10**6),
)


def read_record(record: type[RecordT], node: Node, *, zero_allowed: Collection[str] = ()) -> RecordT:
    """Build `record` from a mapping; raise `ProfileError` for an unknown, missing, repeated or wrong value.

    Numbers must lie in the range of their field; those in `zero_allowed`, here or in a record within, may also be 0.
    """
    kinds = _kinds(record)  # type: ignore[arg-type]  # mypy: a type variable is not hashable
    found: dict[str, Any] = {}
    for entry in node.entries():
        name, factor = base_unit(entry.key)
        if name not in kinds:
            known = [spelling for field_name in kinds for spelling in _spelled(field_name)]
            raise entry.error("unknown key", hint=did_you_mean(entry.key, known))
        if name in found:
            raise entry.error(f"{name} is given twice, in two units", hint="remove one of them")
        found[name] = _read_value(entry, kind=kinds[name], quantity=name, factor=factor, zero_allowed=zero_allowed)
    for field in fields(record):  # type: ignore[arg-type]
        if field.name not in found and field.default is MISSING and field.default_factory is MISSING:
            raise node.error(f"{field.name} is missing", hint=f"add one of: {', '.join(_spelled(field.name))}")
    return record(**found)


def base_unit(key: str) -> tuple[str, int]:
    """Return the key in base units and the factor of its value: `memory_gib` -> (`memory_bytes`, 2^30)."""
    for unit, base, factor in _UNITS:
        if f"{unit}_" in f"{key}_":
            return f"{key}_".replace(f"{unit}_", f"{base}_")[:-1], factor
    return key, 1


def unit_in_file(name: str, amount: float) -> tuple[str, int]:
    """Return the key of a field in the largest unit that people use with at least 1 of it, and the unit's factor."""
    keys = [(key, base_unit(key)[1]) for key in _spelled(name)]
    return next((one for one in keys if amount >= one[1]), keys[-1])


def read_number(node: Node, *, quantity: str = "", factor: int = 1, zero_allowed: bool = False) -> float:
    """Return the number times `factor`; raise `ProfileError` outside the range of the quantity (or 0 if allowed).

    The quantity is the key, unless another one is named.
    """
    value = node.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise node.error(f"expected a number, found {value!r}", hint="for example 24, 0.526 or 989.4e12")
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero_allowed):
        least = "0 or more" if zero_allowed else "more than 0"
        raise node.error(f"expected a number that is {least}, found {value}", hint="correct it or remove it")
    within = range_of(quantity or node.key)
    # Multiply in decimal, so that 8.14 TFLOPS is 8.14e12 and not 8140000000000.001.
    number = value if factor == 1 else float(Decimal(str(value)) * factor)
    if value and not within.least <= number <= within.most:
        ends = f"{within.least / factor:g} to {within.most / factor:g}"
        hint = f"correct the number or its unit: {within.reason}"
        raise node.error(f"found {value:g}, which is out of range: {ends}", hint=hint)
    return number


def read_count(node: Node, *, quantity: str = "", zero_allowed: bool = False) -> int:
    """Return a whole number in the range of the quantity (or 0 if allowed); raise `ProfileError` otherwise."""
    number = read_number(node, quantity=quantity, zero_allowed=zero_allowed)
    if number != int(number):
        raise node.error(f"expected a whole number, found {node.value}", hint="write it without decimals")
    return int(number)


def _read_value(node: Node, *, kind: Any, quantity: str, factor: int, zero_allowed: Collection[str]) -> Any:
    may_be_zero = quantity in zero_allowed
    if kind is str:
        return node.text()
    if kind is int:
        return read_count(node, quantity=quantity, zero_allowed=may_be_zero)
    if kind is float:
        return float(read_number(node, quantity=quantity, factor=factor, zero_allowed=may_be_zero))
    if get_origin(kind) is Literal:
        return node.choice(get_args(kind))
    if get_origin(kind) is tuple:
        item_kind = get_args(kind)[0]
        items = node.items(hint="write [one, two]")
        return tuple(
            _read_value(one, kind=item_kind, quantity=quantity, factor=factor, zero_allowed=()) for one in items
        )
    if isinstance(kind, type) and is_dataclass(kind):
        return read_record(kind, node, zero_allowed=zero_allowed)
    _, item_kind = get_args(kind)
    if item_kind is float:
        return {entry.key: float(read_number(entry, quantity=quantity)) for entry in node.entries()}
    return {entry.key: read_record(item_kind, entry, zero_allowed=zero_allowed) for entry in node.entries()}


@cache
def _kinds(record: type[Any]) -> Mapping[str, Any]:
    """Return the type of each field without `| None`; a file leaves out a key that has no value."""
    kinds = {}
    for name, hint in get_type_hints(record).items():
        options = [option for option in get_args(hint) if option is not type(None)]
        kinds[name] = options[0] if get_origin(hint) in (UnionType, Union) else hint
    return kinds


def _spelled(name: str) -> list[str]:
    """Return the field's name in the units that people use, or unchanged if it has none."""
    padded = f"{name}_"
    return [
        padded.replace(f"{base}_", f"{unit}_")[:-1]
        for unit, base, _ in _UNITS
        if f"{base}_" in padded and not (base == "_bytes" and "_bytes_per_s_" in padded)
    ] or [name]
