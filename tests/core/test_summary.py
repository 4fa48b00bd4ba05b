"""What a summariser is shown and asked for (specification 2.5, 2.6; a fact on the last line must survive)."""

from __future__ import annotations

import re

import pytest
from pydantic_ai.messages import (
    BinaryContent,
    DocumentUrl,
    FilePart,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    UploadedFile,
    UserPromptPart,
)

from sidequest.core.budget import ContextBudget
from sidequest.core.compaction import summary_message
from sidequest.core.summary import (
    SUMMARY_INSTRUCTIONS,
    SUMMARY_TASK,
    UPDATE_TASK,
    FileLists,
    build_request,
    collect_files,
    serialise,
    split_file_lists,
)
from sidequest.core.tokens import estimate_text
from sidequest.core.transcript import marked
from tests.core.builders import (
    SMALL,
    assert_snapshot,
    brief,
    call,
    exchange,
    file_of,
    image,
    prose,
    request_tokens,
    result,
    results,
    says,
    user,
)

ROOMY = ContextBudget.of(128_000, 8_192)
CUT_NOTE = re.compile(r"\[… (\d+) characters cut …\]")
CONVERSATION = [
    brief("Find the limit."),
    says(
        "I will look.", call("c1", "Grep", pattern="limit"), call("c2", path="a.py", limit=3), thinking="Hm."
    ),
    results(result("a.py:3", "c1", "Grep"), result("x = 1\nlimit = 7", "c2")),
]


def shown(messages, budget=ROOMY, previous=None, focus=None) -> str:
    request = build_request(messages, previous, budget, focus)
    assert request is not None
    return request.prompt


class TestPrompts:
    """The exact texts, as reviewed files."""

    def test_instructions(self):
        assert_snapshot("summary_instructions.txt", SUMMARY_INSTRUCTIONS)

    def test_first_summary(self):
        assert_snapshot("summary_prompt.txt", shown(CONVERSATION))

    def test_update_of_a_summary_with_a_focus(self):
        text = shown(CONVERSATION, previous="## Goal\nFind the limit.", focus="error codes")
        assert_snapshot("summary_update_prompt.txt", text)

    @pytest.mark.parametrize("task", [SUMMARY_TASK, UPDATE_TASK])
    def test_both_ask_for_the_same_parts_in_order(self, task):
        headings = ["## Goal", "## Constraints & Preferences", "## Progress", "### Done", "### In Progress"]
        headings += ["### Blocked", "## Key Decisions", "## Next Steps", "## Critical Context"]
        assert re.findall(r"^##.*$", task, re.MULTILINE) == headings


