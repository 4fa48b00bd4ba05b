"""`sidequest serve` as a person starts it, ends it, and as the browser meets what it serves."""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

from sidequest.core.errors import ErrorCode, SidequestError
from sidequest.surfaces.web.access import Access
from sidequest.surfaces.web.server import bind
from tests.web.served import Served, serve

TOKEN = "a-token-of-scripts"
PAGES = ("/", "/agents", "/settings", "/nowhere", "/api/openapi.json")


def test_a_port_that_is_taken_is_named_and_what_to_do() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(SidequestError, match=f"Another program listens at 127.0.0.1:{port}") as refused:
            bind(Access(port=port))
    assert (refused.value.code, "--port" in refused.value.remedy) == (ErrorCode.USAGE, True)


def test_an_address_of_another_machine_cannot_be_listened_at() -> None:
    with pytest.raises(SidequestError, match=r"Cannot listen at 192\.0\.2\.1:"):
        bind(Access("192.0.2.1", TOKEN))


def test_port_0_takes_one_that_is_free_and_the_link_names_it() -> None:
    access = Access()
    with bind(access) as listening:
        assert access.port == listening.getsockname()[1] > 0
        assert access.address == f"http://127.0.0.1:{access.port}"


@pytest.fixture(scope="module")
def guarded(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server with a token for scripts."""
    with serve(root, tmp_path_factory.mktemp("guarded"), "--token", TOKEN) as server:
        yield server


@pytest.mark.slow
@pytest.mark.timeout(240)
class TestProcess:
    """One server, met without a browser."""

    def test_a_script_uses_the_token_and_the_link_lets_one_browser_in(self, guarded: Served) -> None:
        headers = {"Authorization": f"Bearer {TOKEN}"}
        with httpx2.Client(base_url=guarded.url) as client:
            assert client.get("/api/openapi.json").status_code == 401
            assert client.get("/api/openapi.json", headers=headers).status_code == 200
            assert client.get(guarded.link).status_code == 200
            assert client.get("/").status_code == 200
        assert httpx2.get(guarded.link).status_code == 401

    def test_the_socket_of_the_pages_is_closed_to_strangers_and_other_origins(self, guarded: Served) -> None:
        polling = f"{guarded.url}/_nicegui_ws/socket.io/?EIO=4&transport=polling"
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx2.get(polling).status_code == 401
        assert httpx2.get(polling, headers={**bearer, "Origin": "http://evil.example"}).status_code == 403
        answer = httpx2.get(polling, headers={**bearer, "Origin": guarded.url})
        assert answer.status_code == 200
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_stops_what_runs_stores_its_end_and_leaves_nothing_behind(
    root: Path, tmp_path: Path, ending: signal.Signals
) -> None:
    before = sorted(root.rglob("*"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    env = {"SIDEQUEST_OFFLINE_DELAY_S": "2", "TMPDIR": str(temporary)}
    with (
        serve(root, tmp_path, "--token", TOKEN, env=env) as server,
        httpx2.Client(
            timeout=60, base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}
        ) as client,
    ):
        key = client.post("/api/sessions", json={}).raise_for_status().json()["id"]
        client.post(f"/api/sessions/{key}/prompts", json={"text": "Where is BERTH_LIMIT defined?"})
        with client.stream("GET", f"/api/sessions/{key}/events/stream") as events:
            next(line for line in events.iter_lines() if "delegation_started" in line)
            server.process.send_signal(ending)
            assert server.process.wait(timeout=60) == 0
    with sqlite3.connect(tmp_path / ".local/share/sidequest/sidequest.db") as store:
        assert store.execute("SELECT status FROM delegations").fetchall() == [("stopped",)]
        assert store.execute("SELECT count(*) FROM leases").fetchone() == (0,)
    assert not list(temporary.glob("sidequest-*"))
    assert sorted(root.rglob("*")) == before


def test_a_page_of_a_server_that_was_started_anew_says_that_a_new_link_is_needed(
    browser: Browser, root: Path, home: Path
) -> None:
    with serve(root, home) as first:
        page = first.enter(browser).new_page()
        page.goto(first.url)
        port = first.url.rpartition(":")[2]
    with serve(root, home, "--port", port):
        expect(page.locator("#popup")).to_contain_text("Open the link that its terminal printed.")
    page.context.close()


def test_an_address_without_a_page_is_told_in_the_frame(page: Page, served: Served) -> None:
    answer = page.goto(f"{served.url}/nowhere")
    assert answer is not None and answer.status == 404
    expect(page.get_by_role("heading", name="Nothing is here")).to_be_visible()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Subagents").click()
    expect(page.get_by_role("heading", name="Subagents", exact=True)).to_be_visible()


def test_the_header_is_passed_by_keyboard_and_the_look_is_kept(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/settings")
    expect(page.get_by_role("heading", name="Settings", exact=True)).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(".nicegui-content")).to_be_focused()
    for look in ("light", "dark"):
        page.get_by_role("button", name="Change it to " + look).click()
        expect(page.get_by_role("button", name=f"Look: {look}.")).to_be_visible()
    page.reload()
    expect(page.locator("body.body--dark")).to_have_count(1)
    expect(page.get_by_role("button", name="Look: dark.")).to_be_visible()


def test_the_pages_ask_no_other_host_and_break_no_policy(served: Served, browser: Browser) -> None:
    window = served.enter(browser)
    page = window.new_page()
    asked: list[str] = []
    said: list[str] = []
    failed: list[str] = []

    def on_request(request: Request) -> None:
        asked.append(request.url)

    def on_console(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            said.append(message.text)

    page.on("request", on_request)
    page.on("console", on_console)
    page.on("pageerror", lambda error: failed.append(str(error)))
    page.on("requestfailed", lambda request: failed.append(request.url))
    for path in PAGES:
        page.goto(f"{served.url}{path}", wait_until="networkidle")
    window.close()
    hosts = {urlsplit(url).netloc for url in asked if not url.startswith("data:")}
    assert hosts == {urlsplit(served.url).netloc}
    assert [text for text in said if not re.search(r"status of 404", text)] == []
    assert failed == []
