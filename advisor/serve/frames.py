"""What the service and its workers say to each other: a word and bytes, one after the other on a socket."""

import struct
from dataclasses import dataclass
from typing import Protocol

HEAD = struct.Struct(">BI")
"""The lengths of the word and of the bytes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`word` says what `body` is."""

    word: str
    body: bytes = b""

    def packed(self) -> bytes:
        """As it travels."""
        word = self.word.encode("ascii")
        return HEAD.pack(len(word), len(self.body)) + word + self.body


class Readable(Protocol):
    """A blocking stream of bytes."""

    def read(self, size: int, /) -> bytes:
        """`size` bytes, or fewer at the end."""


class Writable(Protocol):
    """A buffered stream of bytes."""

    def write(self, data: bytes, /) -> int:
        """Take the bytes."""

    def flush(self) -> None:
        """Send them."""


def read_frame(stream: Readable) -> Frame | None:
    """The next frame; None where the other side is gone."""
    head = stream.read(HEAD.size)
    if len(head) < HEAD.size:
        return None
    word_length, body_length = HEAD.unpack(head)
    word = stream.read(word_length).decode("ascii")
    body = stream.read(body_length)
    return Frame(word, body) if len(body) == body_length else None
