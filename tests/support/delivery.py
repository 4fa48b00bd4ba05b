"""Sends one answer in the wire format of its request, streamed or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass

from tests.support.counting import usage_of
from tests.support.http_server import HttpAnswer
from tests.support.neutral import Answer, Drop, Hang, InStreamError, Reject, Reply, Seen, Waitable
from tests.support.wire_common import Answered, EventStream, Wire, compact

JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache"}


@dataclass(frozen=True)
class Delivery:
    """The way of one answer: `serial` tells the ids of this provider from those of another."""

    wire: Wire
    seen: Seen
    serial: int
    http: HttpAnswer

    async def deliver(self, answer: Answer) -> None:
        """Send `answer`; the HTTP answer stays incomplete when the connection is to be cut."""
        match answer:
            case Reply():
                await self._reply(answer)
            case Reject():
                await self._reject(answer)
            case InStreamError():
                await self._error(answer)
            case Drop():
                await self._drop(answer)
            case Hang():
                await self._hang(answer)

    def _answered(self, reply: Reply) -> Answered:
        return Answered(self.seen, reply, usage_of(reply, self.seen.tokens), self.serial)

    def _stream(self, reply: Reply) -> EventStream:
        return self.wire.stream(self._answered(reply))

    async def _begin(self) -> None:
        await self.http.begin(200, {**_EVENTS, "x-request-id": self._request_id})

    @property
    def _request_id(self) -> str:
        return f"req_{self.serial}_{self.seen.index}"

    async def _write(self, events: Iterable[bytes]) -> None:
        for event in events:
            await self.http.write(event)

    async def _send_json(self, body: object) -> None:
        await self.http.send(200, {**JSON, "x-request-id": self._request_id}, compact(body).encode())

    async def _reply(self, reply: Reply) -> None:
        if not self.seen.stream:
            await self._send_json(self.wire.body(self._answered(reply)))
            return
        events = self._stream(reply)
        await self._begin()
        await self._write(events.head + events.tail)
        await self.http.end()

    async def _reject(self, reject: Reject) -> None:
        body, kind = reject.body or b"", {"content-type": "text/plain; charset=utf-8"}
        if isinstance(body, str):
            body = body.encode()
        elif not isinstance(body, bytes):
            body, kind = compact(body).encode(), JSON
        named = {**kind, "x-request-id": self._request_id, "request-id": self._request_id}
        await self.http.send(reject.status, {**named, **reject.headers}, body)

    async def _error(self, error: InStreamError) -> None:
        if not self.seen.stream:
            await self._send_json(self.wire.error_body(self.seen, error))
            return
        head = [] if error.after is None else self._stream(error.after).head
        await self._begin()
        await self._write(head + self.wire.error_events(self.seen, error, len(head)))
        await self.http.end()

    async def _drop(self, drop: Drop) -> None:
        if drop.after is None:
            return
        if self.seen.stream:
            await self._begin()
            await self._write(self._stream(drop.after).head)
            return
        body = compact(self.wire.body(self._answered(drop.after))).encode()
        await self.http.announce(200, {**JSON, "content-length": str(len(body))})
        await self.http.write_raw(body[: len(body) // 2])

    async def _hang(self, hang: Hang) -> None:
        if not (hang.mid_stream and self.seen.stream and isinstance(hang.then, Reply)):
            await _wait(hang.until)
            await self.deliver(hang.then)
            return
        events = self._stream(hang.then)
        await self._begin()
        await self._write(events.head)
        await _wait(hang.until)
        await self._write(events.tail)
        await self.http.end()


async def _wait(until: float | Waitable) -> None:
    if isinstance(until, (int, float)):
        await asyncio.sleep(until)
    else:
        await until.wait()
