"""The page of a session: what happens is seen as it happens, by everybody who looks, and can be acted on."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, expect

from tests.support.gate import Gate
from tests.support.provider import LoopbackProvider
from tests.web.conftest import PATIENCE_MS
from tests.web.lab import EVIL, LONG, WRITTEN, Lab
from tests.web.served import Served, serve
from tests.web.test_sessions_page import begin

HELPER = """\
---
name: helper
description: Reads files and reports.
tools: Read
---

You help.
"""


@pytest.fixture(scope="module")
def lab() -> Lab:
    """What the model of this module does."""
    return Lab()


@pytest.fixture(scope="module")
def served(root: Path, home: Path, lab: Lab) -> Iterator[Served]:
    """A server on a scripted model behind a real connection."""
    with LoopbackProvider(lab).run_in_thread() as provider:
        settings = home / ".config/sidequest/config.toml"
        settings.parent.mkdir(parents=True)
        settings.write_text(
            f'default_model = "lab/test"\n[models."lab/test"]\nbase_url = "{provider.openai_url}"\n'
            'api_key = "k"\ncontext_window = 32000\n'
        )
        definition = home / ".agents/subagents/helper.md"
        definition.parent.mkdir(parents=True)
        definition.write_text(HELPER)
        with serve(root, home, env={"NO_PROXY": "127.0.0.1"}) as server:
            yield server


@pytest.fixture
def held(lab: Lab) -> Iterator[dict[str, Gate]]:
    """Delegations 1 to 3 wait here before they report."""
    lab.gates = {str(number): Gate() for number in range(1, 4)}
    yield lab.gates
    for gate in lab.gates.values():
        gate.open()
    lab.gates = {}


def send(page: Page, text: str) -> None:
    field = page.get_by_label(re.compile("^Message to the agent"))
    field.fill(text)
    field.press("Enter")


def cards(page: Page) -> Locator:
    return page.locator(".delegation")


def card(page: Page, number: int) -> Locator:
    return page.get_by_role("article", name=re.compile(rf"^Delegation {number}:"))


def answers(page: Page) -> list[str]:
    """Return the first line of each answer of the session's own agent."""
    said = page.locator(".conversation > .answer").all_inner_texts()
    return [text.splitlines()[0] for text in said]


def finished(page: Page) -> None:
    expect(page.locator(".conversation .answer").last).to_contain_text("All done.")
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()


def finished_saying(page: Page, text: str) -> None:
    expect(page.locator(".conversation .answer").last).to_contain_text(text)
    expect(page.get_by_role("button", name="Send", exact=True)).to_be_enabled()


def conversation(page: Page) -> str:
    """Return everything the conversation says, without clocks and what can be done with it."""
    text = page.locator(".conversation").inner_text().replace("Fork from here", "")
    return " ".join(re.sub(r"\d+(?:\.\d)?s\b|\d+m \d+s", "", text).split())


def comes_to(page: Page, wanted: str) -> None:
    """Wait until the conversation says `wanted`, and see that it stays."""
    deadline = time.monotonic() + PATIENCE_MS / 1000
    while conversation(page) != wanted and time.monotonic() < deadline:
        page.wait_for_timeout(50)
    page.wait_for_timeout(500)
    assert conversation(page) == wanted


def test_three_delegations_are_watched_live_in_one_group(
    page: Page, served: Served, held: dict[str, Gate]
) -> None:
    begin(page, served, "delegate 3")
    expect(cards(page)).to_have_count(3)
    for number in (1, 2, 3):
        expect(card(page, number)).to_contain_text("working")
        expect(card(page, number)).to_contain_text("1 tool call")
    group = page.get_by_role("region", name="Delegations of the parent agent")
    expect(group).to_contain_text("Parent agent → 3 delegations · 3 working")
    clock = card(page, 1).locator(".delegation-elapsed")
    before = clock.inner_text()
    expect(clock).not_to_have_text(before)
    held["2"].open()
    expect(card(page, 2)).to_contain_text("completed")
    expect(card(page, 1)).to_contain_text("working")
    expect(group).to_contain_text("2 working")
    held["1"].open()
    held["3"].open()
    finished(page)
    expect(group).to_contain_text("3 completed")
    gauge = card(page, 1).get_by_role("meter")
    assert re.match(r"[\d,]+ of [\d,]+ tokens", gauge.get_attribute("aria-valuetext") or "")


