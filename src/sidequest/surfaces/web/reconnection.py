"""What a page is sent once more when its connection comes back."""

from __future__ import annotations

import asyncio

from nicegui import Client, background_tasks

_LOOK_S = 0.02


def catch_up(client: Client) -> None:
    """Handle a connection of the page of `client`: send what it may be shown in an older state once more.

    After a reconnection NiceGUI repeats the messages that did not arrive as they were then, behind what has
    changed since: an element that changed before and after the connection was lost would stay in its older
    state. Nothing is repeated on a first connection, so nothing is sent.
    """
    outbox = client.outbox
    stale = {key for _, kind, data in outbox.messages if kind == "update" for key in data if key != "_id"}
    if stale:
        background_tasks.create(_send_again(client, stale), name="a page catches up")


async def _send_again(client: Client, stale: set[int]) -> None:
    # An outbox has no event that tells when it is empty.
    while client.outbox.messages:  # noqa: ASYNC110
        await asyncio.sleep(_LOOK_S)
    for key in stale:
        if element := client.elements.get(key):
            element.update()
