"""The guard before the app: who is let in, and what goes out with every answer."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from sidequest.surfaces.web.access import Access
from sidequest.surfaces.web.security import Guard

HOST = "127.0.0.1:8765"
ORIGIN = f"http://{HOST}"
TOKEN = "a-token-of-scripts"
FOLLOWED = {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}


async def _echo(request: Request) -> Response:
    if request.url.path == "/page":
        page = '<script type="module">import "x"</script><p>&lt;script&gt;</p>'
        return HTMLResponse(page, headers={"x-nicegui-content": "page"})
    return PlainTextResponse("served", headers={"Access-Control-Allow-Origin": "*"})


async def _socket(websocket: WebSocket) -> None:
    await websocket.accept()
    await websocket.send_text("served")
    await websocket.close()


@pytest.fixture
def access() -> Access:
    return Access(token=TOKEN, port=8765)


@pytest.fixture
def client(access: Access) -> TestClient:
    """A browser that has not opened the link."""
    methods = ["GET", "POST", "DELETE"]
    app = Starlette(
        routes=[WebSocketRoute("/{path:path}", _socket), Route("/{path:path}", _echo, methods=methods)]
    )
    return TestClient(Guard(app, access), base_url=ORIGIN)


@pytest.fixture
def browser(client: TestClient, access: Access) -> TestClient:
    """A browser that opened the link."""
    client.get(access.new_links()[0])
    return client


def test_without_the_link_nobody_gets_in_and_the_page_says_how(client: TestClient):
    answer = client.get("/")
    assert answer.status_code == 401
    assert "The terminal that runs `sidequest serve` printed a link" in answer.text
    assert "served" not in answer.text


@pytest.mark.parametrize(
    "path", ["/", "/api/sessions", "/static/base.css", "/_nicegui/x.js", "/_nicegui_ws/"]
)
def test_nothing_is_served_to_a_stranger(client: TestClient, path: str):
    assert client.get(path).status_code == 401


def test_a_stranger_of_the_api_gets_a_problem_document(client: TestClient):
    answer = client.get("/api/sessions")
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert (answer.json()["status"], answer.json()["code"]) == (401, "UNAUTHORIZED")


def test_the_link_becomes_a_cookie_that_no_script_and_no_other_site_can_use(
    client: TestClient, access: Access
):
    answer = client.get(access.new_links()[0])
    cookie = answer.headers["set-cookie"]
    assert answer.status_code == 200
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(cookie.split("; "))
    assert client.get("/").text == "served"


@pytest.mark.parametrize(
    "odd",
    ["a=1", 'prefs={"a":1, "b":2}', "x=\xe9", "tok=a b", "na[me]=1", "flag", "n@me=v", 'q="open', "=", ""],
)
def test_cookies_of_other_programs_lock_nobody_out(browser: TestClient, access: Access, odd: str):
    mine = f"{access.cookie_name}={browser.cookies[access.cookie_name]}"
    browser.cookies.clear()
    for cookies in (f"{odd}; {mine}", f"{mine}; {odd}", f"{odd};{mine};{odd}"):
        assert browser.get("/", headers={"cookie": cookies.encode("latin-1")}).text == "served"  # type: ignore[dict-item]
    assert browser.get("/", headers={"cookie": f"x{mine}"}).status_code == 401


def test_a_link_works_once(client: TestClient, access: Access):
    link = access.new_links()[0]
    client.get(link)
    client.cookies.clear()
    again = client.get(link)
    assert again.status_code == 401
    assert "set-cookie" not in again.headers
    assert client.get("/").status_code == 401


def test_a_new_link_voids_the_one_before(client: TestClient, access: Access):
    first = access.new_links()[0]
    second = access.new_links()[0]
    assert client.get(first).status_code == 401
    assert client.get(second).status_code == 200


@pytest.mark.parametrize("query", ["", "?ticket=", "?ticket=wrong", "?ticket=%00%ff", "?ticket=x&ticket=y"])
def test_no_other_ticket_opens(client: TestClient, access: Access, query: str):
    access.new_links()[0]
    answer = client.get(f"/enter{query}")
    assert (answer.status_code, "set-cookie" in answer.headers) == (401, False)


def test_a_cookie_of_an_earlier_start_is_a_strangers(browser: TestClient, access: Access):
    cookie = dict(browser.cookies)
    later = Access(port=8765)
    again = TestClient(Guard(PlainTextResponse("served"), later), base_url=ORIGIN, cookies=cookie)
    assert again.get("/").status_code == 401


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8765", "127.0.0.1.evil.example", "", "[", "192.168.1.7:8765"]
)
def test_a_name_that_was_bound_to_us_is_refused_even_with_cookie_and_link(
    browser: TestClient, access: Access, host: str
):
    assert browser.get("/", headers={"host": host}).status_code == 421
    link = access.new_links()[0].removeprefix(ORIGIN)
    assert browser.get(link, headers={"host": host}).status_code == 421


@pytest.mark.parametrize("host", ["localhost:8765", "127.0.0.1", "[::1]:8765", "LOCALHOST:9000"])
def test_our_own_names_are_answered_through_any_forwarded_port(client: TestClient, host: str):
    headers = {"host": host, "authorization": f"Bearer {TOKEN}"}
    assert client.get("/", headers=headers).status_code == 200


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "http://127.0.0.1:9999", "http://localhost:8765", "null", "https://[", ""],
)
def test_a_page_of_another_origin_changes_nothing(browser: TestClient, origin: str):
    for method in ("POST", "DELETE", "GET"):
        answer = browser.request(method, "/api/sessions", headers={"origin": origin})
        assert (answer.status_code, answer.json()["code"]) == (403, "FORBIDDEN")


def test_a_proxy_with_tls_is_passed_when_its_name_was_given(browser: TestClient, access: Access):
    for headers in ({"host": "side.example"}, {}):
        own = {"origin": "https://side.example", **headers}
        assert browser.post("/x", headers=own).status_code in (403, 421)
        access.names = frozenset({"side.example"})
        assert browser.post("/x", headers=own).status_code == 200
        access.names = frozenset()


def test_our_own_page_may_post(browser: TestClient):
    assert browser.post("/api/sessions", headers={"origin": ORIGIN}).text == "served"


def test_a_cookie_alone_may_not_post(browser: TestClient):
    """Every browser says where a post comes from; one that does not is none."""
    assert browser.post("/api/sessions").status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_another_site_embeds_or_fetches_is_refused_though_the_cookie_came_along(
    browser: TestClient, site: str
):
    assert browser.get("/_nicegui_ws/socket.io/", headers={"sec-fetch-site": site}).status_code == 403
    framed = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}
    assert browser.get("/", headers=framed).status_code == 403


def test_a_link_of_another_site_to_us_shows_the_page_but_posts_nothing(browser: TestClient):
    followed = {"sec-fetch-site": "cross-site", **FOLLOWED}
    assert browser.get("/", headers=followed).status_code == 200
    assert browser.post("/", headers=followed).status_code == 403


def _socket_says(client: TestClient, **headers: str) -> str:
    with client.websocket_connect(f"ws://{HOST}/_nicegui_ws/socket.io/", headers=headers) as websocket:
        return websocket.receive_text()


@pytest.mark.parametrize(
    "headers", [{}, {"origin": "http://evil.example"}, {"origin": "null"}], ids=["none", "other", "null"]
)
def test_a_websocket_of_another_origin_is_refused(browser: TestClient, headers: dict[str, str]):
    with pytest.raises(WebSocketDisconnect) as closed:
        _socket_says(browser, **headers)
    assert closed.value.reason == "Another site's page made this request."


def test_a_websocket_without_a_cookie_is_refused(client: TestClient):
    with pytest.raises(WebSocketDisconnect) as closed:
        _socket_says(client, origin=ORIGIN)
    assert closed.value.reason == "You are not signed in."


def test_a_websocket_of_another_host_is_refused(browser: TestClient):
    with pytest.raises(WebSocketDisconnect) as closed:
        _socket_says(browser, origin="http://evil.example", host="evil.example")
    assert closed.value.reason == "This server does not go by that name."


def test_the_websocket_of_our_page_is_let_in(browser: TestClient):
    assert _socket_says(browser, origin=ORIGIN) == "served"


def test_a_script_with_the_token_may_do_everything(client: TestClient):
    headers = {"authorization": f"Bearer {TOKEN}"}
    assert client.get("/api/sessions", headers=headers).text == "served"
    assert client.post("/api/sessions", headers=headers).text == "served"
    assert _socket_says(client, **headers) == "served"


@pytest.mark.parametrize("given", ["Bearer wrong", "Bearer ", "Basic x", f"Basic {TOKEN}", TOKEN])
def test_no_other_token_opens(client: TestClient, given: str):
    assert client.get("/api/sessions", headers={"authorization": given}).status_code == 401


def test_without_a_token_no_bearer_opens():
    client = TestClient(Guard(PlainTextResponse("served"), Access()), base_url=ORIGIN)
    assert client.get("/", headers={"authorization": "Bearer "}).status_code == 401


def test_another_site_may_not_use_a_script_token_either(client: TestClient):
    headers = {"authorization": f"Bearer {TOKEN}", "origin": "http://evil.example"}
    assert client.get("/api/sessions", headers=headers).status_code == 403


@pytest.mark.parametrize("path", ["/", "/page", "/api/sessions", "/enter"])
def test_every_answer_forbids_frames_sniffing_and_referrers(browser: TestClient, path: str):
    headers = browser.get(path).headers
    policy = headers["content-security-policy"]
    assert policy.startswith("default-src 'none'")
    assert "frame-ancestors 'none'" in policy
    assert "base-uri 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cache-control"] == "no-store"


def test_no_answer_lets_another_origin_read_it(browser: TestClient):
    names: list[Any] = [name for name in browser.get("/").headers if name.startswith("access-control")]
    assert names == []


def test_the_scripts_of_a_page_carry_the_nonce_of_its_policy(browser: TestClient):
    first, second = browser.get("/page"), browser.get("/page")
    nonces = [answer.text.partition('nonce="')[2].partition('"')[0] for answer in (first, second)]
    assert f"'nonce-{nonces[0]}'" in first.headers["content-security-policy"]
    assert nonces[0] != nonces[1]
    assert f'<script nonce="{nonces[0]}" type="module">' in first.text
    assert "<p>&lt;script&gt;</p>" in first.text
    assert int(first.headers["content-length"]) == len(first.content)


def test_inline_scripts_run_by_their_nonce_alone(browser: TestClient):
    policy = browser.get("/page").headers["content-security-policy"]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert "unsafe-inline" not in rules["script-src"]
    assert not any("*" in rule or "http" in rule for rule in rules.values())