def test_a_card_opens_to_brief_report_and_steps(page: Page, served: Served) -> None:
    begin(page, served, "delegate 1")
    finished(page)
    expect(page.locator(".group.many")).to_have_count(0)
    one = card(page, 1)
    one.get_by_role("button", name="helper").click()
    expect(one).to_contain_text("Report of 1: Berths and tides.")
    one.get_by_role("button", name="Brief").click()
    expect(one.locator(".plain").first).to_contain_text("Do job-1.")
    one.get_by_role("button", name="Steps").click()
    expect(one).to_contain_text("First I read.")
    one.get_by_role("button", name="Read").click()
    expect(one).to_contain_text("Berths and tides.\n")


def test_a_reload_in_the_middle_shows_the_same_and_goes_on(
    page: Page, served: Served, held: dict[str, Gate]
) -> None:
    begin(page, served, "delegate 2")
    for number in (1, 2):
        expect(card(page, number)).to_contain_text("2 turns")
        expect(card(page, number)).to_contain_text("Thinking")
    before = conversation(page)
    page.reload()
    expect(cards(page)).to_have_count(2)
    assert conversation(page) == before
    held["1"].open()
    held["2"].open()
    finished(page)
    assert answers(page) == ["I hand it on.", "They work.", "All done."]
    live = conversation(page)
    page.reload()
    finished(page)
    assert conversation(page) == live


def test_a_lost_connection_catches_up_without_gaps_or_doubles(
    page: Page, window: BrowserContext, served: Served, held: dict[str, Gate]
) -> None:
    begin(page, served, "delegate 3")
    for number in (1, 2, 3):
        expect(card(page, number)).to_contain_text("1 tool call")
    window.set_offline(True)
    page.evaluate("window.socket?.io?.engine?.close()")
    for gate in held.values():
        gate.open()
    page.wait_for_timeout(5_000)
    assert "All done." not in answers(page)
    window.set_offline(False)
    finished(page)
    fresh = window.new_page()
    fresh.goto(page.url)
    finished(fresh)
    assert answers(fresh) == ["I hand it on.", "They work.", "All done."]
    comes_to(page, conversation(fresh))


def message(page: Page) -> Locator:
    return page.get_by_label(re.compile("^Message to the agent"))


def test_a_message_leaves_its_field_only_when_it_was_taken(
    page: Page, window: BrowserContext, served: Served
) -> None:
    begin(page, served, "Begin.")
    finished_saying(page, "You said: Begin.")
    window.set_offline(True)
    page.evaluate("window.socket.io.engine.close()")
    send(page, "Sent while nobody heard it.")
    message(page).press("Enter")
    page.wait_for_timeout(500)
    expect(message(page)).to_have_value("Sent while nobody heard it.")
    window.set_offline(False)
    finished_saying(page, "You said: Sent while nobody heard it.")
    expect(message(page)).to_have_value("")
    assert len(page.locator(".prompt").all()) == 2


def test_a_message_that_is_too_long_is_refused_with_a_word_and_stays(page: Page, served: Served) -> None:
    begin(page, served, "Begin.")
    finished_saying(page, "You said: Begin.")
    fill = "(field, chars) => { field.value = 'x'.repeat(chars); }"
    message(page).evaluate(fill, 900_000)
    message(page).press("Enter")
    expect(page.locator(".complaint")).to_contain_text("too long to send: it has 900,000 characters")
    assert message(page).evaluate("(field) => field.value.length") == 900_000


def test_a_draft_is_there_after_a_reload_until_it_is_sent(page: Page, served: Served) -> None:
    begin(page, served, "Begin.")
    finished_saying(page, "You said: Begin.")
    message(page).fill("Half a thought")
    page.reload()
    expect(message(page)).to_have_value("Half a thought")
    message(page).press("Enter")
    finished_saying(page, "You said: Half a thought")
    page.reload()
    finished_saying(page, "You said: Half a thought")
    expect(message(page)).to_have_value("")


def test_messages_that_never_arrived_do_not_undo_what_happened_since(
    page: Page, window: BrowserContext, served: Served, held: dict[str, Gate]
) -> None:
    begin(page, served, "delegate 3")
    for number in (1, 2, 3):
        expect(card(page, number)).to_contain_text("1 tool call")
    # From here on the page behaves as if nothing had arrived, and the server keeps all that it sends.
    page.evaluate("window.ackedMessageId = Infinity; window.arrived = window.nextMessageId")
    held["1"].open()
    expect(card(page, 1)).to_contain_text("completed")
    page.evaluate(
        """() => {
          const { socket } = window;
          socket.disconnect();
          socket.io.opts.query.next_message_id = window.nextMessageId = window.arrived;
        }"""
    )
    other = window.new_page()
    other.goto(page.url)
    for gate in held.values():
        gate.open()
    finished(other)
    page.evaluate("window.still_here = true; window.socket.connect()")
    comes_to(page, conversation(other))
    assert page.evaluate("window.still_here")


