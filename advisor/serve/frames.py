"""Defines the messages between the service and its workers: a word and a body, sent over a socket."""

import struct
from dataclasses import dataclass
from typing import Protocol

HEAD = struct.Struct(">BI")
"""The lengths of the word and of the body."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message; `word` names the kind of `body`."""

    word: str
    body: bytes = b""

    def packed(self) -> bytes:
        """Return the frame as bytes."""
        word = self.word.encode("ascii")
        return HEAD.pack(len(word), len(self.body)) + word + self.body


class Readable(Protocol):
    """A blocking stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return `size` bytes, or fewer at the end of the stream."""


class Writable(Protocol):
    """A buffered stream of bytes."""

    def write(self, data: bytes, /) -> int:
        """Buffer the bytes."""

    def flush(self) -> None:
        """Send the buffered bytes."""


def read_frame(stream: Readable) -> Frame | None:
    """Return the next frame, or None if the other side has closed the stream."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    word_length, body_length = HEAD.unpack(head)
    word = stream.read(word_length).decode("ascii")
    body = stream.read(body_length)
    return Frame(word, body) if len(body) == body_length else None
