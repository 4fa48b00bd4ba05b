"""The page Settings in a browser: what is changed is in the file, and a key is never in the page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.surfaces.conftest import write_settings
from tests.web.served import Served, serve

SECRET = "fake-secret-value"
BY_HAND = f"""\
max_seconds = 60   # a minute
[deny]
paths = ["*.pem"] # keys

[models."work/qwen"]   # under the desk
base_url = "http://127.0.0.1:9/v1"
api_key = "{SECRET}"
context_window = 32768
"""


@pytest.fixture(scope="module")
def served(root: Path, home: Path) -> Iterator[Served]:
    """A server in whose environment one setting is stated."""
    write_settings(home, BY_HAND)
    with serve(root, home, env={"SIDEQUEST_MAX_TURNS": "7"}) as server:
        yield server


@pytest.fixture
def file(home: Path) -> Path:
    """The settings file, as a person wrote it."""
    return write_settings(home, BY_HAND)


def go(page: Page, served: Served, path: str) -> None:
    page.goto(served.url + path)
    page.wait_for_function("window.did_handshake === true")


def save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).click()


def test_a_change_is_in_the_file_beside_the_comments(page: Page, served: Served, file: Path):
    go(page, served, "/settings")
    page.get_by_label("Seconds").fill("90")
    page.get_by_label("Commands", exact=True).fill("git push\n\nrm")
    page.get_by_label("Sandbox for commands").select_option("auto")
    save(page)
    expect(page.get_by_text("Saved.")).to_be_visible()
    text = file.read_text()
    assert text.startswith("max_seconds = 90   # a minute\n")
    assert 'sandbox = "auto"\n' in text
    assert 'paths = ["*.pem"] # keys\ncommands = ["git push", "rm"]\n' in text
    assert '[models."work/qwen"]   # under the desk\n' in text


def test_what_cannot_be_is_said_beside_its_field(page: Page, served: Served, file: Path):
    go(page, served, "/settings")
    page.get_by_label("Delegations at once").fill("11")
    save(page)
    expect(page.locator("#field-maxRunning-error")).to_contain_text("less than or equal to 10")
    expect(page.get_by_label("Delegations at once")).to_be_focused()
    assert file.read_text() == BY_HAND


def test_a_variable_that_beats_a_setting_is_named_and_its_field_is_off(
    page: Page, served: Served, file: Path
):
    go(page, served, "/settings")
    expect(page.get_by_label("Turns", exact=True)).to_be_disabled()
    expect(page.get_by_label("Turns", exact=True)).to_have_value("7")
    expect(page.get_by_text("The variable SIDEQUEST_MAX_TURNS beats this setting.")).to_be_visible()


def test_a_key_is_written_and_never_comes_back(page: Page, served: Served, file: Path):
    seen: list[str] = []
    page.on("websocket", lambda socket: socket.on("framereceived", lambda frame: seen.append(str(frame))))
    go(page, served, "/settings")
    page.get_by_role("link", name="Change work/qwen").click()
    page.wait_for_function("window.did_handshake === true")
    page.get_by_label("Key", exact=True).fill("another-secret-value")
    page.get_by_label("Context window").fill("65536")
    save(page)
    expect(page.get_by_text("set in the settings")).to_be_visible()
    text = file.read_text()
    assert 'api_key = "another-secret-value"' in text
    assert "context_window = 65536" in text
    assert file.stat().st_mode & 0o777 == 0o600
    go(page, served, "/settings/models?key=work%2Fqwen")
    assert not any(secret in page.content() + "".join(seen) for secret in (SECRET, "another-secret-value"))
    page.get_by_label("Remove the stored key").check()
    save(page)
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert "api_key" not in file.read_text()


def test_a_model_is_added_with_mistakes_named_and_taken_out_again(page: Page, served: Served, file: Path):
    go(page, served, "/settings")
    page.get_by_role("link", name="Add a model").click()
    page.wait_for_function("window.did_handshake === true")
    page.get_by_label("Model", exact=True).fill("nameless")
    page.get_by_label("Address").fill("ftp://x")
    save(page)
    expect(page.locator("#field-baseUrl-error")).to_contain_text("http://")
    page.get_by_label("Address").fill("http://127.0.0.1:9/v1")
    save(page)
    expect(page.locator("#field-key-error")).to_contain_text("provider/name")
    page.get_by_label("Model", exact=True).fill("home/big")
    save(page)
    page.get_by_role("link", name="Change home/big").click()
    page.wait_for_function("window.did_handshake === true")
    page.get_by_role("button", name="Remove from the settings").click()
    page.get_by_role("button", name="Remove", exact=True).click()
    expect(page.get_by_text("Saved.")).to_be_visible()
    assert file.read_text() == BY_HAND


@pytest.mark.parametrize("path", ["/settings", "/settings/models/new", "/settings/models?key=work%2Fqwen"])
def test_nothing_stands_over_the_edge_of_a_phone(page: Page, served: Served, file: Path, path: str):
    page.set_viewport_size({"width": 400, "height": 800})
    go(page, served, path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400


def test_another_browser_comes_in_by_a_link_of_a_signed_in_page(
    page: Page, served: Served, browser: Browser, file: Path
):
    page.goto(f"{served.url}/settings")
    page.get_by_role("button", name="Make a link").click()
    link = page.get_by_role("region", name="Other devices").locator(".mono").inner_text()
    other = browser.new_context()
    beside = other.new_page()
    beside.goto(link)
    expect(beside.get_by_role("heading", name="Sessions")).to_be_visible()
    other.close()
