"""Sends HTTP requests to price lists, with deadlines, retries, size limits and conditional requests."""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing import TimeoutError as DeadlineError
from multiprocessing.pool import ThreadPool
from typing import Any, Generic, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from advisor.errors import NetworkError, UsageError

ParsedT = TypeVar("ParsedT")
ModelT = TypeVar("ModelT", bound=BaseModel)

_TIMEOUT = httpx.Timeout(30.0, connect=10.0)
_LONGEST_JSON_S = 120.0
_LONGEST_LIST_S = 1200.0
"""Enough for AWS's largest list at a third of a megabyte per second."""
_LONGEST_REFRESH_S = 3600.0
_MOST_REDIRECTS = 5
_PASSING_STATUSES = frozenset((408, 429, 500, 502, 503, 504))
_LONGEST_WAIT_S = 60.0
_MOST_BYTES = 2 * 10**9
"""The largest AWS list of a region is about 400 MB."""
_MOST_JSON_BYTES = 64 * 10**6
_MOST_LINE_BYTES = 10**6
_OFFLINE_HINT = (
    "check the connection, and HTTPS_PROXY if there is a proxy; until then, the current prices stay in force, "
    "and you can put your own prices into advisor.yaml"
)
_MOST_PAGES = 2000
"""Google's list has about 60 pages of 5,000 parts, Azure's list of one region about 20 pages of 1,000."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. With a key it follows no redirect, because the key is only for this server."""

    url: str
    params: Mapping[str, str] = field(default_factory=dict)
    key_headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    json: Any = None
    etag: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply(Generic[ParsedT]):
    """The parsed body, or None if the server says that it has not changed since `Request.etag`."""

    body: ParsedT | None
    etag: str | None


class _PassingError(Exception):
    """A failure that may be temporary, with a hint in case it is not."""

    def __init__(self, message: str, *, wait_s: float | None = None, hint: str = "try again later") -> None:
        super().__init__(message)
        self.wait_s = wait_s
        self.hint = hint