def test_two_windows_see_one_conversation(
    page: Page, window: BrowserContext, served: Served, held: dict[str, Gate]
) -> None:
    begin(page, served, "delegate 2")
    other = window.new_page()
    other.goto(page.url)
    for each in (page, other):
        expect(card(each, 2)).to_contain_text("1 tool call")
    held["1"].open()
    held["2"].open()
    for each in (page, other):
        finished(each)
    assert conversation(page) == conversation(other)
    field = other.get_by_label(re.compile("^Message to the agent"))
    field.fill("And this?")
    field.press("Enter")
    for each in (page, other):
        expect(each.locator(".conversation")).to_contain_text("You said: And this?")


def test_a_question_shows_what_would_be_written_and_goes_everywhere_when_it_is_answered(
    page: Page, window: BrowserContext, served: Served
) -> None:
    begin(page, served, "write a file")
    other = window.new_page()
    other.goto(page.url)
    question = page.get_by_role("alertdialog", name="Permission question")
    expect(question).to_contain_text("Parent agent asks: Write new.txt")
    expect(question.locator(".added").last).to_contain_text(f"+{WRITTEN.strip()}")
    expect(other.get_by_role("alertdialog", name="Permission question")).to_be_visible()
    assert not (served.root / "new.txt").exists()
    other.get_by_role("button", name="Allow once").click()
    expect(question).to_be_hidden()
    finished(page)
    assert (served.root / "new.txt").read_text() == WRITTEN


def test_a_change_is_allowed_only_when_all_of_it_has_been_shown(page: Page, served: Served) -> None:
    begin(page, served, "write a long file")
    question = page.get_by_role("alertdialog", name="Permission question")
    allow = question.get_by_role("button", name="Allow once")
    expect(allow).to_be_disabled()
    expect(question.get_by_role("button", name="Allow for this session")).to_be_disabled()
    expect(question).not_to_contain_text("+line 499")
    question.get_by_role("button", name=re.compile("^Show the other")).click()
    expect(question).to_contain_text("+line 499")
    allow.click()
    finished(page)
    assert (served.root / "long.txt").read_text() == LONG


