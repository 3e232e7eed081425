"""Reads YAML strictly into plain values, and records the line of each value.

PyYAML's own loader reads 989e12 as text, 010 as 8, 3:30 as 210 and `no` as False, and the last of repeated keys wins.
Here, a plain scalar is a number, true, false or null as in YAML 1.2's core schema (without octal and hex), or text.
Repeated keys, anchors, aliases and tags are errors. The C parser does the scanning.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from advisor.errors import ProfileError, did_you_mean
from advisor.files.regular_file import read_regular_file

KeyPath = tuple[str | int, ...]
"""The path from the top of a document to a value: ("instances", "g5.xlarge", "machine")."""

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]*)")
_FLOAT = re.compile(
    r"[-+]?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_CONSTANTS: Mapping[str, bool | None] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)
_MOST_DEPTH = 20
"""Built-in files have at most 5 levels. Deep nesting would overflow the stack of libyaml's recursive tree builder."""
_MOST_NODES = 1_000_000
"""All shipped files together have 60,000."""
_MOST_DIGITS = 18
"""Longer whole numbers are read as floating-point numbers; no count or size is that large."""


class _Place(NamedTuple):
    """The line of a key, or of a value without a key, counted from 0, and the places of the values below it."""

    line: int
    below: "Mapping[str | int, _Place]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """One YAML document: its values and their places."""

    label: str
    values: Any
    place: _Place

    def where(self, path: KeyPath) -> str:
        """Return `file:line: key` of the value at `path`, or of its nearest existing parent."""
        place = self.place
        for step in path:
            below = place.below.get(step)
            if below is None:
                break
            place = below
        key = ".".join(str(step) for step in path)
        return f"{self.label}:{place.line + 1}" + (f": {key}" if key else "")

    def error(self, path: KeyPath, message: str, *, hint: str = "") -> ProfileError:
        """Return the error to raise for the value at `path`."""
        return ProfileError(message, where=self.where(path), hint=hint)

    @property
    def root(self) -> "Node":
        """Return the whole document as a node."""
        return Node(document=self, path=(), value=self.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A value of a document and the path to it. Its methods raise a `ProfileError` that names its line."""

    document: Document
    path: KeyPath
    value: Any

    @property
    def key(self) -> str:
        """Return the key of the value."""
        return str(self.path[-1])

    @property
    def where(self) -> str:
        """Return `file:line: key`."""
        return self.document.where(self.path)

    def error(self, message: str, *, hint: str = "") -> ProfileError:
        """Return the error to raise for this value."""
        return self.document.error(self.path, message, hint=hint)

    def __contains__(self, key: str) -> bool:
        return key in self.value

    def __getitem__(self, key: str | int) -> "Node":
        return Node(document=self.document, path=(*self.path, key), value=self.value[key])

    def get(self, key: str, default: Any) -> "Node":
        """Return the value below a mapping, or a node of the default."""
        return Node(document=self.document, path=(*self.path, key), value=self.value.get(key, default))

    def entries(self, *, hint: str = "") -> "Iterator[Node]":
        """Yield the values of a mapping."""
        if not isinstance(self.value, Mapping):
            raise self.error(f"expected keys and values, found {self.value!r}", hint=hint or "write `key: value` lines")
        return (self[key] for key in self.value)

    def items(self, *, hint: str) -> "Iterator[Node]":
        """Yield the items of a list."""
        if not isinstance(self.value, list):
            raise self.error(f"expected a list, found {self.value!r}", hint=hint)
        return (self[index] for index in range(len(self.value)))

    def check_keys(
        self, known: Collection[str], *, required: Sequence[str] = (), hint: str = "", elsewhere: Collection[str] = ()
    ) -> None:
        """Raise an error unless this is a mapping with known keys only, and with all required ones.

        The keys of other mappings, `elsewhere`, may be what was meant, too.
        """
        for entry in self.entries(hint=hint):
            if entry.key not in known:
                raise entry.error("unknown key", hint=did_you_mean(entry.key, (*known, *elsewhere)))
        for key in required:
            if key not in self:
                raise self.error(f"{key} is missing", hint=hint)

    def text(self) -> str:
        """Return non-empty text."""
        if not isinstance(self.value, str) or not self.value:
            raise self.error(f"expected text, found {self.value!r}", hint="put it in quotes")
        return self.value

    def choice(self, choices: Collection[str]) -> Any:
        """Return one of `choices`."""
        if self.value not in choices:
            message = f"expected one of {', '.join(choices)}, found {self.value!r}"
            raise self.error(message, hint="use one of these")
        return self.value


