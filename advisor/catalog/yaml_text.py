"""Writes plain values and devices as the text of a YAML file."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, fields
from decimal import Decimal
from typing import Any

from advisor.records.device import Cpu, Gpu

_PLAIN_TEXT = re.compile(r"[A-Za-z][\w.+/@()-]*( [\w.+/@()-]+)*|\d{4}-\d{2}-\d{2}")
_LINES = re.compile(r"([!-~][ -~]*\n)+")
"""Script lines, none of them empty or indented, which can be written as a literal block."""
_RESERVED = frozenset(("yes", "no", "on", "off", "true", "false", "null", "y", "n"))
_CONSTANTS = {True: "true", False: "false", None: "null"}


def yaml_text(values: Mapping[str, Any], *, comments: Sequence[str] = ()) -> str:
    """Return the comments and the values as YAML.

    A value without a mapping or script is on one line, so that a price file has one line per type and region. Scripts
    are literal blocks.
    """
    lines = [*(f"# {_one_line(comment)}" for comment in comments), *_block(values, indent="")]
    return "".join(f"{line}\n" for line in lines)


def device_yaml(device: Gpu | Cpu, *, comments: Sequence[str]) -> str:
    """Return the comments and every field that differs from its default, in base units.

    Texts and lists are written as JSON, which is also YAML.
    """
    lines = [f"# {comment}" for comment in comments]
    for field in fields(device):
        value = getattr(device, field.name)
        if field.default is MISSING or value != field.default:
            text = _number(value) if isinstance(value, float) else json.dumps(value, default=asdict, ensure_ascii=False)
            lines.append(f"{field.name}: {text}")
    return "\n".join(lines) + "\n"


def flow(value: Any) -> str:
    """Return a value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Sequence):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return _CONSTANTS[value] if value is None or isinstance(value, bool) else repr(value)


def quoted(text: str) -> str:
    """Return the text plain if no YAML reader can misread it, otherwise in double quotes."""
    if _PLAIN_TEXT.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    escaped = json.dumps(text, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in escaped)


def _block(value: Any, *, indent: str) -> list[str]:
    lines: list[str] = []
    entries = value.items() if isinstance(value, Mapping) else (("-", item) for item in value)
    for key, item in entries:
        head = f"{quoted(key)}:" if isinstance(value, Mapping) else "-"
        if _is_script(item):
            lines += [f"{indent}{head} |", *(f"{indent}  {line}" for line in item[:-1].split("\n"))]
        elif not _needs_lines(item):
            lines.append(f"{indent}{head} {flow(item)}")
        else:
            lines += [f"{indent}{head}", *_block(item, indent=f"{indent}  ")]
    return lines


def _one_line(comment: str) -> str:
    """Return the comment with unprintable characters, such as line breaks, as blanks."""
    return "".join(character if character.isprintable() else " " for character in comment)


def _needs_lines(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        return False
    items = value.values() if isinstance(value, Mapping) else value
    return any(isinstance(item, Mapping) or _is_script(item) for item in items)


def _is_script(value: Any) -> bool:
    return isinstance(value, str) and _LINES.fullmatch(value) is not None


def _number(value: float) -> str:
    """Return the shortest text of the same number, such as 34359738368 or 1.413e+13."""
    exact = Decimal(repr(value))
    plain = str(int(value)) if value.is_integer() else repr(value)
    return min(plain, f"{exact.normalize():e}", key=len)