@pytest.mark.parametrize("width", [1280, 390])
def test_a_question_shows_a_long_command_to_its_end(page: Page, served: Served, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    begin(page, served, f"run: echo {'word ' * 60}{'x' * 200};\t{' ' * 900} rm -rf everything")
    question = page.get_by_role("alertdialog", name="Permission question")
    line = question.locator(".code-line")
    expect(line).to_contain_text("⟨902 blanks⟩rm -rf everything")
    sizes = question.locator(".code").evaluate("box => [box.scrollWidth, box.clientWidth]")
    assert sizes[0] <= sizes[1]
    question.get_by_role("button", name="Deny").click()
    finished(page)


def test_a_click_meant_for_one_question_does_not_allow_the_next(page: Page, served: Served) -> None:
    begin(page, served, "run: touch first.txt || touch second.txt")
    question = page.get_by_role("alertdialog", name="Permission question")
    first = question.locator(".code-line").inner_text()
    # A hand that clicks wherever something can be allowed, as soon as it is there.
    page.evaluate(
        """() => {
          const click = () => document.querySelectorAll("[data-allows]").forEach((one) => one.click());
          const card = document.querySelector(".question");
          new MutationObserver(click).observe(card, { childList: true, subtree: true });
        }"""
    )
    question.get_by_role("button", name="Allow once").click()
    expect(question.locator(".code-line")).not_to_have_text(first)
    allow = question.get_by_role("button", name="Allow once")
    expect(allow).to_be_enabled()
    question.get_by_role("button", name="Deny").click()
    finished(page)
    assert "first.txt" in first
    assert (served.root / "first.txt").exists()
    assert not (served.root / "second.txt").exists()


def test_a_question_is_denied_with_a_note_for_the_model(page: Page, served: Served) -> None:
    begin(page, served, "write it again")
    question = page.get_by_role("alertdialog", name="Permission question")
    question.get_by_label("Note for the model").fill("Not in this folder.")
    question.get_by_role("button", name="Deny").click()
    finished(page)
    expect(page.locator(".tool")).to_contain_text("denied")
    page.locator(".tool-line").click()
    expect(page.locator(".tool .plain")).to_contain_text("Not in this folder.")


def test_what_was_opened_while_it_ran_is_read_again_when_it_has_ended(
    page: Page, served: Served, held: dict[str, Gate]
) -> None:
    begin(page, served, "delegate 1")
    waiting = page.locator(".conversation > .tool")
    waiting.get_by_role("button").click()
    expect(waiting).to_contain_text("Nothing is stored of a result yet.")
    held["1"].open()
    expect(waiting.locator(".plain")).to_contain_text("Report of 1")


def test_a_subagent_that_could_run_commands_is_confirmed_first(page: Page, served: Served) -> None:
    runner = HELPER.replace("helper", "runner").replace("tools: Read", "tools: Read, Bash")
    (served.home / ".agents/subagents/runner.md").write_text(runner)
    begin(page, served, "risky work")
    question = page.get_by_role("alertdialog", name="Permission question")
    expect(question).to_contain_text("Parent agent asks: start runner on lab/test")
    expect(question).to_contain_text("It can")
    expect(question).to_contain_text("Do job-risky.")
    expect(cards(page)).to_have_count(0)
    expect(question).to_contain_text("For this session: starts of runner")
    question.get_by_role("button", name="Allow once").click()
    expect(card(page, 1)).to_contain_text("completed")
    finished(page)
    send(page, "risky again")
    expect(question).to_contain_text("Do job-risky.")
    question.get_by_role("button", name="Allow for this session").click()
    expect(card(page, 2)).to_contain_text("completed")
    finished(page)
    send(page, "risky once more")
    expect(card(page, 3)).to_contain_text("completed")


def test_subagents_that_ask_say_so_and_are_told_apart(page: Page, served: Served) -> None:
    writer = HELPER.replace("helper", "writer").replace("tools: Read", "tools: Read, Write")
    (served.home / ".agents/subagents/writer.md").write_text(writer)
    begin(page, served, "two writers")
    question = page.get_by_role("alertdialog", name="Permission question")
    question.get_by_role("button", name="Allow for this session").click()
    for number in (1, 2):
        expect(card(page, number)).to_contain_text("asks you")
        expect(card(page, number)).to_contain_text("Waits for your permission")
    expect(page.locator(".composer")).to_contain_text("Waits for your permission")
    expect(question).to_contain_text(re.compile(r"Parent agent › #[12] writer \(\w+\) asks: Write w[12]"))
    asked = question.inner_text()
    question.get_by_role("button", name="Deny").click()
    expect(question).not_to_have_text(asked)
    question.get_by_role("button", name="Allow once").click()
    finished(page)
    assert sum((served.root / f"w{number}.txt").exists() for number in (1, 2)) == 1


def test_a_stop_ends_the_turn_and_says_so(page: Page, served: Served, held: dict[str, Gate]) -> None:
    begin(page, served, "delegate 2")
    expect(card(page, 2)).to_contain_text("1 tool call")
    page.locator(".composer").get_by_role("button", name="Stop").click()
    for number in (1, 2):
        expect(card(page, number)).to_contain_text("stopped")
    expect(page.locator(".trouble")).to_contain_text("Stopped")
    page.get_by_label(re.compile("^Message to the agent")).fill("Go on.")
    page.get_by_role("button", name="Send", exact=True).click()
    expect(page.locator(".conversation")).to_contain_text("You said: Go on.")


def test_one_delegation_is_stopped_and_another_one_resumed(
    page: Page, served: Served, held: dict[str, Gate]
) -> None:
    begin(page, served, "delegate 2")
    expect(card(page, 1)).to_contain_text("1 tool call")
    card(page, 1).get_by_role("button", name="helper").click()
    card(page, 1).get_by_role("button", name="Stop").click()
    expect(card(page, 1)).to_contain_text("stopped")
    expect(card(page, 2)).to_contain_text("working")
    held["2"].open()
    finished(page)
    expect(card(page, 1).get_by_role("button", name="Resume", exact=True)).to_be_hidden()
    card(page, 2).get_by_role("button", name="helper").click()
    card(page, 2).get_by_role("button", name="Resume", exact=True).click()
    card(page, 2).get_by_role("button", name="Resume with this instruction").click()
    expect(card(page, 2).get_by_role("alert")).to_contain_text("The instruction is empty.")
    card(page, 2).get_by_label("Instruction for the subagent").fill("Now do job-7 too.")
    card(page, 2).get_by_role("button", name="Resume with this instruction").click()
    expect(card(page, 3)).to_contain_text("completed")
    card(page, 3).get_by_role("button", name="helper").click()
    expect(card(page, 3)).to_contain_text("Report of 7")
    expect(card(page, 3)).to_contain_text("Goes on with the work of delegation #2.")


def test_a_report_full_of_scripts_is_text_and_does_not_freeze_the_page(page: Page, served: Served) -> None:
    begin(page, served, "evil please")
    finished(page)
    one = card(page, 1)
    one.get_by_role("button", name="helper").click()
    expect(one).to_contain_text("<script>window.evil = 1</script>")
    assert page.evaluate("window.evil") is None
    assert one.locator("script, img, [onerror]").count() == 0
    assert [link.get_attribute("href") for link in one.get_by_role("link").all()] == [
        "https://example.org/there"
    ]
    one.get_by_role("button", name=re.compile("Show all")).click()
    expect(one.locator(".markdown-plain")).to_contain_text("filler")
    assert len(one.locator(".markdown-plain").inner_text()) > len(EVIL) - 10_000
    assert page.evaluate("window.evil") is None
    page.get_by_label(re.compile("^Message to the agent")).fill("Still there?")
    page.keyboard.press("Enter")
    expect(page.locator(".conversation")).to_contain_text("You said: Still there?")


def test_a_link_opens_beside_the_page(page: Page, window: BrowserContext, served: Served) -> None:
    begin(page, served, "evil please")
    finished(page)
    window.route("https://example.org/**", lambda route: route.fulfill(body="out there"))
    card(page, 1).get_by_role("button", name="helper").click()
    with window.expect_page() as opened:
        card(page, 1).get_by_role("link").click()
    opened.value.wait_for_url("https://example.org/there")
    assert opened.value.evaluate("window.opener") is None
    assert "/sessions/" in page.url


def test_compact_is_a_divider_and_a_notice(page: Page, served: Served) -> None:
    begin(page, served, "delegate 2")
    finished(page)
    field = page.get_by_label(re.compile("^Message to the agent"))
    field.fill("/compact keep the names")
    field.press("Enter")
    expect(page.locator(".divider")).to_contain_text("Context compacted")
    toast = page.locator(".toast")
    expect(toast).to_contain_text("Context compacted")
    ink = page.evaluate("getComputedStyle(document.body).color")
    expect(toast).to_have_css("color", ink)
    page.locator(".divider-line").click()
    expect(page.locator(".divider")).to_contain_text("FOUND-SO-FAR")
    page.reload()
    expect(page.locator(".divider")).to_have_count(1)


def test_the_context_is_shown_for_the_session_and_for_a_delegation(page: Page, served: Served) -> None:
    begin(page, served, "delegate 1")
    finished(page)
    page.get_by_role("button", name="Context", exact=True).click()
    panel = page.get_by_role("complementary", name="Context")
    for part in ("Instructions", "Tools", "Messages", "Tool results", "Reserve"):
        expect(panel.locator(".legend")).to_contain_text(part)
    expect(panel.locator("tbody tr")).to_have_count(3)
    expect(panel.locator("svg.plot")).to_have_attribute("aria-label", re.compile("over 3 requests"))
    expect(panel).to_be_focused()
    page.keyboard.press("Escape")
    expect(panel).to_be_hidden()
    card(page, 1).get_by_role("button", name="helper").click()
    card(page, 1).get_by_role("button", name="Context").click()
    expect(panel).to_contain_text("Context of #1 helper")
    expect(panel.locator("tbody tr")).to_have_count(2)


@pytest.mark.parametrize("size", [(1440, 900), (1024, 700), (844, 390), (390, 800)])
def test_the_open_context_covers_nothing_that_stops_or_denies(
    page: Page, served: Served, held: dict[str, Gate], size: tuple[int, int]
) -> None:
    page.set_viewport_size({"width": size[0], "height": size[1]})
    begin(page, served, "delegate 1")
    card(page, 1).get_by_role("button", name="helper").click()
    card(page, 1).get_by_role("button", name="Context").click()
    panel = page.get_by_role("complementary", name="Context")
    expect(panel.locator("tbody tr")).to_have_count(2)
    expect(panel).to_be_in_viewport()
    card(page, 1).get_by_role("button", name="Stop").click(trial=True)
    page.locator(".composer").get_by_role("button", name="Stop").click()
    expect(page.locator(".trouble")).to_contain_text("Stopped")
    send(page, "run: touch nothing")
    question = page.get_by_role("alertdialog", name="Permission question")
    page.locator(".composer").get_by_role("button", name="Stop").click(trial=True)
    question.get_by_role("button", name="Deny").click()
    finished(page)
    page.get_by_role("button", name="Send", exact=True).click(trial=True)


def test_model_and_mode_can_be_changed_between_turns_only_and_every_window_shows_it(
    page: Page, window: BrowserContext, served: Served, held: dict[str, Gate]
) -> None:
    begin(page, served, "delegate 1")
    model, mode = page.get_by_label("Model"), page.get_by_label("Permission mode")
    expect(card(page, 1)).to_contain_text("1 tool call")
    expect(model).to_be_disabled()
    expect(mode).to_be_disabled()
    held["1"].open()
    finished(page)
    other = window.new_page()
    other.goto(page.url)
    mode.select_option("auto")
    expect(other.get_by_label("Permission mode")).to_have_value("auto")
    model.select_option("offline/extractive")
    expect(other.get_by_label("Model")).to_have_value("offline/extractive")
    page.reload()
    expect(mode).to_have_value("auto")
    expect(model).to_have_value("offline/extractive")


def test_a_session_is_renamed_and_forked_from_an_answer(page: Page, served: Served) -> None:
    begin(page, served, "Say one thing.")
    expect(page.locator(".answer")).to_contain_text("You said: Say one thing.")
    page.get_by_role("button", name="Rename").click()
    page.get_by_label("Title").fill("The first thing")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="The first thing")).to_be_visible()
    before = page.url
    page.get_by_role("button", name="Fork from here").click()
    page.wait_for_url(lambda url: url != before)
    expect(page.locator(".answer")).to_contain_text("You said: Say one thing.")


