"""What a browser may do with our pages: the content policy, its nonces, and the other headers."""

from __future__ import annotations

import re
from collections.abc import Iterable

Headers = list[tuple[bytes, bytes]]

_SCRIPT_TAG = re.compile(rb"<script(?=[\s>])")
_ALWAYS = (
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_OURS = frozenset({b"content-security-policy", *(name for name, _ in _ALWAYS)})
_CLOSED = b"default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"


def page_policy(nonce: str) -> bytes:
    """Return the policy of a page whose inline scripts carry `nonce`.

    `unsafe-eval` cannot be left out: Vue compiles templates in the browser, and NiceGUI evaluates the
    handlers that a page gives it. `unsafe-inline` is for styles alone, which Quasar writes into elements.
    """
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src 'self' 'nonce-{nonce}' 'unsafe-eval'",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            "base-uri 'none'",
            "frame-ancestors 'none'",
            "object-src 'none'",
        )
    ).encode()


def with_nonces(page: bytes, nonce: str) -> bytes:
    """Return a page of NiceGUI with `nonce` on each of its script tags.

    What a page shows cannot hold such a tag: NiceGUI escapes every `<` of it.
    """
    return _SCRIPT_TAG.sub(f'<script nonce="{nonce}"'.encode(), page)


def protected(headers: Iterable[tuple[bytes, bytes]], policy: bytes | None) -> Headers:
    """Return the headers of a response with ours added; `policy` None forbids it everything.

    What says that other origins may read it is taken out. What may be cached has to say so itself.
    """
    kept = [
        (name, value)
        for name, value in headers
        if name.lower() not in _OURS and not name.lower().startswith(b"access-control-")
    ]
    if not any(name.lower() == b"cache-control" for name, _ in kept):
        kept.append((b"cache-control", b"no-store"))
    return [*kept, (b"content-security-policy", policy or _CLOSED), *_ALWAYS]
