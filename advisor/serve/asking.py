"""A question and who answers it in, the route that asks it with the body of a request out."""

from collections.abc import Awaitable, Callable

from fastapi import Request, Response

Ask = Callable[[str, bytes], Awaitable[Response]]
"""Puts a question with its body to a worker."""


def asking(ask: Ask, question: str) -> Callable[[Request], Awaitable[Response]]:
    """The route of the question."""

    async def route(request: Request) -> Response:
        return await ask(question, await request.body())

    return route