def test_everything_is_done_with_the_keyboard_alone(page: Page, served: Served) -> None:
    begin(page, served, "delegate 1")
    finished(page)
    head = card(page, 1).get_by_role("button", name="helper")
    for _ in range(40):
        page.keyboard.press("Tab")
        if head.evaluate("element => element === document.activeElement"):
            break
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-expanded", "true")
    expect(card(page, 1)).to_contain_text("Report of 1")


def test_the_focus_stays_where_one_goes_on(page: Page, served: Served) -> None:
    begin(page, served, "write a file")
    allow = page.get_by_role("button", name="Allow once")
    expect(allow).to_be_enabled()
    allow.press("Enter")
    expect(page.get_by_label(re.compile("^Message to the agent"))).to_be_focused()
    finished(page)
    opener = page.locator(".session-tools").get_by_role("button", name="Context")
    opener.press("Enter")
    expect(page.get_by_role("complementary", name="Context")).to_be_focused()
    page.keyboard.press("Escape")
    expect(opener).to_be_focused()
    rename = page.get_by_role("button", name="Rename")
    rename.press("Enter")
    expect(page.get_by_label("Title")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.get_by_label("Title")).to_be_hidden()
    expect(rename).to_be_focused()
    rename.press("Enter")
    page.get_by_label("Title").fill("Another title")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Another title")).to_be_focused()


