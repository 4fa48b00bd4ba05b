"""Mechanical ways to make a history sendable: fewer bytes, paired calls, no half-finished tail."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ThinkingPart,
    UserPromptPart,
)

from sidequest.core.reduction import repair, shrink_bytes, without_unfinished_tail
from sidequest.core.transcript import tool_calls, validate
from tests.core.builders import (
    BRIEF,
    brief,
    call,
    exchange,
    file_of,
    heuristic,
    image,
    prose,
    repeatable,
    result,
    results,
    says,
    stored,
    texts_of,
    user,
)
from tests.core.histories import delegations

PDF = BinaryContent(data=bytes(64), media_type="application/pdf")
RECORDING = BinaryContent(data=bytes(64), media_type="audio/wav")


def contents(messages: list[ModelMessage]) -> list[Any]:
    """What user prompts and tool results hold, in order."""
    return [getattr(part, "content", None) for m in messages if m.kind == "request" for part in m.parts]


def ids(messages: list[ModelMessage]) -> tuple[list[str], list[str]]:
    """The ids of calls and of results, in order."""
    answered = [p.tool_call_id for m in messages for p in m.parts if p.part_kind == "tool-return"]
    return [c.tool_call_id for m in messages for c in tool_calls(m)], answered


class TestShrinkBytes:
    @pytest.mark.parametrize(
        ("medium", "named"),
        [
            (image(), "image/png"),
            (PDF, "application/pdf"),
            (RECORDING, "audio/wav"),
            (ImageUrl("https://example.org/a.png"), "image"),
        ],
    )
    def test_a_medium_becomes_a_note_that_names_it(self, medium: Any, named: str) -> None:
        (content,) = contents(shrink_bytes([ModelRequest(parts=[UserPromptPart(["look", medium])])]))
        said, note = content
        assert said == "look"
        assert named in note
        assert "left out" in note

    @pytest.mark.parametrize("content", [image(), ["shot", image()], [image(), PDF]])
    def test_media_of_tool_results_go_too(self, content: Any) -> None:
        shrunk = shrink_bytes([brief(), *exchange(content)])
        validate(shrunk)
        assert not any(
            isinstance(item, BinaryContent)
            for c in contents(shrunk)
            for item in (c if isinstance(c, list) else [c])
        )

    def test_text_beside_a_medium_stays_plain_text(self) -> None:
        _, content, _ = contents(
            shrink_bytes([brief(), *exchange(["one\ntwo", image()]), *exchange(prose(900))])
        )
        assert content.startswith("one\ntwo\n[image/png left out")

    def test_the_largest_result_is_halved_and_keeps_its_first_and_last_line(self) -> None:
        small, large = file_of(20), file_of(900)
        shrunk = shrink_bytes([brief(), *exchange(small), *exchange(large), *exchange("done")])
        _, first, clipped, last = contents(shrunk)
        assert (first, last) == (small, "done")
        assert len(clipped) == pytest.approx(len(large) / 2, rel=0.01)
        assert clipped.startswith("FIRST LINE")
        assert clipped.endswith("LAST LINE")

    def test_of_two_equal_results_one_is_halved(self) -> None:
        text = prose(4_000)
        shrunk = shrink_bytes([brief(), *exchange(text), *exchange(text)])
        assert sorted(len(c) for c in contents(shrunk)[1:]) == [pytest.approx(2_000, rel=0.01), 4_000]

    @pytest.mark.parametrize("size", [0, 1, 2, 20, 50])
    def test_a_short_result_is_not_made_longer_by_the_note(self, size: int) -> None:
        shrunk = shrink_bytes([brief(), *exchange(prose(size))])
        assert len(contents(shrunk)[1]) <= size

    def test_without_media_and_results_nothing_changes(self) -> None:
        messages = [brief(prose(9_000)), says("long answer " * 900), user("go on")]
        assert shrink_bytes(messages) == messages

    def test_the_brief_stays_word_for_word(self) -> None:
        shrunk = shrink_bytes([brief(), *exchange(image())])
        assert texts_of(shrunk, "brief") == [BRIEF]

    @repeatable(60)
    @given(delegations("Find it."))
    def test_any_history_stays_valid_unmodified_and_gets_no_larger(
        self, messages: list[ModelMessage]
    ) -> None:
        before = stored(messages)
        shrunk = shrink_bytes(messages)
        assert stored(messages) == before
        validate(shrunk)
        assert heuristic(shrunk) <= heuristic(messages) + 20 * before.count(b"media_type")
        assert texts_of(shrunk, "brief") == texts_of(messages, "brief")


class TestRepair:
    def test_a_result_without_its_call_goes(self) -> None:
        assert ids(repair([brief(), *exchange(), results(result("again", "nobody"))])) == (["c1"], ["c1"])

    def test_a_call_without_its_result_gets_one(self) -> None:
        repaired = repair([brief(), says("", call("a"), call("b")), results(result("x", "a")), user("go on")])
        validate(repaired)
        assert ids(repaired) == (["a", "b"], ["a", "b"])

    def test_a_second_result_of_a_call_goes(self) -> None:
        repaired = repair([brief(), says("", call("a")), results(result("one", "a"), result("two", "a"))])
        validate(repaired)
        assert contents(repaired)[1:] == ["one"]

    def test_ids_that_come_back_are_told_apart(self) -> None:
        """Local servers number the calls of each turn afresh; another provider wants each id once."""
        rounds = [*exchange("one", "call_0"), *exchange("two", "call_0"), *exchange("three", "call_0")]
        repaired = repair([brief(), *rounds])
        validate(repaired)
        assert ids(repaired) == (["call_0", "call_0-2", "call_0-3"],) * 2
        assert contents(repaired)[1:] == ["one", "two", "three"]

    def test_one_id_twice_in_a_response_becomes_two_calls_with_their_results(self) -> None:
        twice = says("", call("a", path="x"), call("a", path="y"))
        repaired = repair([brief(), twice, results(result("of x", "a"), result("of y", "a"))])
        validate(repaired)
        assert ids(repaired) == (["a", "a-2"], ["a", "a-2"])
        assert contents(repaired)[1:] == ["of x", "of y"]

    def test_signed_reasoning_goes_and_unsigned_stays(self) -> None:
        signed = ModelResponse(parts=[ThinkingPart("secret", signature="s"), ThinkingPart("open"), call()])
        repaired = repair([brief(), signed, results(result())])
        assert [part.part_kind for part in repaired[1].parts] == ["thinking", "tool-call"]
        assert "secret" not in str(repaired)

    def test_a_response_of_signed_reasoning_alone_goes(self) -> None:
        repaired = repair(
            [brief(), ModelResponse(parts=[ThinkingPart("secret", signature="s")]), user("go on")]
        )
        validate(repaired)
        assert not any(isinstance(message, ModelResponse) for message in repaired)
        assert texts_of(repaired, "brief") == [BRIEF]

    @repeatable(60)
    @given(delegations("Find it."))
    def test_a_history_is_repaired_once(self, messages: list[ModelMessage]) -> None:
        before = stored(messages)
        once = repair(messages)
        assert stored(messages) == before
        validate(once)
        assert repair(once) == once
        calls, _ = ids(once)
        assert len(set(calls)) == len(calls)
        assert texts_of(once, "brief") == texts_of(messages, "brief")


class TestWithoutUnfinishedTail:
    FINISHED = (brief(), *exchange())

    @pytest.mark.parametrize(
        "tail",
        [
            [],
            [says("half an ans")],
            [says("", call("b"))],
            [says("", call("b"), call("c")), results(result("x", "b"))],
            [says("one"), says("two")],
        ],
        ids=["nothing", "text", "call", "half of two calls", "two responses"],
    )
    def test_what_was_not_completed_goes_and_what_was_stays(self, tail: list[ModelMessage]) -> None:
        assert without_unfinished_tail([*self.FINISHED, *tail]) == list(self.FINISHED)

    @pytest.mark.parametrize("messages", [[], [says("hello")], [says("", call()), results(result())]])
    def test_nothing_is_left_of_what_never_began(self, messages: list[ModelMessage]) -> None:
        assert without_unfinished_tail(messages) == []

    @repeatable(60)
    @given(delegations("Find it."), st.integers(0, 30))
    def test_wherever_a_run_ends_what_is_left_is_a_valid_beginning(
        self, messages: list[ModelMessage], cut: int
    ) -> None:
        captured = messages[: cut + 1]
        kept = without_unfinished_tail(captured)
        assert kept == captured[: len(kept)]
        validate(kept)
