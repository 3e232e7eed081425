"""Makes the route of a question, which passes the body of a request to a worker."""

from collections.abc import Awaitable, Callable

from fastapi import Request, Response

Ask = Callable[[str, bytes], Awaitable[Response]]
"""Sends a question with its body to a worker."""


def asking(ask: Ask, question: str) -> Callable[[Request], Awaitable[Response]]:
    """Return the route of a question."""

    async def route(request: Request) -> Response:
        return await ask(question, await request.body())

    return route
