"""Makes the pictures of `docs/img`: each main page in light and dark, on a desk and on a phone.

Run it with `make screenshots`. It serves a copy of this source tree with its own settings and definitions, so
that every machine gets the same pages; only times and folders differ.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.web.served import CHROMIUM, Served, serve

REPOSITORY = Path(__file__).parent.parent.parent
PICTURES = REPOSITORY / "docs/img"
SIZES = {"desktop": {"width": 1280, "height": 860}, "phone": {"width": 400, "height": 860}}
LOOKS = ("light", "dark")
SETTLE_MS = 1_000
PROMPTS = (
    "Where is a report neutralised before the parent reads it?",
    "Which code compares the size of a request with hard_limit?",
    "Where is the context window of a model decided?",
)
WATCHED = """\
- Where is hard_limit of a ContextBudget computed?
- Where is a compaction of the parent stored?
- Where are permission questions queued?"""
"""Becomes one delegation for each question."""
SETTINGS = """\
default_model = "offline/extractive"
permission_mode = "ask"
sandbox = "auto"

[models."offline/small"]
context_window = 6000

[deny]
paths = ["**/.env"]
commands = ["git push"]
"""
EXPLORER = (REPOSITORY / "examples/demo/agents/explorer.md").read_text()
MINE = """\
---
name: release-notes
description: Writes release notes from the commits since the last tag, grouped by what a user notices.
tools: Read, Grep, Glob, Bash
maxTokens: 4000
---

You write release notes. Group changes by what a user notices; leave out what nobody notices.
"""
FOREIGN = """\
---
name: schema-reviewer
description: Reviews database migrations for locks and lost data.
tools: Read, Grep, WebSearch
model: sonnet
---

You review migrations.
"""


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        root, home = _places(Path(folder))
        env = {"SIDEQUEST_OFFLINE_DELAY_S": "0.2"}
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        with serve(root, home, env=env) as served:
            _some_work(served, browser)
            shutil.rmtree(PICTURES, ignore_errors=True)
            PICTURES.mkdir(parents=True)
            for name, page in _pages(served, browser):
                page.screenshot(path=PICTURES / f"{name}.png")
                print(PICTURES / f"{name}.png")
        browser.close()


def _places(folder: Path) -> tuple[Path, Path]:
    root, home = folder / "sidequest", folder / "home"
    shutil.copytree(REPOSITORY / "src", root / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for place, text in {
        home / ".config/sidequest/config.toml": SETTINGS,
        home / ".agents/subagents/explorer.md": EXPLORER,
        home / ".agents/subagents/release-notes.md": MINE,
        root / ".claude/agents/schema-reviewer.md": FOREIGN,
    }.items():
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return root, home


def _begin(page: Page, served: Served, prompt: str) -> str:
    """Ask something in a new session and return its id."""
    page.goto(served.url)
    field = page.get_by_placeholder("What should be done?")
    field.fill(prompt)
    field.press("Enter")
    page.wait_for_url("**/sessions/*")
    return page.url.rsplit("/", 1)[1]


def _some_work(served: Served, browser: Browser) -> None:
    """Let some sessions be worked on, one after the other, to their ends."""
    context = served.enter(browser)
    page = context.new_page()
    for prompt in PROMPTS:
        _begin(page, served, prompt)
        expect(page.get_by_role("button", name="Send")).to_be_visible(timeout=120_000)
    context.close()


def _pages(served: Served, browser: Browser) -> Iterator[tuple[str, Page]]:
    places = {"sessions": "/", "subagents": "/agents", "editor": "/agents/new", "settings": "/settings"}
    for look in LOOKS:
        for size, viewport in SIZES.items():
            context = served.enter(browser, viewport=viewport, color_scheme=look)
            for name, path in places.items():
                page = context.new_page()
                page.goto(served.url + path)
                expect(page.locator("h1").first).to_be_visible()
                page.wait_for_timeout(SETTLE_MS)
                yield f"{name}-{size}-{look}", page
                page.close()
            page = context.new_page()
            _begin(page, served, WATCHED)
            expect(page.get_by_text("compacted").first).to_be_visible(timeout=60_000)
            page.wait_for_timeout(SETTLE_MS)
            yield f"session-{size}-{look}", page
            context.close()


if __name__ == "__main__":
    main()