class Client:
    """A connection to price lists for one refresh; use it in a `with` block.

    Each answer has a deadline for its last byte, and so has the whole refresh; a timeout on single reads would restart
    with every byte.
    """

    def __init__(
        self,
        *,
        attempts: int = 4,
        sleep: Callable[[float], None] = time.sleep,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._attempts = attempts
        self._sleep = sleep
        self._ends_at = time.monotonic() + _LONGEST_REFRESH_S
        self._reader = ThreadPool(1)  # a daemon thread, which does not keep the program from exiting
        self._client = httpx.Client(
            timeout=_TIMEOUT, max_redirects=_MOST_REDIRECTS, headers={"User-Agent": "advise"}, transport=transport
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._reader.terminate()

    def read(
        self, request: Request, parse: Callable[[Iterator[bytes]], ParsedT], *, longest_s: float = _LONGEST_LIST_S
    ) -> Reply[ParsedT]:
        """Send the request and parse the body as it arrives; retry after 1, 2 and 4 seconds on temporary failures.

        Raise `NetworkError`, with the URL but never a key, also if the answer takes longer than `longest_s`.
        """
        for attempt in range(1, self._attempts + 1):
            try:
                return self._read_in_time(request, parse, longest_s=longest_s)
            except _PassingError as failure:
                if attempt == self._attempts:
                    hint = f"tried {attempt} times; {failure.hint}"
                    raise NetworkError(f"{request.url}: {failure}", hint=hint) from None
                self._sleep(min(failure.wait_s or 2.0 ** (attempt - 1), _LONGEST_WAIT_S))
        raise ValueError("a client makes at least one attempt")

    def json(self, request: Request, model: type[ModelT]) -> ModelT:
        """Return the JSON answer, validated as a `model`."""
        return parsed_json(self.text(request), model, where=request.url)

    def text(self, request: Request) -> bytes:
        """Return the raw answer, limited to a size that fits in memory."""
        reply = self.read(
            request, lambda chunks: b"".join(_limited(chunks, most_bytes=_MOST_JSON_BYTES)), longest_s=_LONGEST_JSON_S
        )
        return reply.body or b""

    def pages(
        self, first: Request, model: type[ModelT], *, following: Callable[[ModelT], Request | None]
    ) -> Iterator[ModelT]:
        """Yield every page; raise `NetworkError` if a page repeats or the pages do not end."""
        request: Request | None = first
        seen: set[str] = set()
        while request is not None:
            identity = f"{request.url} {sorted(request.params.items())}"
            if identity in seen or len(seen) == _MOST_PAGES:
                raise NetworkError(f"{first.url}: its pages do not end", hint="try again later")
            seen.add(identity)
            page = self.json(request, model)
            yield page
            request = following(page)

    def _read_in_time(
        self, request: Request, parse: Callable[[Iterator[bytes]], ParsedT], *, longest_s: float
    ) -> Reply[ParsedT]:
        """Read in a thread; at the deadline, close the connection, so that a slow server cannot block it."""
        left_s = min(longest_s, self._ends_at - time.monotonic())
        reading = self._reader.apply_async(self._read_once, (request, parse))
        try:
            return reading.get(timeout=left_s)
        except DeadlineError:
            self._client.close()
            message = f"{request.url}: the answer was not complete after {left_s:,.0f} s"
            raise NetworkError(message, hint="try again later, or on a faster connection") from None

    def _read_once(self, request: Request, parse: Callable[[Iterator[bytes]], ParsedT]) -> Reply[ParsedT]:
        headers = {**request.key_headers, **({"If-None-Match": request.etag} if request.etag else {})}
        try:
            with self._client.stream(
                "GET" if request.json is None else "POST",
                request.url,
                params=request.params or None,
                headers=headers,
                json=request.json,
                follow_redirects=not request.key_headers,
            ) as response:
                if response.status_code == httpx.codes.NOT_MODIFIED and request.etag:
                    return Reply(body=None, etag=request.etag)
                _check_status(response, url=request.url)
                chunks = _limited(response.iter_bytes(), most_bytes=_MOST_BYTES)
                return Reply(body=parse(chunks), etag=response.headers.get("ETag"))
        except httpx.TooManyRedirects:
            raise NetworkError(f"{request.url}: too many redirects", hint="try again later") from None
        except httpx.InvalidURL as error:
            raise NetworkError(f"{request.url[:200]}: {error}", hint="the list may have moved") from None
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
            host = httpx.URL(request.url).host
            raise _PassingError(
                f"no connection to {host}: {error or type(error).__name__}", hint=_OFFLINE_HINT
            ) from None
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise _PassingError(f"{type(error).__name__}: {error}") from None


def text_lines(chunks: Iterator[bytes]) -> Iterator[str]:
    """Yield the lines of a body as they arrive, with their line breaks."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line.decode("utf-8", errors="replace") + "\n"
        if len(rest) > _MOST_LINE_BYTES:
            raise NetworkError("the list has a line that is too long", hint="try again later")
    if rest:
        yield rest.decode("utf-8", errors="replace")


def parsed_json(body: bytes | str, model: type[ModelT], *, where: str) -> ModelT:
    """Return the JSON text as a `model`; raise `NetworkError` that names the first mismatch."""
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):  # a number with thousands of digits also raises ValueError
        raise NetworkError(
            f"{where}: the answer is not JSON", hint="the service may be down; try again later"
        ) from None
    try:
        return model.model_validate(content)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        place = ".".join(str(step) for step in first["loc"])
        problem = "input should be a dictionary" if first["type"] == "model_type" else first["msg"].lower()
        raise NetworkError(f"{where}: {place}: {problem}", hint="the format of the list may have changed") from None


def key_from_environment(name: str) -> str:
    """Return the API key in the environment variable; raise `UsageError` if it is not set."""
    key = os.environ.get(name, "")
    if not key:
        raise UsageError(f"this price list needs an API key, and {name} is not set", hint=f"export {name}=...")
    return key


def _limited(chunks: Iterator[bytes], *, most_bytes: int) -> Iterator[bytes]:
    size_bytes = 0
    for chunk in chunks:
        size_bytes += len(chunk)
        if size_bytes > most_bytes:
            raise NetworkError(f"the answer has more than {most_bytes:,} bytes", hint="try again later")
        yield chunk


def _check_status(response: httpx.Response, *, url: str) -> None:
    status = response.status_code
    if status in _PASSING_STATUSES:
        raise _PassingError(f"HTTP {status}", wait_s=_retry_after_s(response))
    if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
        raise NetworkError(f"{url}: HTTP {status}", hint="check the API key")
    if status != httpx.codes.OK:
        raise NetworkError(f"{url}: HTTP {status}", hint="the list may have moved")


def _retry_after_s(response: httpx.Response) -> float | None:
    """Return the Retry-After time in seconds; ignore a date."""
    text = response.headers.get("Retry-After", "")
    return float(text) if text.isdecimal() else None
