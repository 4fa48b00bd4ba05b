"""Who may talk to the web app: the address it listens at, the link of one use, the cookie, the token."""

from __future__ import annotations

import hashlib
import ipaddress
import math
import secrets
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from sidequest.core.errors import ErrorCode, SidequestError

LOOPBACK = "127.0.0.1"
MIN_TOKEN_CHARS = 16
"""Shortest token that may guard the app, in characters, inclusive."""
ENTRANCE = "/enter"
"""The only path that is answered without a cookie."""
_EVERYWHERE = {"0.0.0.0": LOOPBACK, "::": "::1"}
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass
class Access:
    """What lets a request in. It lives as long as the process: a restart asks everybody anew."""

    host: str = LOOPBACK
    """Address that the server listens at."""
    token: str | None = field(default=None, repr=False)
    """What scripts send as `Authorization: Bearer`; None when no script is let in."""
    port: int = 0
    """Port that the server listens at; 0 until it does."""
    names: frozenset[str] = frozenset()
    """Host names of one's own, as a proxy with TLS passes them on; in small letters, without a port."""
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    """Seconds; only differences count."""
    _ticket: str | None = field(default=None, init=False, repr=False)
    _until: float = field(default=math.inf, init=False, repr=False)
    """Clock seconds until which the ticket counts."""
    _cookies: set[bytes] = field(default_factory=set, init=False, repr=False)
    """Digests of the cookies that were given out."""

    def __post_init__(self) -> None:
        if self.token is not None and len(self.token) < MIN_TOKEN_CHARS:
            raise SidequestError(
                ErrorCode.USAGE,
                f"The token has {len(self.token)} characters; {MIN_TOKEN_CHARS} is the least.",
                "Take a long random one: python -c 'import secrets; print(secrets.token_urlsafe())'.",
            )
        self.names = frozenset(name.lower() for name in self.names)
        for name in self.names:
            if _host_of(name) != name:
                raise SidequestError(
                    ErrorCode.USAGE,
                    f"{name!r} is no host name.",
                    "Give --allow-host a name alone, such as sidequest.example.org.",
                )
        if self.token is None and not is_loopback(self.host):
            raise SidequestError(
                ErrorCode.USAGE,
                f"Other machines can reach {self.host}, and no token guards it.",
                "Give --token, or leave --host out to serve this machine only.",
            )

    @property
    def cookie_name(self) -> str:
        """Name of the cookie. It has the port in it: two servers of one machine share their cookies."""
        return f"sidequest_{self.port}"

    def new_links(self, valid_s: float = math.inf) -> tuple[str, ...]:
        """Return the addresses of one link that lets one browser in, once; the first is for this machine.

        It counts for `valid_s` seconds; an earlier link that nobody used is void.
        """
        self._ticket, self._until = secrets.token_urlsafe(32), self.clock() + valid_s
        return tuple(f"{address}{ENTRANCE}?ticket={self._ticket}" for address in self.addresses)

    @property
    def addresses(self) -> tuple[str, ...]:
        """Where a browser finds the app: of this machine, of another one, behind a proxy."""
        found = [self.host]
        if self.host in _EVERYWHERE:
            found = [_EVERYWHERE[self.host], *filter(None, [machine_address(self.host)])]
        here = [f"http://{f'[{host}]' if ':' in host else host}:{self.port}" for host in found]
        return (*here, *(f"https://{name}" for name in sorted(self.names)))

    @property
    def address(self) -> str:
        """Where a browser of this machine finds the app."""
        return self.addresses[0]

    def admit(self, ticket: str) -> str | None:
        """Return a new cookie for the ticket of a link and void that link; None for any other ticket."""
        if self._ticket is None or self.clock() > self._until or not _same(ticket, self._ticket):
            return None
        self._ticket = None
        cookie = secrets.token_urlsafe(32)
        self._cookies.add(_digest(cookie))
        return cookie

    def knows_cookie(self, cookie: str) -> bool:
        """Say whether `cookie` was given out by this process."""
        return _digest(cookie) in self._cookies

    def knows_token(self, token: str) -> bool:
        """Say whether `token` is the one of the scripts."""
        return self.token is not None and _same(token, self.token)

    def names_us(self, host_header: str) -> bool:
        """Say whether a `Host` header is a name of this server, so that no other name can be bound to it.

        Served to other machines, every literal address is: only a name can be pointed somewhere else.
        """
        name = _host_of(host_header)
        if name is None:
            return False
        if name in _LOCAL_NAMES or name in self.names or name == self.host.lower():
            return True
        if is_loopback(self.host):
            return False
        return _is_literal(name) or name in {
            socket.gethostname().lower(),
            f"{socket.gethostname()}.local".lower(),
        }

    def is_behind_proxy(self, origin: str) -> bool:
        """Say whether an `Origin` is that of our pages behind a proxy with TLS, whatever `Host` it sends."""
        try:
            parts = urlsplit(origin)
            return parts.scheme == "https" and parts.hostname in self.names
        except ValueError:
            return False


def machine_address(host: str) -> str:
    """Return the address of this machine in its network for what listens at `host`; empty without one."""
    family, far = (socket.AF_INET6, "2001:db8::1") if ":" in host else (socket.AF_INET, "192.0.2.1")
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((far, 9))  # chooses a way and sends nothing
            return str(probe.getsockname()[0])
    except OSError:
        return ""


def is_loopback(host: str) -> bool:
    """Say whether only this machine can reach what listens at `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _host_of(header: str) -> str | None:
    try:
        return urlsplit(f"//{header}").hostname
    except ValueError:
        return None


def _is_literal(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def _same(left: str, right: str) -> bool:
    return secrets.compare_digest(_digest(left), _digest(right))
