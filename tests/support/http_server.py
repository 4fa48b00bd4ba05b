"""HTTP/1.1 on loopback, as much of it as SDK clients need: keep-alive, lengths, chunked answers.

A handler is cancelled when its client hangs up, so a held request ends as soon as nobody wants the answer.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus

_HEAD_LIMIT = 64 * 1024
_REASONS = {status.value: status.phrase for status in HTTPStatus}


@dataclass(frozen=True)
class HttpRequest:
    """A request: `path` without query, header names in lower case."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class HttpAnswer:
    """Writes one answer: `send` for a whole one, or `begin`, any number of `write`, and `end`."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.complete = False
        """True once the whole answer is out; an answer that is not complete costs the connection."""

    async def send(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        """Send a whole answer."""
        await self.announce(status, {**headers, "content-length": str(len(body))})
        self._writer.write(body)
        await self._writer.drain()
        self.complete = True

    async def begin(self, status: int, headers: Mapping[str, str]) -> None:
        """Send the headers of a chunked answer."""
        await self.announce(status, {**headers, "transfer-encoding": "chunked"})

    async def write(self, data: bytes) -> None:
        """Send one chunk and let the reader run, so that it really meets it alone."""
        self._writer.write(b"%x\r\n%s\r\n" % (len(data), data))
        await self._writer.drain()
        await asyncio.sleep(0)

    async def end(self) -> None:
        """End a chunked answer."""
        self._writer.write(b"0\r\n\r\n")
        await self._writer.drain()
        self.complete = True

    async def announce(self, status: int, headers: Mapping[str, str]) -> None:
        """Send status and headers and nothing more."""
        reason = _REASONS.get(status, "Unknown")
        lines = [f"HTTP/1.1 {status} {reason}", *(f"{name}: {value}" for name, value in headers.items())]
        self._writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        await self._writer.drain()

    async def write_raw(self, data: bytes) -> None:
        """Send bytes of a body whose length was announced."""
        self._writer.write(data)
        await self._writer.drain()


Handler = Callable[[HttpRequest, HttpAnswer], Awaitable[None]]


class HttpServer:
    """Listens on a free port of 127.0.0.1 and gives every request to `handler`."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def start(self) -> int:
        """Start listening and return the port."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=_HEAD_LIMIT)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def stop(self) -> None:
        """Stop listening, cancel what is being answered and close every connection."""
        if self._server is None:
            return
        self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def open_connections(self) -> int:
        """How many clients are connected, idle ones included."""
        return len(self._connections)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(_Connection(reader, writer, self._handler).serve())
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)


class _Connection:
    """One connection, its requests answered one after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, handler: Handler) -> None:
        self._reader = reader
        self._writer = writer
        self._handler = handler
        self._early = b""

    async def serve(self) -> None:
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._answer(await self._read()):
                    pass
        finally:
            self._writer.close()
            with contextlib.suppress(ConnectionError):
                await self._writer.wait_closed()

    async def _read(self) -> HttpRequest:
        head = self._early + await self._reader.readuntil(b"\r\n\r\n")
        self._early = b""
        request_line, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        method, target, _ = request_line.split(" ", 2)
        pairs = (line.split(":", 1) for line in lines)
        headers = {name.strip().lower(): value.strip() for name, value in pairs}
        body = await self._reader.readexactly(int(headers.get("content-length", 0)))
        return HttpRequest(method, target.split("?", 1)[0], headers, body)

    async def _answer(self, request: HttpRequest) -> bool:
        """Answer a request; return whether the connection can be used again."""
        answer = HttpAnswer(self._writer)
        work = asyncio.ensure_future(self._handler(request, answer))
        hang_up = asyncio.ensure_future(self._client_left())
        try:
            await asyncio.wait({work, hang_up}, return_when=asyncio.FIRST_COMPLETED)
            if not work.done() and not hang_up.result():
                await asyncio.wait({work})
        finally:
            work.cancel()
            hang_up.cancel()
            await asyncio.gather(work, hang_up, return_exceptions=True)
        if not work.cancelled():
            work.result()
        return answer.complete and request.headers.get("connection", "").lower() != "close"

    async def _client_left(self) -> bool:
        """Wait until the client closes its side, or sends its next request early: that byte is kept."""
        with contextlib.suppress(ConnectionError):
            self._early = await self._reader.read(1)
        return not self._early
