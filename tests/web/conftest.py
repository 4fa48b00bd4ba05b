"""Chromium and a server for each module of tests that asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.surfaces.conftest import SOURCES
from tests.web.served import CHROMIUM, Served, serve

PATIENCE_MS = 20_000
"""How long a page may take for what a test expects of it: machines that test are slow at times."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a browser where there is none, and let it take its time."""
    for item in items:
        if "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(240))
            if not CHROMIUM:
                item.add_marker(pytest.mark.skip(reason="no Chromium on this machine"))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Headless Chromium, as Debian packages it.

    Not for longer than a module: while Playwright runs, no other test of this process can run an event loop.
    """
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the person who serves."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small project to work in."""
    folder = tmp_path_factory.mktemp("harbour")
    for name, text in SOURCES.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def served(root: Path, home: Path) -> Iterator[Served]:
    """A server on the embedded model, slowed down so that its work can be watched."""
    with serve(root, home, env={"SIDEQUEST_OFFLINE_DELAY_S": "0.15"}) as server:
        yield server


@pytest.fixture
def window(served: Served, browser: Browser) -> Iterator[BrowserContext]:
    """A browser window of somebody who has come in."""
    context = served.enter(browser, viewport={"width": 1280, "height": 800})
    yield context
    context.close()


@pytest.fixture
def page(window: BrowserContext) -> Page:
    """A page in that window; an error of a script in it fails the test."""
    page = window.new_page()
    page.on("pageerror", lambda error: pytest.fail(f"a script failed: {error}"))
    return page
