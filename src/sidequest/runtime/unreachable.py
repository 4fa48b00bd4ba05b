"""Why a server could not be reached, in words, and whether waiting for it is worth much."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from socket import gaierror
from urllib.parse import urlsplit

MAX_LINKS = 12
"""How many exceptions behind the first are looked at: the reason lies below two client libraries."""
_CONNECT = frozenset({"ConnectError", "ConnectTimeout", "ConnectionRefusedError", "gaierror"})


@dataclass(frozen=True, slots=True)
class Unreachable:
    """A server to which no connection came about."""

    message: str
    """Address and cause in one sentence."""
    nobody_listens: bool
    """Whether this very machine refused: no wait brings a server that was not started."""


def unreachable(error: BaseException, address: str | None) -> Unreachable | None:
    """Read out of `error` why `address` could not be reached; None when there was a connection.

    `address` is that of the model's server, None when it is not known; user, password and query are not
    shown.
    """
    links = list(_links(error))
    if not any(kind.__name__ in _CONNECT for link in links for kind in type(link).__mro__):
        return None
    host, shown = _parts(address)
    refused = any(isinstance(link, ConnectionRefusedError) for link in links)
    why = next((said for link in reversed(links) if (said := _reason(link))), "no connection came about")
    return Unreachable(f"{shown} cannot be reached: {why}.", refused and _is_here(host))


def _links(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    for _ in range(MAX_LINKS):
        if current is None:
            return
        yield current
        if isinstance(current, BaseExceptionGroup):
            current = current.exceptions[0]
        else:
            current = current.__cause__ or current.__context__


def _reason(link: BaseException) -> str:
    if isinstance(link, gaierror):
        return "its name is not known"
    if isinstance(link, ssl.SSLError):
        return str(link)
    if isinstance(link, TimeoutError):
        return "it did not answer in time"
    if isinstance(link, OSError) and link.errno:
        return os.strerror(link.errno).lower()
    return ""


def _parts(address: str | None) -> tuple[str, str]:
    if not address:
        return "", "The server of the model"
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    except ValueError:
        return "", "The server of the model"
    shown = f"[{host}]" if ":" in host else host
    return host, f"{parts.scheme}://{shown}{port}{parts.path.rstrip('/')}"


def _is_here(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
