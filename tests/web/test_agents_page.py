"""The pages of subagents in a browser: see what there is, write one, be told what is wrong, lose nothing."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Dialog, Page, expect

from tests.surfaces.conftest import write_definition
from tests.web.served import Served

BY_HAND = """\
---
# The harbour master's.
name: tides
description: Reads the tide table.
color: cyan   # for another program
tools: [Read, Grep]
maxTurns: 15  # a table has 12 months
---

Read the table.
"""


@pytest.fixture
def mine(home: Path) -> Iterator[Path]:
    """The folder of the user's own definitions, empty before and after."""
    folder = home / ".agents/subagents"
    folder.mkdir(parents=True, exist_ok=True)
    yield folder
    for file in folder.iterdir():
        file.unlink()


def go(page: Page, served: Served, path: str) -> None:
    """Open a page and wait until the server takes its events."""
    page.goto(served.url + path)
    page.wait_for_function("window.did_handshake === true")


def error_of(page: Page, field: str) -> str:
    return page.locator(f"#field-{field}-error").inner_text()


def save(page: Page) -> None:
    page.get_by_role("button", name="Save", exact=True).click()


def test_a_subagent_is_written_with_each_mistake_named_beside_its_field(
    page: Page, served: Served, mine: Path
):
    go(page, served, "/agents")
    page.get_by_role("link", name="New subagent").click()
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    page.wait_for_function("window.did_handshake === true")

    for box in ("Read", "Glob", "Grep"):
        page.get_by_label(box, exact=True).uncheck()
    page.get_by_text("Advanced", exact=True).click()
    page.get_by_label("Max output tokens").fill("200001")
    page.get_by_label("Turn limit").fill("0.5")
    page.get_by_text("Advanced", exact=True).click()
    save(page)
    expect(page.get_by_text("6 fields need a correction.")).to_be_visible()
    expect(page.get_by_label("Name", exact=True)).to_be_focused()
    assert error_of(page, "name") == "Give it a name."
    assert error_of(page, "description").startswith("Say when to use it")
    assert error_of(page, "tools").startswith("Choose at least one tool")
    assert error_of(page, "body").startswith("Write the prompt")

    page.get_by_label("Name", exact=True).fill("Tide Reader")
    page.get_by_label("Description").fill("Reads tides.")
    page.get_by_label("Prompt").fill("Read them.")
    page.get_by_label("Read", exact=True).check()
    page.get_by_role("checkbox", name="Bash").check()
    expect(page.get_by_text("Its id is tide-reader.")).to_be_visible()
    expect(page.locator("#field-name-error")).to_be_hidden()
    save(page)
    # The next mistake is in a field that was folded away.
    expect(page.get_by_label("Max output tokens")).to_be_focused()
    assert "1 to 200,000" in error_of(page, "maxTokens")

    page.get_by_label("Max output tokens").fill("4000")
    page.get_by_label("Turn limit").fill("")
    preview = page.get_by_role("complementary", name="Preview").locator("pre")
    expect(preview).to_contain_text("maxTokens: 4000")
    shown = preview.inner_text()
    save(page)
    expect(page.get_by_text("Saved in ~/.agents/subagents/tide-reader.md.")).to_be_visible()
    assert shown.startswith("---\nname: Tide Reader\ndescription: Reads tides.\ntools:\n- Read\n- Bash\n")
    assert (mine / "tide-reader.md").read_text() == shown


def test_a_draft_is_there_after_a_reload_until_it_is_saved_or_left(page: Page, served: Served, mine: Path):
    page.on("dialog", lambda dialog: dialog.accept())
    go(page, served, "/agents/new")
    page.get_by_role("button", name="explorer").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("explorer")
    page.get_by_label("Name", exact=True).fill("Tide Reader")
    page.get_by_text("Advanced", exact=True).click()
    page.get_by_label("Model to add").select_option("offline/extractive")
    page.get_by_role("button", name="Add", exact=True).click()
    page.get_by_label("Thinking of offline/extractive").select_option("high")
    body = page.get_by_label("Prompt").input_value()
    page.reload()
    expect(page.get_by_label("Name", exact=True)).to_have_value("Tide Reader")
    expect(page.get_by_label("Prompt")).to_have_value(body)
    expect(page.get_by_label("Thinking of offline/extractive")).to_have_value("high")
    preview = page.get_by_role("complementary", name="Preview").locator("pre")
    expect(preview).to_contain_text("offline/extractive|high")
    save(page)
    expect(page.get_by_text("Saved in ~/.agents/subagents/tide-reader.md.")).to_be_visible()
    for path, field in (("/agents/new", ""), ("/agents/edit?name=tide-reader", "Tide Reader")):
        go(page, served, path)
        expect(page.get_by_label("Name", exact=True)).to_have_value(field)
        page.get_by_label("Name", exact=True).fill("Never saved")
        page.get_by_role("link", name="Cancel").click()
        expect(page.get_by_role("link", name="New subagent")).to_be_visible()
        go(page, served, path)
        expect(page.get_by_label("Name", exact=True)).to_have_value(field)


