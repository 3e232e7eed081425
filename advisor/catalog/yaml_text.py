"""Plain values in, the text of a profile or price file out that reads as the same values."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

_PLAIN_TEXT = re.compile(r"[A-Za-z][\w.+/@()-]*( [\w.+/@()-]+)*|\d{4}-\d{2}-\d{2}")
_RESERVED = frozenset(("yes", "no", "on", "off", "true", "false", "null", "y", "n"))
_CONSTANTS = {True: "true", False: "false", None: "null"}


def yaml_text(values: Mapping[str, Any], *, comments: Sequence[str] = ()) -> str:
    """Comments, then one key after the other.

    What holds no mapping stands on one line, so that a price file has one line for each type and region.
    """
    return "".join(f"# {comment}\n" for comment in comments) + "".join(
        f"{line}\n" for line in _block(values, indent="")
    )


def flow(value: Any) -> str:
    """A value on one line."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{quoted(key)}: {flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, str):
        return quoted(value)
    if isinstance(value, Sequence):
        return "[" + ", ".join(flow(item) for item in value) + "]"
    return _CONSTANTS[value] if value is None or isinstance(value, bool) else repr(value)


def quoted(text: str) -> str:
    """Plain where no YAML reader could take it for anything but this text, else in double quotes."""
    if _PLAIN_TEXT.fullmatch(text) and text.lower() not in _RESERVED:
        return text
    escaped = json.dumps(text, ensure_ascii=False)
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in escaped)


def _block(value: Any, *, indent: str) -> list[str]:
    lines: list[str] = []
    entries = value.items() if isinstance(value, Mapping) else (("-", item) for item in value)
    for key, item in entries:
        head = f"{quoted(key)}:" if isinstance(value, Mapping) else "-"
        if not _holds_mapping(item):
            lines.append(f"{indent}{head} {flow(item)}")
        else:
            lines += [f"{indent}{head}", *_block(item, indent=f"{indent}  ")]
    return lines


def _holds_mapping(value: Any) -> bool:
    if isinstance(value, str) or not isinstance(value, Mapping | Sequence):
        return False
    return any(isinstance(item, Mapping) for item in (value.values() if isinstance(value, Mapping) else value))
