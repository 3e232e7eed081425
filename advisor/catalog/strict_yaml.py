"""A YAML file in, plain values out, and for any of them the place it was written at.

PyYAML's own loader reads 989e12 as text, 010 as 8, 3:30 as 210 and `no` as False, and lets the last of repeated keys
win. Here a plain scalar is a number, true, false or null as YAML 1.2's core schema has them, without octal and hex, or
text; repeated keys, anchors and tags are errors. The C parser does the scanning.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml

from advisor.errors import ProfileError

KeyPath = tuple[str | int, ...]
"""The way from the top of a document to a value: ("instances", "g5.xlarge", "machine")."""

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_CONSTANTS: Mapping[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_PLAIN_TAGS = {"tag:yaml.org,2002:str", "tag:yaml.org,2002:seq", "tag:yaml.org,2002:map"}
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML document: its values, and the parsed nodes, which know their lines."""

    label: str
    values: Any
    node: yaml.Node

    def where(self, path: KeyPath) -> str:
        """`file:line: key` of the value at `path`, or of the nearest thing above it that is there."""
        node = self.node
        line = node.start_mark.line
        for step in path:
            if isinstance(node, yaml.MappingNode):
                entry = next(((key, value) for key, value in node.value if key.value == str(step)), None)
                if entry is None:
                    break
                line, node = entry[0].start_mark.line, entry[1]
            elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
                node = node.value[step]
                line = node.start_mark.line
        key = ".".join(str(step) for step in path)
        return f"{self.label}:{line + 1}" + (f": {key}" if key else "")

    def error(self, path: KeyPath, message: str, *, hint: str = "") -> ProfileError:
        """The error to raise for the value at `path`."""
        return ProfileError(message, where=self.where(path), hint=hint)


def read_documents(path: Path) -> tuple[Document, ...]:
    """Parse a file of one or more documents; raise `ProfileError` where it cannot be read or is not strict YAML."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ProfileError(
            f"byte {error.start} is not UTF-8", where=str(path), hint="save the file as UTF-8 text"
        ) from None
    except OSError as error:
        raise ProfileError(
            error.strerror or "cannot be read", where=str(path), hint="check the path and its permissions"
        ) from None
    return parse_documents(text, label=str(path))


def parse_documents(text: str, *, label: str) -> tuple[Document, ...]:
    """Parse YAML text; `label` names it in errors."""
    try:
        nodes = list(yaml.compose_all(text, Loader=_Loader))
        return tuple(Document(label=label, values=_Builder(label).value(node), node=node) for node in nodes)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ProfileError(
            f"not valid YAML: {error.problem}",
            where=f"{label}:{mark.line + 1}" if mark else label,
            hint="check the indentation, the brackets and the quotes around this line",
        ) from None
    except yaml.reader.ReaderError as error:
        raise ProfileError(
            f"not valid YAML: {error.reason} at position {error.position}", where=label, hint="remove that character"
        ) from None
    except RecursionError:
        raise ProfileError("nested too deeply", where=label, hint="a profile needs five levels at most") from None


def did_you_mean(found: str, *, known: Iterable[str]) -> str:
    """A hint that names the closest of the known words, or some of them where none is close."""
    known = sorted(known)
    close = get_close_matches(found, known, n=1) or get_close_matches(found.lower(), known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    shown = ", ".join(known[:12])
    return f"known: {shown}" + (", ..." if len(known) > 12 else "") if known else ""


class _Builder:
    """Turns nodes into values, once each: a node seen twice is an alias."""

    def __init__(self, label: str) -> None:
        self._label = label
        self._seen: set[int] = set()

    def value(self, node: yaml.Node) -> Any:
        if node.tag not in _PLAIN_TAGS:
            raise self._error(node, f"tag {node.tag} is not allowed", hint="write the plain value")
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.style else _plain_scalar(node.value)
        if id(node) in self._seen:
            raise self._error(node, "an alias (*name) is not allowed", hint="write the value out")
        self._seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item) for item in node.value]
        return self._mapping(node)

    def _mapping(self, node: yaml.Node) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key_node, value_node in node.value:
            if not isinstance(key_node, yaml.ScalarNode):
                raise self._error(key_node, "a key must be text", hint="put the key in quotes")
            key = key_node.value
            if key in values:
                raise self._error(key_node, f"{key}: this key is repeated", hint="keep one of the two")
            values[key] = self.value(value_node)
        return values

    def _error(self, node: yaml.Node, message: str, *, hint: str) -> ProfileError:
        return ProfileError(message, where=f"{self._label}:{node.start_mark.line + 1}", hint=hint)


def _plain_scalar(text: str) -> str | float | bool | None:
    if text.startswith(tuple("+-.0123456789")):
        if _INTEGER.fullmatch(text):
            return int(text)
        if _FLOAT.fullmatch(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        return text
    return _CONSTANTS.get(text, text)
