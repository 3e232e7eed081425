"""Checks the settings of `advise serve` and refuses unsafe ones."""

import ipaddress
import math
import os
import resource
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from advisor.errors import UsageError
from advisor.files.regular_file import read_regular_file

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_LEAST_TOKEN_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The address of the service, who may use it, and its limits.

    `allowed_hosts` are the names allowed in a request's Host header, without the port. `body_bytes` is the maximum size
    of a body. `head_s` and `body_s` limit how long a request may take to arrive, `time_limit_s` how long the answer may
    take, including the wait for a worker, and `write_s` how long a client may leave an answer unread. At most
    `queue_count` requests wait or are in progress; further ones are refused. At most `connection_count` connections are
    open.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str | None = None
    allowed_hosts: tuple[str, ...] = _LOOPBACK_NAMES
    worker_count: int = 1
    queue_count: int = 16
    connection_count: int = 256
    time_limit_s: float = 10.0
    body_bytes: int = 4 * 1024**2
    head_s: float = 10.0
    body_s: float = 10.0
    write_s: float = 30.0
    profiles: Path | None = None
    prices: tuple[Path, ...] = ()


def checked_settings(
    *, host: str, token_file: Path | None, allowed_hosts: tuple[str, ...], worker_count: int | None, **others: Any
) -> Settings:
    """Return the settings; raise `UsageError` if they expose the service without a token or host name.

    Without `worker_count`, there is one worker per core. `others` are further fields of the settings.
    """
    token = None if token_file is None else _read_token(token_file)
    is_loopback = _is_loopback(host)
    if not is_loopback and token is None:
        raise UsageError(
            f"--host {host}: other machines can reach this address, but no token is set",
            hint="add --token-file FILE, or remove --host",
        )
    known = _LOOPBACK_NAMES if is_loopback else () if _is_any_address(host) else (in_url(host),)
    if not known and not allowed_hosts:
        raise UsageError(
            f"--host {host}: the host name of the service is unknown", hint="add --allow-host NAME, as in its URL"
        )
    usable_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    workers = worker_count or usable_cores
    file_count, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    most_connections = math.inf if file_count == resource.RLIM_INFINITY else file_count // 2
    return Settings(
        host=host,
        token=token,
        allowed_hosts=tuple(name.lower() for name in (*known, *allowed_hosts)),
        worker_count=workers,
        queue_count=16 * workers,
        connection_count=int(min(256 + 16 * workers, most_connections)),
        **others,
    )


def answering_to(settings: Settings, address: str) -> Settings:
    """Return the settings with the listening address added to the allowed host names."""
    if _is_any_address(address):
        return settings
    return replace(settings, allowed_hosts=(*settings.allowed_hosts, in_url(address)))


def in_url(host: str) -> str:
    """Return the address as written in a URL and a Host header."""
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_any_address(host: str) -> bool:
    return host in ("0.0.0.0", "::", "")  # noqa: S104 - compared, not bound


def _read_token(file: Path) -> str:
    try:
        token = read_regular_file(file).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {file}: cannot be read ({error})", hint="name a text file") from None
    if len(token) < _LEAST_TOKEN_LENGTH or not (token.isascii() and token.isprintable()) or " " in token:
        raise UsageError(
            f"--token-file {file}: a token is one word of at least {_LEAST_TOKEN_LENGTH} ASCII characters",
            hint="make one with: openssl rand -hex 32 > FILE",
        )
    return token
