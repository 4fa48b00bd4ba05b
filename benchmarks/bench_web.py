"""The web app with 50 sessions of 2,000 rows: how soon the list and a session are there, what watching costs.

A server of this process is met by another one, over loopback: the seconds until the list and the newest
answer of the newest session are there, by the API, as HTML, and on the page that Chromium shows. What
Chromium takes for an empty page is not ours: the bounds of the pages are for what comes on top of it.
Then a delegation tells 100 events a second for ten seconds while a page and a stream of events watch it, and
the seconds of CPU that the server takes are counted. The least of several counts.
Guards against: reading whole sessions where their end is wanted, and work per event that grows with events.
Run it with `make bench`, or alone: `.venv/bin/python benchmarks/bench_web.py`.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))

import httpx2
import uvicorn
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)

from benchmarks.report import Bound, finish
from sidequest.core.events import (
    DelegationStarted,
    Event,
    Notice,
    Numbered,
    PromptReceived,
    TextProduced,
    ToolEnded,
    ToolStarted,
    TurnStarted,
)
from sidequest.core.shares import Shares
from sidequest.store import NewDelegation, NewMessage, NewSession, Store
from sidequest.surfaces.app.application import Application, open_application
from sidequest.surfaces.app.live import Live
from sidequest.surfaces.web.access import Access
from sidequest.surfaces.web.server import bind

SESSIONS = 50
ROWS = 2_000
EVENTS = 500
"""Events of each session."""
EVENTS_PER_S = 100
WATCHED_S = 10
REPEATS = 3
TOKEN = "a-token-of-the-benchmark"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NEWEST = "This is the newest answer."
WORKER = "worker"


def conversation(number: int) -> Iterator[ModelMessage]:
    """Prompts, each with two reads and an answer; `number` is that of the session."""
    for turn in range(ROWS // 4):
        yield ModelRequest(parts=[UserPromptPart(f"Question {turn} of session {number}.")])
        call = ToolCallPart("Read", {"path": f"file-{turn}.txt"}, tool_call_id=f"call-{turn}")
        yield ModelResponse(parts=[TextPart(f"Reading file {turn}."), call])
        yield ModelRequest(parts=[ToolReturnPart("Read", "some text " * 80, tool_call_id=f"call-{turn}")])
        text = NEWEST if turn == ROWS // 4 - 1 else f"Answer {turn}: " + "many words of an answer " * 20
        yield ModelResponse(parts=[TextPart(text)])


async def fill(store: Store, root: Path) -> None:
    """Store the sessions, each with events; the last one is the newest."""
    for number in range(SESSIONS):
        key, begun = f"session-{number:03}", 1_700_000_000_000 + number * 10_000_000
        await store.sessions.create(NewSession(key, begun, f"Session {number}", str(root)))
        rows = [
            NewMessage(f"m{place}", message, begun + place)
            for place, message in enumerate(conversation(number), start=1)
        ]
        await store.transcript.append(key, rows)
        told = [Numbered(place, begun + place, Notice(WORKER, "said")) for place in range(1, EVENTS + 1)]
        await store.events.append(key, told)


def steps() -> Iterator[Event]:
    """What a delegation tells, step by step, without end."""
    turn = 0
    while True:
        turn += 1
        call = f"call-{turn}"
        tokens = 4_000 + turn * 40 % 90_000
        yield TurnStarted(WORKER, turn, tokens, 100_000, Shares())
        yield ToolStarted(WORKER, call, "Read", f"file-{turn}.txt")
        yield ToolEnded(WORKER, call, "Read", True, 800)
        yield TextProduced(WORKER, "Some words of what it thinks. ")


async def begin(application: Application, live: Live) -> None:
    """Begin a turn whose delegation is then at work."""
    now = int(time.time() * 1000)
    live.session.log.emit(PromptReceived(None, "Look at it."))
    live.session.log.emit(
        DelegationStarted(WORKER, "explorer", "Look", "Look at it.", "m", "independent", 100_000, now)
    )
    new = NewDelegation(WORKER, "explorer", "Look at it.", "Look at it.", "m", "independent", now, "Look")
    await application.store.delegations.start(live.id, new)


async def work(live: Live) -> float:
    """Tell 100 events a second, stored as a run stores them; return the share of a core that it took."""
    journal = live.session._journal
    assert journal is not None
    told = steps()
    cpu, started = time.process_time(), time.perf_counter()
    for number in range(EVENTS_PER_S * WATCHED_S):
        live.session.log.emit(next(told))
        if number % 4 == 3:
            await journal.flush()
        await asyncio.sleep(max(0.0, started + (number + 1) / EVENTS_PER_S - time.perf_counter()))
    return (time.process_time() - cpu) / (time.perf_counter() - started)


async def visitor(*arguments: str) -> asyncio.subprocess.Process:
    """Start the process that looks at the app."""
    command = [sys.executable, __file__, *arguments]
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)


async def line_of(process: asyncio.subprocess.Process) -> dict[str, Any]:
    """Return the next line of a visitor."""
    assert process.stdout is not None
    line = await process.stdout.readline()
    if not line:
        sys.exit("web: the process that looks at the app failed")
    found: dict[str, Any] = json.loads(line)
    return found


async def measure(folder: Path) -> tuple[dict[str, object], list[Bound]]:
    """Fill a store, serve it and measure."""
    from sidequest.surfaces.web.serve import build

    root = folder / "project"
    root.mkdir()
    url = str(folder / "store.db")
    async with await Store.open(url, env={}) as store:
        started = time.perf_counter()
        await fill(store, root)
        filled = time.perf_counter() - started
    access = Access(token=TOKEN)
    env = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with bind(access) as listening:
        async with open_application(root, store_url=url, env=env) as application:
            config = uvicorn.Config(build(application, access), log_config=None, ws="websockets-sansio")
            server = uvicorn.Server(config)
            serving = asyncio.create_task(server._serve([listening]))
            looking = await visitor("look", access.address, access.new_links()[0])
            seen = await line_of(looking)
            await looking.wait()
            live = await application.live.create(title="Watched")
            await begin(application, live)
            alone = await work(live)
            watching = await visitor("watch", access.address, access.new_links()[0], live.id)
            await line_of(watching)
            watched = min([await work(live) for _ in range(2)])
            assert watching.stdin is not None
            watching.stdin.close()
            received = await line_of(watching)
            await watching.wait()
            server.should_exit = True
            await serving
    numbers: dict[str, object] = {
        "sessions": SESSIONS,
        "rows": SESSIONS * ROWS,
        "fillSeconds": round(filled, 1),
        "chromium": bool(CHROMIUM),
        **{name: round(value, 3) for name, value in seen.items()},
        "coreUnwatched": round(alone, 3),
        "coreWatched": round(watched, 3),
        "streamed": received["streamed"],
    }
    empty = seen.pop("pageEmptySeconds", 0.0)
    on_top = {name: value - empty if name.startswith("page") else value for name, value in seen.items()}
    bounds = [Bound(name, value, 1.0) for name, value in on_top.items()]
    bounds += [
        Bound("coreWatched", watched, 0.25),
        Bound("eventsMissed", 2 * EVENTS_PER_S * WATCHED_S - received["streamed"], 0),
    ]
    return numbers, bounds


def look(address: str, link: str) -> None:
    """Print how long the list and the newest session take, in seconds."""
    newest = f"session-{SESSIONS - 1:03}"
    with httpx2.Client(base_url=address, headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60) as client:

        def got(path: str, words: str) -> float:
            started = time.perf_counter()
            answer = client.get(path).raise_for_status().text
            assert words in answer, path
            return time.perf_counter() - started

        def least(path: str, words: str) -> float:
            return min(got(path, words) for _ in range(REPEATS))

        seconds = {
            "apiListSeconds": least("/api/sessions", newest),
            "apiSessionSeconds": least(f"/api/sessions/{newest}/transcript", NEWEST),
            "htmlListSeconds": least("/", "Sessions"),
            "htmlSessionSeconds": least(f"/sessions/{newest}", "sidequest"),
        }
    if CHROMIUM:
        seconds |= look_with_browser(address, link, newest)
    print(json.dumps(seconds), flush=True)


def look_with_browser(address: str, link: str, newest: str) -> dict[str, float]:
    """Return how long the pages take, in seconds, for a browser that has been there before."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(link)
        page.wait_for_url(f"{address}/")

        def shown(path: str, words: str) -> float:
            page.goto("about:blank")
            started = time.perf_counter()
            page.goto(f"{address}{path}", wait_until="commit")
            page.get_by_text(words, exact=True).first.wait_for()
            return time.perf_counter() - started

        seconds = {
            "pageEmptySeconds": min(shown("/nowhere", "Nothing is here") for _ in range(REPEATS)),
            "pageListSeconds": min(shown("/", f"Session {SESSIONS - 1}") for _ in range(REPEATS)),
            "pageSessionSeconds": min(shown(f"/sessions/{newest}", NEWEST) for _ in range(REPEATS)),
        }
        browser.close()
    return seconds