class TestSerialise:
    def test_every_role_has_its_label(self):
        assert serialise(CONVERSATION) == "\n\n".join(
            [
                "[User]: Find the limit.",
                "[Assistant thinking]: Hm.",
                "[Assistant]: I will look.",
                '[Assistant tool calls]: Grep(pattern="limit"); Read(path="a.py", limit=3)',
                "[Tool result]: a.py:3",
                "[Tool result]: x = 1\nlimit = 7",
            ]
        )

    def test_images_become_a_count_and_their_text_stays(self):
        message = ModelRequest(parts=[UserPromptPart(["look at this", image(), image()])])
        text = serialise([message, *exchange(["a table", image()])])
        assert text.count("PNG") == 0
        assert "[User]: look at this\n[2 images left out]" in text
        assert "[Tool result]: a table\n[1 image left out]" in text

    @pytest.mark.parametrize(
        ("medium", "note"),
        [
            (image(), "1 image"),
            (ImageUrl("https://example.org/a.png"), "1 image"),
            (BinaryContent(b"x", media_type="application/pdf"), "1 document"),
            (DocumentUrl("https://example.org/a.pdf"), "1 document"),
            (BinaryContent(b"x", media_type="audio/wav"), "1 audio recording"),
            (BinaryContent(b"x", media_type="video/mp4"), "1 video"),
            (BinaryContent(b"x", media_type="application/zip"), "1 file"),
            (UploadedFile("f1", provider_name="openai"), "1 file"),
        ],
    )
    def test_a_medium_alone_is_named(self, medium, note):
        assert serialise([ModelRequest(parts=[UserPromptPart([medium])])]) == f"[User]: [{note} left out]"
        assert serialise(exchange(medium)).endswith(f"[Tool result]: [{note} left out]")

    def test_different_media_are_counted_apart(self):
        pdf = BinaryContent(b"x", media_type="application/pdf")
        assert "[2 images, 1 document left out]" in serialise(exchange([image(), pdf, image()]))

    def test_an_image_that_the_model_made_is_counted(self):
        assert serialise([ModelResponse(parts=[FilePart(image())])]) == "[Assistant]: [1 image left out]"

    def test_a_file_that_was_sent_as_text_is_shown_as_text(self):
        rows = BinaryContent(b"name,size\na,3", media_type="text/csv")
        message = ModelRequest(parts=[UserPromptPart(["add this up", rows])])
        assert serialise([message]) == "[User]: add this up\n\n[User file]: name,size\na,3"
        assert "[Tool result]: rows\nname,size\na,3" in serialise(exchange(["rows", rows]))

    def test_blank_texts_leave_no_entry(self):
        assert (
            serialise([user(" "), says("\n"), *exchange("")]) == '[Assistant tool calls]: Read(path="a.py")'
        )

    def test_a_structured_result_is_shown_as_the_model_saw_it(self):
        assert '[Tool result]: {"lines":[3,9]}' in serialise(exchange({"lines": [3, 9]}))

    def test_system_texts_and_feedback_are_part_of_the_conversation(self):
        feedback = RetryFeedbackPart("no text", retry=RetryInfo("no_output"))
        message = ModelRequest(parts=[SystemPromptPart("be brief"), feedback])
        assert serialise([message]) == "[System]: be brief\n\n[Notice]: no text"

    def test_reports_and_notices_are_shown_and_a_summary_is_not(self):
        message = ModelRequest(parts=[marked("worker says 7", "report"), marked("a file changed", "notice")])
        text = serialise([summary_message("OLD"), message])
        assert text == "[Delegation reports]: worker says 7\n\n[Notice]: a file changed"

    def test_arguments_that_are_no_json_are_shown_raw(self):
        broken = call("c1")
        broken.args = '{"path": "a'
        assert '{\\"path\\": \\"a' in serialise([says("", broken)])


class TestFitting:
    def test_a_result_is_shown_whole_when_everything_fits(self):
        content = file_of(900)
        assert len(content) > 20_000
        assert content in shown([brief(), *exchange(content)])

    def test_reasoning_is_left_out_first(self):
        history = [brief(), says("text", call(), thinking=prose(9_000)), results(result(prose(1_000)))]
        text = shown(history, SMALL)
        assert "[Assistant thinking]" not in text
        assert prose(1_000) in text

    def test_then_results_are_cut_with_head_and_tail_kept(self):
        text = shown([brief(), *exchange(file_of(700))], SMALL)
        assert "FIRST LINE" in text
        assert "LAST LINE" in text
        (cut,) = map(int, CUT_NOTE.findall(text))
        assert len(text) > 1_500
        assert cut > 5_000

    def test_a_fact_on_the_last_line_survives_among_many_results(self):
        history = [brief()]
        for number in range(6):
            history += exchange(file_of(200, f"FIRST {number}", f"LAST {number}"), f"c{number}")
        text = shown(history, ContextBudget.of(8_000, 1_024))
        assert [n for n in range(6) if f"FIRST {n}" in text and f"LAST {n}" in text] == [*range(6)]

    def test_results_are_cut_evenly_and_small_ones_stay_whole(self):
        history = [brief(), *exchange("short fact", "c0"), *exchange(prose(9_000), "c1")]
        history += exchange(prose(30_000), "c2")
        text = shown(history, ContextBudget.of(8_000, 1_024))
        assert "[Tool result]: short fact" in text
        kept = [len(entry) for entry in text.split("[Tool result]: ")[2:]]
        assert kept[0] == pytest.approx(kept[1], rel=0.35)

    def test_the_room_is_used(self):
        request = build_request([brief(), *exchange(prose(60_000))], None, ContextBudget.of(16_000, 4_096))
        assert 0.9 * 9_856 < request_tokens(request) <= 9_856

    def test_a_call_that_carries_a_file_is_cut_like_a_result(self):
        written = says("", call("c1", "Write", path="a.py", content=file_of(300, "HEAD", "TAIL")))
        text = shown([brief(), written, results(result("ok", "c1", "Write"))], SMALL)
        assert 'Write(path="a.py", content="HEAD' in text
        assert "TAIL" in text

    def test_a_text_file_of_a_person_is_cut_and_what_was_written_is_not(self):
        file = BinaryContent(file_of(900, "HEAD", "TAIL").encode(), media_type="text/plain")
        text = shown([ModelRequest(parts=[UserPromptPart([prose(1_000), file])])], SMALL)
        assert prose(1_000) in text
        assert "HEAD" in text
        assert "TAIL" in text

    def test_user_and_assistant_texts_are_never_cut(self):
        assert build_request([brief(), says(prose(12_000)), user("go on")], None, SMALL) is None
        assert build_request([brief(prose(12_000)), *exchange(prose(9_000))], None, SMALL) is None

    def test_more_results_than_can_show_a_line_each_are_no_request(self):
        history = [message for number in range(60) for message in exchange(file_of(40), f"c{number}")]
        assert build_request([brief(), *history], None, SMALL) is None

    @pytest.mark.parametrize("content", ["数" * 20_000, "ж" * 20_000, "aB3+" * 5_000, file_of(3_000)])
    def test_the_request_is_within_its_limit_in_any_script(self, content):
        request = build_request([brief(), *exchange(content)], None, ContextBudget.of(8_000, 1_024))
        assert request_tokens(request) <= 4_928

    def test_a_factor_leaves_room_for_what_our_count_misses(self):
        request = build_request([brief(), *exchange(file_of(900))], None, ContextBudget.of(8_000), None, 1.5)
        assert request_tokens(request) * 1.5 <= ContextBudget.of(8_000).summary_input

    @pytest.mark.parametrize("window", [2_048, 4_096, 7_999])
    def test_a_window_of_a_local_server_has_room_for_a_summary(self, window):
        budget = ContextBudget.of(window)
        request = build_request([brief(), *exchange(file_of(300, "HEAD", "TAIL"))], None, budget)
        assert "HEAD" in request.prompt
        assert "TAIL" in request.prompt
        assert request_tokens(request) + request.max_tokens < window

    def test_nothing_to_summarise_is_no_request(self):
        assert build_request([summary_message("OLD")], "OLD", ROOMY) is None

    def test_an_earlier_summary_that_fills_the_request_is_no_request(self):
        assert build_request([brief()], prose(12_000), SMALL) is None

    def test_the_output_cap_is_the_budgets(self):
        assert build_request([brief()], None, ROOMY).max_tokens == ROOMY.summary_output == 8_192