def test_a_prompt_that_is_too_large_is_counted_and_refused(page: Page, served: Served, mine: Path):
    go(page, served, "/agents/new")
    page.get_by_label("Name", exact=True).fill("big")
    page.get_by_label("Description").fill("Big.")
    page.get_by_label("Prompt").fill("x" * 28_000)
    expect(page.locator("#field-body-hint")).to_have_class(re.compile("near"))
    page.get_by_label("Prompt").fill("x" * 33_000)
    expect(page.locator("#field-body-hint")).to_have_class(re.compile("over"))
    save(page)
    expect(page.locator("#field-body-error")).to_contain_text("at most 32,768")
    assert list(mine.iterdir()) == []


def test_a_file_written_by_hand_keeps_everything_but_what_was_changed(page: Page, served: Served, mine: Path):
    file = write_definition(mine, "tides", BY_HAND)
    go(page, served, "/agents")
    page.get_by_role("link", name="Edit tides").click()
    page.wait_for_function("window.did_handshake === true")
    page.get_by_label("Turn limit").fill("20")
    page.get_by_label("Glob", exact=True).check()
    save(page)
    expect(page.get_by_text("Saved in")).to_be_visible()
    changed = BY_HAND.replace("[Read, Grep]", "[Read, Glob, Grep]").replace("15  #", "20  #")
    assert file.read_text() == changed


def test_a_file_that_changed_meanwhile_is_not_written_over(page: Page, served: Served, mine: Path):
    file = write_definition(mine, "tides", BY_HAND)
    go(page, served, "/agents/edit?name=tides")
    page.get_by_label("Turn limit").fill("20")
    theirs = BY_HAND.replace("Read the table.", "Read all of it.")
    file.write_text(theirs)
    save(page)
    expect(page.get_by_text("changed since it was read here")).to_be_visible()
    assert file.read_text() == theirs
    page.get_by_role("button", name="Put my changes into the file").click()
    expect(page.get_by_text("Saved in")).to_be_visible()
    assert file.read_text() == theirs.replace("15  #", "20  #")


def test_a_builtin_is_copied_switched_off_and_comes_back_when_the_copy_goes(
    page: Page, served: Served, mine: Path
):
    go(page, served, "/agents")
    page.get_by_role("link", name="Copy as mine: fixer").click()
    page.wait_for_function("window.did_handshake === true")
    expect(page.get_by_label("Name", exact=True)).to_have_value("fixer")
    save(page)
    expect(page.get_by_text("Comes before the built-in fixer.")).to_be_visible()
    own = page.get_by_role("region", name="Mine").get_by_role("switch", name="fixer is on")
    own.focus()
    page.keyboard.press("Space")
    expect(own).to_have_attribute("aria-checked", "false")
    expect(own).to_be_focused()
    expect(page.get_by_text("Comes before the built-in fixer.")).to_have_count(0)
    page.get_by_role("button", name="Delete fixer").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("Deleted ~/.agents/subagents/fixer.md.")).to_be_visible()
    assert list(mine.iterdir()) == []


def test_a_preset_fills_the_texts_and_never_replaces_yours_unasked(page: Page, served: Served, mine: Path):
    go(page, served, "/agents/new")
    page.get_by_role("button", name="explorer", exact=True).click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("explorer")
    expect(page.get_by_role("checkbox", name="Bash")).to_be_checked()
    page.get_by_label("Name", exact=True).fill("my own")
    page.get_by_role("button", name="fixer", exact=True).click()
    page.get_by_role("button", name="Keep it").click()
    expect(page.get_by_label("Name", exact=True)).to_have_value("my own")