async def watch(address: str, link: str, session: str) -> None:
    """Look at a session by its page and its stream until standard input ends; print what the stream gave."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()

    def await_end() -> None:
        sys.stdin.read()
        loop.call_soon_threadsafe(ended.set)

    threading.Thread(target=await_end, daemon=True).start()
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(base_url=f"{address}/api", headers=headers, timeout=60) as client:
        before = (await client.get(f"/sessions/{session}/events?limit=1000")).json()
        while before["more"]:
            before = (await client.get(f"/sessions/{session}/events?after={before['newest']}")).json()
        streamed = 0

        async def count() -> None:
            nonlocal streamed
            path = f"/sessions/{session}/events/stream?after={before['newest']}"
            async with client.stream("GET", path, timeout=None) as answer:
                async for line in answer.aiter_lines():
                    streamed += line.startswith("id: ")

        counting = asyncio.create_task(count())
        if CHROMIUM:
            from playwright.async_api import async_playwright

            async with async_playwright() as playwright:
                browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
                page = await browser.new_page()
                await page.goto(link)
                await page.wait_for_url(f"{address}/")
                await page.goto(f"{address}/sessions/{session}")
                await page.get_by_text("explorer").first.wait_for()
                print("{}", flush=True)
                await ended.wait()
                await browser.close()
        else:
            print("{}", flush=True)
            await ended.wait()
        counting.cancel()
    print(json.dumps({"streamed": streamed}), flush=True)


def main() -> None:
    """Measure, or look at what is measured."""
    if sys.argv[1:2] == ["look"]:
        look(*sys.argv[2:])
        return
    if sys.argv[1:2] == ["watch"]:
        asyncio.run(watch(*sys.argv[2:]))
        return
    for name in [name for name in os.environ if name.startswith("SIDEQUEST_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        os.environ["HOME"] = folder
        numbers, bounds = asyncio.run(measure(Path(folder)))
    finish("web", numbers, bounds)


if __name__ == "__main__":
    main()
