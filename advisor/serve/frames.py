"""What the service and its workers say to each other: a word and bytes, one after the other on a socket."""

import asyncio
import struct
from dataclasses import dataclass
from typing import Protocol

_HEAD = struct.Struct(">BI")
"""The lengths of the word and of the bytes."""


@dataclass(frozen=True, slots=True)
class Frame:
    """`word` says what `body` is."""

    word: str
    body: bytes = b""

    def packed(self) -> bytes:
        """As it travels."""
        word = self.word.encode("ascii")
        return _HEAD.pack(len(word), len(self.body)) + word + self.body


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
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    word_length, body_length = _HEAD.unpack(head)
    word = stream.read(word_length).decode("ascii")
    body = stream.read(body_length)
    return Frame(word, body) if len(body) == body_length else None


async def receive_frame(stream: asyncio.StreamReader) -> Frame:
    """The next frame; raises `asyncio.IncompleteReadError` where the other side is gone."""
    word_length, body_length = _HEAD.unpack(await stream.readexactly(_HEAD.size))
    word = (await stream.readexactly(word_length)).decode("ascii")
    return Frame(word, await stream.readexactly(body_length))
