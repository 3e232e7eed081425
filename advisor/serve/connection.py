"""A client's connection: a request must arrive and an answer be taken in time, and only so many are open at once."""

import asyncio
import contextlib
from typing import Any, ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from advisor.serve.settings import Settings


class BoundedConnection(H11Protocol):
    """uvicorn's protocol with the limits that it lacks.

    The head of a request may take `head_s` from the start of the connection or the answer before, and an answer may
    lie unread for `write_s`. Where more than `connection_count` are open, the one that has been without a whole request
    for longest makes room, so silent clients keep nobody out.
    """

    limits: ClassVar[Settings]
    _deadline: asyncio.TimerHandle | None = None
    _waiting_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Begin to wait for a request; make room."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.limits.connection_count:
            connections = cast("set[BoundedConnection]", self.connections)
            oldest = min((one for one in connections if not one._is_answering()), key=lambda one: one._waiting_since_s)
            connections.discard(oldest)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the deadline."""
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        """Stop waiting once a head is whole."""
        was_waiting = self._is_waiting()
        super().data_received(data)
        if was_waiting and not self._is_waiting():
            self._set_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it is there already."""
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        """The client does not read."""
        super().pause_writing()
        self._set_deadline()

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; where an answer was sent already there is nothing to say."""
        with contextlib.suppress(h11.LocalProtocolError):
            super().send_400_response(msg)
        self.transport.close()

    def _is_waiting(self) -> bool:
        """Whether no request is being worked on."""
        return self.cycle is None or self.cycle.response_complete

    def _is_answering(self) -> bool:
        """Whether a request is here in full and the client takes the answer."""
        return not (self._is_waiting() or self.cycle.more_body or self.flow.write_paused)

    def _wait(self) -> None:
        self._waiting_since_s = self.loop.time()
        self._set_deadline()

    def _set_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self.flow.write_paused:
            self._deadline = self.loop.call_later(self.limits.write_s, self.transport.abort)
        elif self._is_waiting():
            self._deadline = self.loop.call_later(self.limits.head_s, self.transport.abort)


def bounded_by(settings: Settings) -> Any:
    """The class of connections with the limits of `settings`."""
    return type("BoundedConnection", (BoundedConnection,), {"limits": settings})
