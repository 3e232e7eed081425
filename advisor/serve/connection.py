"""Limits a client's connection: the time to send a request and to read the answer, and the number of connections."""

import asyncio
import contextlib
from typing import Any, ClassVar, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from advisor.serve.settings import Settings


class BoundedConnection(H11Protocol):
    """uvicorn's protocol with additional limits.

    The head of a request must arrive within `head_s` of the start of the connection or of the previous answer. The
    client must read an answer within `write_s`. If more than `connection_count` connections are open, the one that has
    waited longest for a complete request is closed, so that silent clients cannot block others.
    """

    limits: ClassVar[Settings]
    _deadline: asyncio.TimerHandle | None = None
    _waiting_since_s = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Start to wait for a request; close the oldest waiting connection if there are too many."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.limits.connection_count:
            connections = cast("set[BoundedConnection]", self.connections)
            oldest = min((one for one in connections if not one._is_answering()), key=lambda one: one._waiting_since_s)
            connections.discard(oldest)
            oldest.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the deadline."""
        super().connection_lost(exc)
        if self._deadline is not None:
            self._deadline.cancel()

    def data_received(self, data: bytes) -> None:
        """Stop waiting once the head of a request is complete."""
        was_waiting = self._is_waiting()
        super().data_received(data)
        if was_waiting and not self._is_waiting():
            self._set_deadline()

    def on_response_complete(self) -> None:
        """Wait for the next request, unless it has already arrived."""
        super().on_response_complete()
        self._wait()

    def pause_writing(self) -> None:
        """Start the deadline for a client that does not read."""
        super().pause_writing()
        self._set_deadline()

    def resume_writing(self) -> None:
        """Cancel the deadline of a client that reads again."""
        super().resume_writing()
        self._set_deadline()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP; send nothing if an answer was already sent."""
        with contextlib.suppress(h11.LocalProtocolError):
            super().send_400_response(msg)
        self.transport.close()

    def _is_waiting(self) -> bool:
        """Return True if no request is being processed."""
        return self.cycle is None or self.cycle.response_complete

    def _is_answering(self) -> bool:
        """Return True if a complete request is being answered and the client reads the answer."""
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
    """Return a class of connections with the limits of `settings`."""
    return type("BoundedConnection", (BoundedConnection,), {"limits": settings})
