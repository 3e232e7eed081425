"""What `advise serve` is told in, settings that are safe to start with out."""

import ipaddress
import os
import resource
from dataclasses import dataclass, replace
from pathlib import Path

from advisor.errors import UsageError
from advisor.files.regular_file import read_regular_file

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")
_LEAST_TOKEN_LENGTH = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Where the service listens, who may ask, and how much at once.

    `allowed_hosts` are what a request's Host header may name, without the port. `body_bytes` is the most that a body
    may hold; `head_s`, `body_s` and `time_limit_s` are how long a request may take to arrive and to be answered, the
    wait for a worker included, and `write_s` how long a client may leave an answer unread. `queue_count` requests wait
    or are worked on at a time; more are turned away. `connection_count` connections are open at a time.
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
    *,
    host: str,
    port: int,
    token_file: Path | None,
    allowed_hosts: tuple[str, ...],
    worker_count: int | None,
    time_limit_s: float,
    profiles: Path | None,
    prices: tuple[Path, ...],
) -> Settings:
    """The settings; raise `UsageError` where strangers could ask. Without a count there is a worker for each core."""
    token = None if token_file is None else _read_token(token_file)
    is_loopback = _is_loopback(host)
    if not is_loopback and token is None:
        raise UsageError(
            f"--host {host}: others could ask, and no token is set", hint="add --token-file FILE, or leave --host out"
        )
    known = _LOOPBACK_NAMES if is_loopback else () if _is_any_address(host) else (in_url(host),)
    if not known and not allowed_hosts:
        raise UsageError(
            f"--host {host}: by which name it is asked is not known", hint="add --allow-host NAME, as in its URL"
        )
    workers = worker_count or _usable_cores()
    return Settings(
        host=host,
        port=port,
        token=token,
        allowed_hosts=tuple(name.lower() for name in (*known, *allowed_hosts)),
        worker_count=workers,
        queue_count=16 * workers,
        connection_count=_connection_count(queue_count=16 * workers),
        time_limit_s=time_limit_s,
        profiles=profiles,
        prices=prices,
    )


def answering_to(settings: Settings, address: str) -> Settings:
    """The settings with the address that is listened on as a name of the service."""
    if _is_any_address(address):
        return settings
    return replace(settings, allowed_hosts=(*settings.allowed_hosts, in_url(address)))


def in_url(host: str) -> str:
    """The address as a URL and a Host header have it."""
    return f"[{host}]" if ":" in host else host


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _is_any_address(host: str) -> bool:
    return host in ("0.0.0.0", "::", "")  # noqa: S104 - asked about, not bound


def _read_token(file: Path) -> str:
    try:
        token = read_regular_file(file).decode("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--token-file {file}: cannot be read ({error})", hint="name a text file") from None
    if len(token) < _LEAST_TOKEN_LENGTH or not (token.isascii() and token.isprintable()) or " " in token:
        raise UsageError(
            f"--token-file {file}: a token is one word of {_LEAST_TOKEN_LENGTH} ASCII characters or more",
            hint="openssl rand -hex 32 > FILE",
        )
    return token


def _connection_count(*, queue_count: int) -> int:
    """Room for all that may wait and 256 more, as far as half of the open files that the system allows goes."""
    file_count, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 256 + queue_count
    return wanted if file_count == resource.RLIM_INFINITY else min(wanted, file_count // 2)


def _usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
