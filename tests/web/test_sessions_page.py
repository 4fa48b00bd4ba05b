"""The page Sessions: begin one, find one, rename, fork and delete it."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.web.served import Served

QUESTION = "Where is BERTH_LIMIT defined?"
SESSION = re.compile(r"/sessions/[0-9a-f]{32}$")


def begin(page: Page, served: Served, question: str = QUESTION) -> str:
    """Ask a question on the page Sessions and return the id of the session that began."""
    page.goto(served.url)
    prompt = page.get_by_placeholder("What should be done?")
    prompt.fill(question)
    prompt.press("Enter")
    page.wait_for_url(SESSION)
    return page.url.rsplit("/", 1)[1]


def choose(page: Page, title: str, action: str) -> None:
    """Take an action of the newest session with that title."""
    page.get_by_role("button", name=f"Actions of {title}").first.click()
    page.get_by_text(action, exact=True).click()


def test_a_session_begins_with_a_prompt_and_is_then_listed(page: Page, served: Served) -> None:
    begin(page, served)
    page.goto(served.url)
    row = page.get_by_role("listitem").filter(has_text=QUESTION).first
    expect(row.get_by_role("link", name=QUESTION)).to_be_visible()
    expect(row).to_contain_text("1 delegation")


def test_an_empty_prompt_begins_nothing(page: Page, served: Served) -> None:
    page.goto(served.url)
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_placeholder("What should be done?")).to_be_focused()
    assert page.url.rstrip("/") == served.url


def test_a_prompt_that_is_sent_twice_begins_one_session(page: Page, served: Served) -> None:
    page.goto(served.url)
    before = page.get_by_role("listitem").count()
    prompt = page.get_by_placeholder("What should be done?")
    prompt.fill("Where is the harbour?")
    prompt.evaluate(
        """(field) => {
          const enter = () => new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true });
          for (let times = 0; times < 3; times++) field.dispatchEvent(enter());
          field.form.requestSubmit();
        }"""
    )
    page.wait_for_url(SESSION)
    expect(page.locator(".answer").last).to_be_visible()
    page.goto(served.url)
    expect(page.get_by_role("listitem").filter(has_text="Where is the harbour?")).to_have_count(1)
    assert page.get_by_role("listitem").count() == before + 1
    expect(prompt).to_have_value("")


def test_a_prompt_is_there_after_a_reload(page: Page, served: Served) -> None:
    page.goto(served.url)
    prompt = page.get_by_placeholder("What should be done?")
    prompt.fill("Not yet sent")
    page.reload()
    expect(prompt).to_have_value("Not yet sent")


def test_a_folder_that_is_not_there_is_told_and_the_prompt_stays(page: Page, served: Served) -> None:
    page.goto(served.url)
    prompt = page.get_by_placeholder("What should be done?")
    prompt.fill(QUESTION)
    page.get_by_text("Folder, model and permissions").click()
    page.get_by_label("Folder", exact=True).fill("/nowhere/at/all")
    page.get_by_role("button", name="Start").click()
    expect(page.get_by_text("The folder /nowhere/at/all is not there.")).to_be_visible()
    expect(prompt).to_have_value(QUESTION)


def test_a_session_is_renamed_found_and_deleted(page: Page, served: Served) -> None:
    begin(page, served)
    page.goto(served.url)
    choose(page, QUESTION, "Rename")
    page.get_by_label("Title").fill("Berths <b>of</b> the harbour")
    page.get_by_role("button", name="Rename").click()
    renamed = page.get_by_role("link", name="Berths <b>of</b> the harbour")
    expect(renamed).to_be_visible()
    search = page.get_by_label("Search sessions")
    search.fill("harbour berths")
    expect(page.get_by_role("listitem")).to_have_count(1)
    search.fill("nobody ever said this")
    expect(page.get_by_text("Nothing says that.")).to_be_visible()
    search.fill("")
    choose(page, "Berths <b>of</b> the harbour", "Delete")
    page.get_by_role("button", name="Keep it").click()
    expect(renamed).to_be_visible()
    choose(page, "Berths <b>of</b> the harbour", "Delete")
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(renamed).to_have_count(0)


def test_a_menu_is_walked_through_with_the_arrows(page: Page, served: Served) -> None:
    begin(page, served, "Say something")
    page.goto(served.url)
    page.get_by_role("button", name="Actions of Say something").first.press("Enter")
    items = page.locator(".q-menu .q-item")
    expect(items).to_have_count(3)
    expect(page.locator(".q-menu")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(items.first).to_be_focused()
    page.keyboard.press("ArrowUp")
    expect(items.last).to_be_focused()
    page.keyboard.press("Home")
    expect(items.first).to_be_focused()


def test_a_fork_is_opened_and_says_where_it_comes_from(page: Page, served: Served) -> None:
    source = begin(page, served)
    page.goto(served.url)
    choose(page, QUESTION, "Fork")
    page.wait_for_url(SESSION)
    assert page.url.rsplit("/", 1)[1] != source
    page.goto(served.url)
    expect(page.get_by_role("listitem").filter(has_text=f"fork of {source[:8]}")).to_be_visible()


def test_another_window_sees_a_session_that_begins_here(page: Page, served: Served) -> None:
    other = page.context.new_page()
    other.goto(served.url)
    begin(page, served, "Where is HIGH_WATER_HOUR defined?")
    expect(other.get_by_role("link", name="Where is HIGH_WATER_HOUR defined?").first).to_be_visible()
