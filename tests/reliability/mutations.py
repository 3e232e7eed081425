"""A document in, the same with something wrong in it out; and what every answer must be: finite, and of a size."""

import copy
import json
import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from random import Random
from typing import Any

NUMBERS: tuple[Any, ...] = (
    0, -1, 1, 0.5, -0.0, 1e-300, 5e-324, 1e-12, 1e6, 1e9, 1e12, 1e18, 1e20, 1e300, 1.7e308, -1e300, 2**31, 2**48,
    -(2**63), 2**63, 2**64 + 1, 10**40, 10**400, math.nan, math.inf, -math.inf,
)  # fmt: skip
OTHERS: tuple[Any, ...] = (
    None, True, False, "", "3", "NaN", "no", "*", "gpu", "aten.mm", "float16", "2026-02-30", "9999-12-31",
    "\x00\x1b[2J\n", "x" * 10_000, "\ud800", [], {}, [[]], [0, -1], [6400, -99], [-5, 0.1], [1, 2, 3],
    {"usd": 1}, {"": ""},
)  # fmt: skip
RAW = (
    "9" * 5000, "1e999", "-1e999", "5e-324", "1e308", "NaN", "Infinity", "-Infinity", ".nan", ".inf", "0x10", "1_000",
    "[" * 30_000, "{a: " * 30_000, "- " * 5000, "? " * 5000, "&a [*a, *a]", "*a", "!!python/name:os.system x", "! x",
    "<<: {a: 1}", "\x00", "\x1b[31m", "\ufeff", "\x85", "%YAML 1.1\n---\n", "|\n  text", "'", '"', "tru", "@", "`",
)  # fmt: skip


def mutated(document: Any, chance: Random) -> Any:
    """A copy with one to four values exchanged, removed, repeated, renamed, scaled or nested."""
    document = copy.deepcopy(document)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        places = list(_places(document))
        if not places:
            break
        container, key = chance.choice(places)
        _mutate(container, key, chance)
    return document


def garbled(text: str, chance: Random) -> str:
    """The text cut, with characters exchanged, or with something raw where a value or a line was."""
    way = chance.randrange(4)
    if way == 0:
        return text[: chance.randrange(len(text) + 1)]
    if way == 1:
        characters = list(text)
        for _ in range(chance.randrange(1, 6)):
            characters[chance.randrange(len(characters))] = chr(chance.choice((chance.randrange(128), 0x2028, 0x1F600)))
        return "".join(characters)
    lines = text.split("\n")
    index = chance.randrange(len(lines))
    if way == 2:
        return "\n".join([*lines[:index], *chance.choices(lines, k=chance.randrange(3)), *lines[index + 1 :]])
    start, colon, _ = lines[index].partition(":")
    lines[index] = f"{start}{colon or ':'} {chance.choice(RAW)}"
    return "\n".join(lines)


def json_text(document: Any, chance: Random) -> str:
    """The document as JSON, at times garbled or with a key that comes twice."""
    text = json.dumps(document)
    way = chance.randrange(6)
    if way == 0:
        return garbled(text, chance)
    if way == 1:
        key = chance.choice(["batch", "rows", "name", "schema_version"])
        return text.replace("{", f'{{"{key}": 1, ', chance.randrange(1, 3))
    return text


def check_numbers(record: Any, *, path: str = "answer") -> None:
    """Raise AssertionError where a number of an answer is not finite, or where a size, time or price is below zero."""
    if isinstance(record, bool) or record is None or isinstance(record, str):
        return
    if isinstance(record, (int, float)):
        assert math.isfinite(record), f"{path} is {record}"
        assert record >= 0, f"{path} is {record}"
    elif is_dataclass(record):
        for field in fields(record):
            check_numbers(getattr(record, field.name), path=f"{path}.{field.name}")
    elif isinstance(record, dict):
        for key, value in record.items():
            check_numbers(value, path=f"{path}.{key}")
    elif isinstance(record, (list, tuple)):
        for index, value in enumerate(record):
            check_numbers(value, path=f"{path}.{index}")


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every container with each of its keys."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


def _mutate(container: Any, key: Any, chance: Random) -> None:
    value = container[key]
    way = chance.randrange(8)
    if way == 0 and isinstance(container, dict):
        del container[key]
    elif way == 1 and isinstance(container, dict):
        container[chance.choice([f"{key}x", str(key).upper(), "", "surprise", "1"])] = value
    elif way == 2 and isinstance(value, list):
        container[key] = value * chance.choice((0, 2, 50))
    elif way == 3:
        nested: Any = value
        for _ in range(chance.choice((1, 3, 30, 200))):
            nested = [nested] if chance.random() < 0.5 else {"a": nested}
        container[key] = nested
    elif way <= 5 and isinstance(value, (int, float)) and not isinstance(value, bool):
        container[key] = chance.choice((-value, value * chance.choice((1e-9, 0.1, 10, 1e9, 1e30)), value + 0.5))
    elif way == 6:
        container[key] = chance.choice(OTHERS)
    else:
        container[key] = chance.choice(NUMBERS)
