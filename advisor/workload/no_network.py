"""Refuses connections to other machines at once, naming the user's line, instead of waiting for a timeout.

Python's audit events report every look-up of a host and every connection of this process (PEP 578). Programs that the
code starts, and sockets of C++ and Rust code, are not seen.
"""

import ipaddress
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any

from advisor.errors import LoadError
from advisor.workload.user_error import NO_NETWORK_HINT, causes_of, place_now

_LOOK_UPS = frozenset({"socket.getaddrinfo", "socket.gethostbyname"})
_CONNECTIONS = frozenset({"socket.connect", "socket.sendto"})
_refusing: list[set[str]] = []
"""The lines refused so far."""
_hook_once = cache(sys.addaudithook)
"""An audit hook cannot be removed, so one stays for the life of the process."""


class NoNetworkError(LoadError, ConnectionError):
    """The code asks for another machine. A `ConnectionError`, so that code that works offline too goes on."""


class _StillAsksError(BaseException):
    """The same line asks again. Not an `Exception`, because libraries wait and try again on exceptions."""

    def __init__(self, refusal: NoNetworkError) -> None:
        self.refusal = refusal


@contextmanager
def network_refused() -> Iterator[None]:
    """Raise `NoNetworkError` for every connection to another machine inside, in all threads."""
    _hook_once(_on_event)
    _refusing.append(set())
    try:
        yield
    except _StillAsksError as stop:
        raise stop.refusal from None
    except Exception as error:  # a library may have wrapped the refusal
        for cause in causes_of(error):
            if isinstance(cause, NoNetworkError):
                raise cause from None
        raise
    finally:
        _refusing.pop()


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if not _refusing:
        return
    if event in _LOOK_UPS:
        host = arguments[0]
    elif event in _CONNECTIONS and arguments[0].family in (socket.AF_INET, socket.AF_INET6):
        host = arguments[1][0] if isinstance(arguments[1], tuple) and arguments[1] else None
    else:
        return
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    if not isinstance(host, str) or _is_here(host):
        return
    place = place_now()
    refusal = NoNetworkError(
        f"{place or 'a library in a thread of its own'}: the code asks for {host}, but no network is used for a trace",
        hint=NO_NETWORK_HINT,
    )
    if place and place in _refusing[-1]:
        raise _StillAsksError(refusal)
    _refusing[-1].add(place)
    raise refusal


def _is_here(host: str) -> bool:
    """Return True for a name or address of this machine's loopback interface, and for this machine's own name."""
    if host in ("", "localhost", socket.gethostname()):
        return True
    with suppress(ValueError):
        address = ipaddress.ip_address(host)
        return address.is_loopback or address.is_unspecified
    return False