@pytest.mark.parametrize("look", ["light", "dark"])
def test_nothing_is_wider_than_a_phone(browser: Browser, served: Served, look: str) -> None:
    context = served.enter(browser, viewport={"width": 400, "height": 800}, color_scheme=look)
    page = context.new_page()
    begin(page, served, "delegate 3")
    finished(page)
    for head in page.locator(".delegation-head").all():
        head.click()
    assert page.evaluate("document.documentElement.scrollWidth") == 400
    expect(page.locator(".answer .markdown").last).to_be_visible()
    context.close()


def test_compact_is_a_command_however_it_is_written(page: Page, served: Served) -> None:
    begin(page, served, "Hi")
    expect(page.locator(".conversation")).to_contain_text("You said: Hi")
    field = page.get_by_label(re.compile("^Message to the agent"))
    for text in ("/Compact", "/compact\nthe numbers"):
        expect(page.get_by_role("button", name="Send", exact=True)).to_be_visible()
        field.fill(text)
        field.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("There is nothing to compact")
    expect(page.locator(".prompt")).to_have_count(1)


def test_a_session_that_is_not_there_is_told(page: Page, served: Served) -> None:
    page.goto(f"{served.url}/sessions/nobody")
    expect(page.get_by_role("heading", name="This session cannot be shown")).to_be_visible()
