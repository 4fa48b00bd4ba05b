"""Stands before everything that is served: nothing passes without a right name, origin and credential.

Name: the `Host` of a request must be ours, or a page of another site could have its own name point here.
Origin: a request that another site's page makes is refused, whatever cookies come with it; another port of
this machine is another site. Credential: the cookie that the terminal's link gave, or the scripts' token.
"""

from __future__ import annotations

import html
import secrets
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import Headers
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sidequest.surfaces.api.api import PREFIX
from sidequest.surfaces.api.problems import FORBIDDEN, UNAUTHORIZED, Problem, answer
from sidequest.surfaces.web.access import ENTRANCE, Access
from sidequest.surfaces.web.policy import page_policy, protected, with_nonces

if TYPE_CHECKING:
    from collections.abc import MutableMapping
    from typing import Any

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_OWN_SITES = frozenset({"same-origin", "none"})
"""`Sec-Fetch-Site` of a request that our own page makes, or the person by the address bar."""
_LINK = (
    "The terminal that runs `sidequest serve` printed a link: open it. It works once. Who is signed in "
    "makes another one on the page Settings; starting the command again prints one, too."
)
_POLICY_VIOLATION = 1008
"""Code that closes a websocket which is not let in."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is not answered."""

    status: HTTPStatus
    title: str
    remedy: str


_UNKNOWN_HOST = Refusal(
    HTTPStatus.MISDIRECTED_REQUEST,
    "This server does not go by that name.",
    "Use the address that the terminal printed; behind a proxy, start the server with --allow-host NAME.",
)
_OTHER_SITE = Refusal(
    HTTPStatus.FORBIDDEN,
    "Another site's page made this request.",
    "Open the app itself; scripts send `Authorization: Bearer` and no `Origin`.",
)
_NOBODY = Refusal(HTTPStatus.UNAUTHORIZED, "You are not signed in.", _LINK)
_WRONG_TOKEN = Refusal(
    HTTPStatus.UNAUTHORIZED, "That token is not the one of this server.", "Send the one given with --token."
)
_USED = Refusal(HTTPStatus.UNAUTHORIZED, "This link has been used, or is of an earlier start.", _LINK)


class Guard:
    """The outermost ASGI application."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one connection."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        headers = Headers(scope=scope)
        refusal = self._refusal(scope, headers)
        if scope["type"] == "websocket":
            if refusal is None:
                await self._app(scope, receive, send)
            else:
                await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": refusal.title})
            return
        send = _Protecting(send, nonce)
        if refusal is None and scope["path"] == ENTRANCE:
            response = self._enter(scope)
        elif refusal is not None:
            response = _refused(refusal, scope["path"])
        else:
            await self._app(scope, receive, send)
            return
        await response(scope, receive, send)

    def _refusal(self, scope: Scope, headers: Headers) -> Refusal | None:
        if not self._access.names_us(headers.get("host", "")):
            return _UNKNOWN_HOST
        if _is_of_another_site(scope, headers, self._access):
            return _OTHER_SITE
        if scope["path"] == ENTRANCE:
            return None
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return None if self._access.knows_token(token.strip()) else _WRONG_TOKEN
        if not self._access.knows_cookie(_cookie(headers, self._access.cookie_name)):
            return _NOBODY
        # A cookie comes along by itself, so what changes something must also say which page it is from.
        changes = scope["type"] == "websocket" or scope["method"] not in _SAFE
        return _OTHER_SITE if changes and "origin" not in headers else None

    def _enter(self, scope: Scope) -> Response:
        ticket = parse_qs(scope["query_string"].decode("latin-1")).get("ticket", [""])[0]
        cookie = self._access.admit(ticket) if scope["method"] == "GET" else None
        if cookie is None:
            return _refused(_USED, scope["path"])
        # A page that goes on by itself and no redirect: a browser that came from another site's link would
        # leave a strict cookie out of a redirected request.
        onward = '<meta http-equiv="refresh" content="0; url=/">'
        response = HTMLResponse(_PAGE.format(head=onward, title="You are in", text='<a href="/">Go on</a>'))
        response.set_cookie(self._access.cookie_name, cookie, httponly=True, samesite="strict", path="/")
        return response


def _is_of_another_site(scope: Scope, headers: Headers, access: Access) -> bool:
    origins = headers.getlist("origin")
    host = headers.get("host", "").lower()
    if any(_host_of(origin) != host and not access.is_behind_proxy(origin) for origin in origins):
        return True
    site = headers.get("sec-fetch-site", "none")
    if site in _OWN_SITES:
        return False
    # To follow a link to us shows a page and does nothing.
    followed = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest") == "document"
    return not (followed and scope["type"] == "http" and scope["method"] == "GET")


def _host_of(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _cookie(headers: Headers, name: str) -> str:
    # Other programs at this address set cookies too, and a parser of all of them gives up at an odd one.
    for header in headers.getlist("cookie"):
        for pair in header.split(";"):
            key, _, value = pair.partition("=")
            if key.strip() == name:
                return value.strip()
    return ""


def _refused(refusal: Refusal, path: str) -> Response:
    unknown = refusal.status is HTTPStatus.UNAUTHORIZED
    if path == PREFIX or path.startswith(f"{PREFIX}/"):
        code = UNAUTHORIZED if unknown else FORBIDDEN
        response: Response = answer(
            Problem(title=refusal.title, status=refusal.status, code=code, remedy=refusal.remedy)
        )
    else:
        text = html.escape(refusal.remedy)
        response = HTMLResponse(
            _PAGE.format(head="", title=html.escape(refusal.title), text=text), refusal.status
        )
    if unknown:
        response.headers["www-authenticate"] = "Bearer"
    return response


class _Protecting:
    """Sends a response on with our headers; a page of NiceGUI is held back until it has its nonces."""

    def __init__(self, send: Send, nonce: str) -> None:
        self._send = send
        self._nonce = nonce
        self._start: MutableMapping[str, Any] | None = None
        self._body = b""

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = Headers(raw=message.get("headers", []))
            is_page = headers.get("content-type", "").startswith("text/html")
            policy = page_policy(self._nonce) if is_page else None
            message = {**message, "headers": protected(message.get("headers", []), policy)}
            if headers.get("x-nicegui-content") == "page":
                self._start = message
                return
        elif self._start is not None and message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if message.get("more_body"):
                return
            body = with_nonces(self._body, self._nonce)
            kept = [item for item in self._start["headers"] if item[0].lower() != b"content-length"]
            length = (b"content-length", str(len(body)).encode())
            await self._send({**self._start, "headers": [*kept, length]})
            self._start = None
            message = {**message, "body": body, "more_body": False}
        await self._send(message)


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} - sidequest</title>
{head}
<style>
:root {{ color-scheme: light dark; font-family: system-ui, sans-serif; line-height: 1.5; }}
main {{ max-width: 34rem; margin: 18vh auto; padding: 0 1.5rem; }}
h1 {{ font-size: 1.25rem; }}
</style>
</head>
<body><main><h1>{title}</h1><p>{text}</p></main></body>
</html>
"""