def test_fallbacks_are_added_ordered_and_removed_by_keyboard(page: Page, served: Served, mine: Path):
    text = BY_HAND.replace("maxTurns", "fallbackModels: [a/one, b/two]\nmaxTurns")
    file = write_definition(mine, "tides", text)
    go(page, served, "/agents/edit?name=tides")
    page.get_by_label("Move b/two up").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Move b/two down")).to_be_focused()
    page.get_by_label("Model to add").select_option("offline/extractive")
    page.get_by_role("button", name="Add", exact=True).click()
    expect(page.get_by_label("Remove offline/extractive")).to_be_visible()
    page.get_by_label("Thinking of a/one").select_option("high")
    page.get_by_label("Remove b/two").click()
    expect(page.get_by_label("Remove b/two")).to_have_count(0)
    save(page)
    expect(page.get_by_text("Saved in")).to_be_visible()
    assert file.read_text() == text.replace("[a/one, b/two]", "[a/one|high, offline/extractive]")


def test_one_is_switched_off_in_the_editor_and_its_file_stays(page: Page, served: Served, mine: Path):
    file = mine / "resting.md"
    file.write_text("---\nname: resting\ndescription: Rests.\ntools: Read\n---\nRest.\n")
    before = file.read_text()
    for active in (False, True):
        page.goto(f"{served.url}/agents/edit?name=resting")
        box = page.get_by_label("Parent agents may use it")
        expect(box).to_be_checked(checked=not active)
        box.set_checked(active)
        page.get_by_role("button", name="Save").click()
        page.wait_for_url("**/agents?saved=resting")
    page.goto(f"{served.url}/agents/edit?name=resting")
    expect(page.get_by_label("Parent agents may use it")).to_be_checked()
    assert file.read_text() == before


def test_leaving_with_changes_asks_first(page: Page, served: Served, mine: Path):
    asked: list[str] = []

    def stay(dialog: Dialog) -> None:
        asked.append(dialog.type)
        dialog.dismiss()

    go(page, served, "/agents/new")
    page.on("dialog", stay)
    page.get_by_label("Name", exact=True).press_sequentially("kept")
    page.get_by_role("link", name="Cancel").click(no_wait_after=True)
    page.wait_for_timeout(300)
    assert asked == ["beforeunload"]
    expect(page.get_by_label("Name", exact=True)).to_have_value("kept")


def test_a_file_that_does_not_load_is_shown_with_its_line_and_its_path(
    page: Page, served: Served, mine: Path
):
    write_definition(mine, "broken", "---\nname: broken\ntools: Read\nmodel: /x\n---\n\nDo it.\n")
    go(page, served, "/agents")
    row = page.get_by_role("listitem").filter(has=page.get_by_role("heading", name="broken"))
    expect(row.get_by_text("Line 4")).to_be_visible()
    row.get_by_role("button", name="Reveal").click()
    expect(row.get_by_text(str(mine / "broken.md"))).to_be_visible()
    row.get_by_role("button", name="Show file").click()
    expect(row.locator("pre")).to_contain_text("model: /x")


def test_a_project_is_trusted_after_a_look(page: Page, served: Served, mine: Path, root: Path):
    text = "---\nname: <img src=x onerror=alert(1)>\ndescription: <b>Brings</b> ships in.\n---\n\nGo.\n"
    file = write_definition(root / ".agents/subagents", "pilot", text)
    try:
        go(page, served, "/agents")
        expect(page.get_by_text("<b>Brings</b> ships in.")).to_be_visible()
        expect(page.get_by_text("not trusted")).to_have_count(1)
        page.get_by_role("button", name="Trust this folder").click()
        expect(page.get_by_text("You trust this folder as it is now.")).to_be_visible()
        page.get_by_role("button", name="Trust it no longer").click()
        expect(page.get_by_role("button", name="Trust this folder")).to_be_visible()
    finally:
        file.unlink()


@pytest.mark.parametrize("path", ["/agents", "/agents/new", "/agents/edit?name=tides"])
def test_nothing_stands_over_the_edge_of_a_phone(page: Page, served: Served, mine: Path, path: str):
    write_definition(mine, "tides", BY_HAND.replace("Read, Grep", f"Read, mcp__{'harbour' * 12}"))
    page.set_viewport_size({"width": 400, "height": 800})
    go(page, served, path)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