def read_documents(path: Path) -> tuple[Document, ...]:
    """Parse a file of one or more documents; raise `ProfileError` if it is unreadable or not strict YAML."""
    try:
        text = read_regular_file(path).decode("utf-8")
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
        return tuple(_Builder(text, label).documents())
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise ProfileError(
            f"not valid YAML: {error.problem}",
            where=label if mark is None else f"{label}:{mark.line + 1}",
            hint="check the indentation, the brackets and the quotes around this line",
        ) from None
    except yaml.reader.ReaderError as error:
        raise ProfileError(
            f"not valid YAML: {error.reason} at position {error.position}", where=label, hint="remove that character"
        ) from None


class _Builder:
    """Builds values from the parser's events, so that limits are checked while parsing."""

    def __init__(self, text: str, label: str) -> None:
        self._events: Iterator[Any] = yaml.parse(text, Loader=_Loader)
        self._label = label
        self._count = 0

    def documents(self) -> Iterator[Document]:
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                values, place = self._value(next(self._events), depth=0)
                yield Document(label=self._label, values=values, place=place)

    def _value(self, event: Any, *, depth: int, line: int | None = None) -> tuple[Any, _Place]:
        """Build the value that starts with `event`; its place is `line`, the line of its key, or its own line."""
        self._check(event, depth=depth)
        if line is None:
            line = _line_of(event)
        if isinstance(event, yaml.ScalarEvent):
            return (event.value if event.style else _plain_scalar(event.value)), _Place(line=line, below={})
        below: dict[str | int, _Place] = {}
        if isinstance(event, yaml.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
                item, below[len(items)] = self._value(event, depth=depth + 1)
                items.append(item)
            return items, _Place(line=line, below=below)
        values: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            self._check(event, depth=depth + 1)
            if not isinstance(event, yaml.ScalarEvent):
                raise self._error(event, "a key must be text", hint="put the key in quotes")
            key, key_line = event.value, _line_of(event)
            if key in values:
                raise self._error(event, f"{key}: this key is repeated", hint="remove one of them")
            values[key], below[key] = self._value(next(self._events), depth=depth + 1, line=key_line)
        return values, _Place(line=line, below=below)

    def _check(self, event: Any, *, depth: int) -> None:
        """Raise `ProfileError` for features that strict YAML lacks, and beyond the limits."""
        if event.anchor is not None:  # true for an alias, too
            raise self._error(event, "anchors and aliases (&name, *name) are not allowed", hint="write the value out")
        if event.tag is not None:
            raise self._error(event, f"tag {event.tag} is not allowed", hint="write the plain value")
        if depth > _MOST_DEPTH:
            raise self._error(
                event, "nested too deeply", hint=f"at most {_MOST_DEPTH} levels are allowed; a price has 5"
            )
        self._count += 1
        if self._count > _MOST_NODES:
            hint = "use one file per provider"
            raise self._error(event, f"the file has more than {_MOST_NODES:,} values", hint=hint)

    def _error(self, event: Any, message: str, *, hint: str) -> ProfileError:
        return ProfileError(message, where=f"{self._label}:{_line_of(event) + 1}", hint=hint)


def _line_of(event: Any) -> int:
    line: int = event.start_mark.line
    return line


def _plain_scalar(text: str) -> str | float | bool | None:
    if text.startswith(tuple("+-.0123456789")):
        if _INTEGER.fullmatch(text):
            return int(text) if len(text) <= _MOST_DIGITS else float(text)
        if _FLOAT.fullmatch(text):
            return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
        return text
    return _CONSTANTS.get(text, text)