class TestFileLists:
    def test_changed_files_are_not_listed_as_read(self):
        calls = [call("c1", path="b.py"), call("c2", "edit", path="a.py"), call("c3", "Read", path="a.py")]
        calls += [call("c4", "WRITE", path="new.py"), call("c5", "Grep", path="src")]
        assert collect_files([says("", *calls)], FileLists()) == FileLists(("b.py",), ("a.py", "new.py"))

    def test_earlier_lists_are_kept_and_sorted(self):
        before = FileLists(("z.py", "b.py"), ("m.py",))
        found = collect_files([says("", call(path="a.py"), call("c2", "Edit", path="b.py"))], before)
        assert found == FileLists(("a.py", "z.py"), ("b.py", "m.py"))

    def test_a_call_without_a_usable_path_adds_nothing(self):
        broken = call("c2")
        broken.args = "{"
        assert collect_files([says("", call(path=""), call(limit=3), broken)], FileLists()) == FileLists()

    @pytest.mark.parametrize("lists", [FileLists(), FileLists(("a", "b")), FileLists(("a",), ("b", "c"))])
    def test_lists_come_back_from_the_end_of_a_summary(self, lists):
        assert split_file_lists("## Goal\nFind it." + lists.render()) == ("## Goal\nFind it.", lists)


def test_a_file_list_is_bounded_and_counts_what_it_leaves_out():
    lists = FileLists(tuple(f"src/a/long/path/to/module_{n:03d}.py" for n in range(300)))
    text = lists.render(100)
    assert estimate_text(text) < 130
    assert "+289 more" in text
    assert split_file_lists(text)[1].read == tuple(text.split("\n")[3:-2])


def test_results_of_a_providers_own_tools_are_shown_to_the_summariser():
    response = ModelResponse(
        parts=[
            NativeToolCallPart("web_search", {"query": "tides"}, tool_call_id="n1"),
            NativeToolReturnPart("web_search", "high water at 9", tool_call_id="n1"),
        ]
    )
    text = serialise([response])
    assert "web_search" in text
    assert "high water at 9" in text
