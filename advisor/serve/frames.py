"""Defines the messages between the service and its workers: a word and a body, sent over a socket."""

import asyncio
import struct
from dataclasses import dataclass
from io import BufferedIOBase

_HEAD = struct.Struct(">BI")
"""The lengths of the word and of the body."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A message; `word` names the kind of `body`."""

    word: str
    body: bytes = b""

    def packed(self) -> bytes:
        """Return the frame as bytes."""
        word = self.word.encode("ascii")
        return _HEAD.pack(len(word), len(self.body)) + word + self.body


def read_frame(stream: BufferedIOBase) -> Frame | None:
    """Return the next frame, or None if the other side has closed the stream."""
    head = stream.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    word_length, body_length = _HEAD.unpack(head)
    word = stream.read(word_length).decode("ascii")
    body = stream.read(body_length)
    return Frame(word, body) if len(body) == body_length else None


async def receive_frame(stream: asyncio.StreamReader) -> Frame:
    """Return the next frame; raise `asyncio.IncompleteReadError` if the other side has closed the stream."""
    word_length, body_length = _HEAD.unpack(await stream.readexactly(_HEAD.size))
    word = (await stream.readexactly(word_length)).decode("ascii")
    return Frame(word, await stream.readexactly(body_length))
