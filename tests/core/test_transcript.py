"""Histories as values: marks, rounds, validation, fork snapshots and resume seeds (R1 to R4, X4, needs 1)."""

from __future__ import annotations

import pytest
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    RetryPromptPart,
    TextContent,
    UserPromptPart,
)

from sidequest.core.compaction import summary_message
from sidequest.core.tokens import reported_tokens
from sidequest.core.transcript import (
    TranscriptError,
    Validator,
    brief_request,
    find_brief,
    head_summary,
    is_tool_result,
    mark_of,
    marked,
    seed,
    snapshot,
    split_rounds,
    tool_calls,
    user_text,
    validate,
)
from tests.core.builders import (
    brief,
    call,
    exchange,
    heuristic,
    image,
    prose,
    result,
    results,
    says,
    stored,
    texts_of,
    user,
)


def _seed(task, history, limit):
    return seed(task, history, limit=limit).messages


class TestMarks:
    @pytest.mark.parametrize("mark", ["brief", "original", "summary", "report", "notice"])
    def test_a_mark_and_its_text_come_back(self, mark):
        part = marked("find it", mark)
        assert mark_of(part) == mark
        assert user_text(part) == "find it"

    @pytest.mark.parametrize(
        "content", ["plain", ["plain"], [TextContent("a")], [TextContent("a", metadata={"other": 1})], []]
    )
    def test_what_a_person_or_another_program_wrote_has_no_mark(self, content):
        assert mark_of(UserPromptPart(content)) is None

    def test_a_mark_survives_storing(self):
        reloaded = ModelMessagesTypeAdapter.validate_json(stored([brief()]))
        assert mark_of(reloaded[0].parts[0]) == "brief"

    def test_a_mark_is_not_part_of_the_text(self):
        (item,) = marked("find it", "brief").content
        assert item.content == "find it"

    def test_media_are_no_text(self):
        assert user_text(UserPromptPart(["look", image(), TextContent("here")])) == "look\nhere"


class TestBrief:
    def test_the_newest_marked_brief_is_the_instruction(self):
        history = [brief("first"), says("done"), brief("second"), *exchange()]
        index, part = find_brief(history)
        assert (index, user_text(part)) == (2, "second")

    def test_a_marked_brief_outranks_any_later_user_message(self):
        history = [brief(), *exchange(), user("a remark"), ModelRequest(parts=[marked("r", "report")])]
        assert find_brief(history)[0] == 0

    def test_in_a_session_it_is_the_newest_message_of_a_person(self):
        history = [user("one"), says("done"), user("two"), ModelRequest(parts=[marked("r", "report")])]
        assert user_text(find_brief(history)[1]) == "two"

    def test_media_that_a_tool_returned_are_no_instruction(self):
        beside = ModelRequest(parts=[result("see the picture"), UserPromptPart(["remark", image()])])
        assert user_text(find_brief([user("one"), says("", call()), beside])[1]) == "one"
        assert find_brief([says("", call()), beside]) is None

    def test_a_marked_brief_beside_a_tool_result_is_the_instruction(self):
        beside = ModelRequest(parts=[result(), *brief("second").parts])
        assert user_text(find_brief([brief("first"), says("", call()), beside])[1]) == "second"

    def test_a_summary_or_an_original_task_is_no_instruction(self):
        history = [ModelRequest(parts=[marked("first task", "original")]), summary_message("so far")]
        assert find_brief(history) is None

    def test_no_messages_no_instruction(self):
        assert find_brief([]) is None


class TestHeadSummary:
    def test_it_opens_a_compacted_history(self):
        assert "FACT" in head_summary([summary_message("FACT"), brief(), *exchange()])

    def test_in_a_resumed_history_it_stands_behind_the_original_task(self):
        resumed = _seed("task", [summary_message("FACT"), brief("task"), says("done")], limit=10_000)
        assert "FACT" in head_summary([*resumed, brief("go on")])

    @pytest.mark.parametrize("history", [[], [brief()], [user("<summary>\nnot one\n</summary>")]])
    def test_there_may_be_none(self, history):
        assert head_summary(history) is None


class TestRounds:
    def test_a_round_is_a_response_with_all_that_answers_it(self):
        history = [brief(), user("and this"), *exchange("a"), user("a remark"), *exchange("b"), says("done")]
        head, rounds = split_rounds(history)
        assert head == history[:2]
        assert [list(round_.messages) for round_ in rounds] == [history[2:5], history[5:7], history[7:]]

    def test_calls_are_those_that_we_have_to_answer(self):
        assert [part.tool_call_id for part in tool_calls(says("text", call("c1"), call("c2")))] == [
            "c1",
            "c2",
        ]

    def test_an_old_retry_prompt_answers_a_call_only_if_it_names_a_tool(self):
        with pytest.warns(match="deprecated"):
            bound = RetryPromptPart("again", tool_name="Read", tool_call_id="c1")
        with pytest.warns(match="deprecated"):
            free = RetryPromptPart("again")
        assert is_tool_result(bound)
        assert not is_tool_result(free)
        validate([brief(), says("", call("c1")), ModelRequest(parts=[bound])])


VALID = {
    "a brief alone": [brief()],
    "parallel calls": [
        brief(),
        says("", call("c1"), call("c2")),
        results(result("a", "c2"), result("b", "c1")),
    ],
    "results in two requests": [
        brief(),
        says("", call("c1"), call("c2")),
        results(result("a", "c1")),
        results(result("b", "c2")),
    ],
    "ids that come back in a later round": [brief(), *exchange("a", "c1"), *exchange("b", "c1")],
    "a person speaks beside a result": [brief(), *exchange(), user("a remark")],
}
INVALID = {
    "nothing": ([], "begin with a request"),
    "a response first": ([says("hello"), user("a")], "begin with a request"),
    "a response last": ([brief(), says("done")], "end with a request"),
    "a call without its result": ([brief(), says("", call("c1")), user("a")], "calls without a result: c1"),
    "a result without its call": ([brief(), results(result("a", "c9"))], "answers the unknown call c9"),
    "one of two results": (
        [brief(), says("", call("c1"), call("c2")), results(result("a", "c1"))],
        "calls without a result: c2",
    ),
    "a result twice": ([brief(), *exchange("a", "c1"), results(result("a", "c1"))], "unknown call c1"),
    "a result before its call": (
        [brief(), results(result("a", "c1")), says("", call("c1"))],
        "unknown call c1",
    ),
    "a repeated id in one response": (
        [brief(), says("", call("c1"), call("c1")), results(result("a", "c1"))],
        "repeats a call id",
    ),
    "a response between a call and its result": (
        [brief(), says("", call("c1")), says("text"), results(result("a", "c1"))],
        "follows unanswered calls: c1",
    ),
    "a result that answers an older round": (
        [brief(), says("", call("c1")), *exchange("b", "c2"), results(result("a", "c1"))],
        "follows unanswered calls: c1",
    ),
}


class TestValidate:
    @pytest.mark.parametrize("history", VALID.values(), ids=VALID)
    def test_accepts(self, history):
        validate(history)

    @pytest.mark.parametrize(("history", "problem"), INVALID.values(), ids=INVALID)
    def test_refuses(self, history, problem):
        with pytest.raises(TranscriptError, match=problem):
            validate(history)

    def test_every_problem_is_named(self):
        with pytest.raises(TranscriptError) as caught:
            validate([says("", call("c1")), results(result("a", "c2"))])
        assert len(caught.value.problems) == 3

    def test_a_growing_history_is_checked_where_it_grew(self):
        validator, history = Validator(), [brief()]
        for number in range(4):
            history += exchange("a", f"c{number}")
            validator.check(history)
        with pytest.raises(TranscriptError):
            validator.check([*history, results(result("a", "c9"))])
        validator.check(history)

    def test_a_rewritten_history_is_checked_afresh(self):
        validator = Validator()
        validator.check([brief(), *exchange()])
        orphan = [summary_message("so far"), results(result("a", "c1"))]
        with pytest.raises(TranscriptError):
            validator.check(orphan)


class TestSnapshot:
    PARENT = (
        user("fix it"),
        *exchange(prose(5_000), reported=4_000),
        says("", call("c7", "Task", agent="x")),
    )

    def test_X4_the_branch_is_complete_with_tool_output_and_without_a_dangling_call(self):
        fork = snapshot(self.PARENT, same_model=True)
        assert [type(message) for message in fork] == [type(message) for message in self.PARENT[:3]]
        assert fork[2].parts[0].content == prose(5_000)
        validate([*fork, brief()])

    def test_siblings_of_an_open_call_are_left_out_with_it(self):
        half = [user("a"), *exchange(), says("", call("c1"), call("c2")), results(result("a", "c1"))]
        assert len(snapshot(half, same_model=True)) == 3

    def test_reported_sizes_are_taken_off(self):
        assert [reported_tokens(message) for message in snapshot(self.PARENT, same_model=True)] == [0, 0, 0]

    def test_the_parents_messages_are_not_modified_and_not_shared(self):
        before = stored(self.PARENT)
        fork = snapshot(self.PARENT, same_model=False)
        fork[0].parts.append(UserPromptPart("more"))
        assert stored(self.PARENT) == before

    def test_signed_reasoning_stays_with_its_own_model(self):
        signed = says("text", thinking="secret reasoning")
        signed.parts[0].signature = "sig"
        history = [user("a"), signed, user("b")]
        assert snapshot(history, same_model=True)[1].parts == signed.parts
        assert snapshot(history, same_model=False)[1].parts == signed.parts[1:]

    def test_a_response_of_signed_reasoning_alone_is_dropped_for_another_model(self):
        signed = says(thinking="secret reasoning")
        signed.parts[0].signature = "sig"
        history = [user("a"), signed, user("b")]
        assert snapshot(history, same_model=False) == [history[0], history[2]]

    def test_a_parent_with_nothing_complete_gives_nothing(self):
        assert snapshot([], same_model=True) == []


TASK = "Map the storage layer."


def _history(rounds: int, chars: int = 400, **facts):
    made = [brief_request(TASK)]
    for number in range(rounds):
        made += exchange(f"result {number} {prose(chars)}", f"c{number}", **facts)
    return made


class TestSeed:
    def test_R1_the_original_task_comes_first_and_once(self):
        seeded = _seed(TASK, [*_history(2), says("done"), user(TASK), says("again")], limit=100_000)
        assert texts_of(seeded[:1], "original") == [TASK]
        assert texts_of(seeded, None) + texts_of(seeded, "brief") == []

    def test_R1_the_rest_keeps_its_order(self):
        history = _history(3)
        assert _seed(TASK, history, limit=100_000)[1:] == history[1:]

    def test_R1_a_remark_beside_the_task_stays(self):
        both = ModelRequest(parts=[UserPromptPart(TASK), UserPromptPart("and be quick")])
        assert texts_of(_seed(TASK, [both], limit=1_000), None) == ["and be quick"]

    def test_R2_the_oldest_pairs_go_first_and_the_text_of_their_carrier_stays(self):
        history = [brief_request(TASK)]
        for number in range(3):
            history += [says(f"step {number}", call(f"c{number}")), results(result(prose(400), f"c{number}"))]
        seeded = _seed(TASK, history, limit=heuristic(history) - 50)
        assert [part.part_kind for message in seeded[1:] for part in message.parts] == [
            "text",
            *["text", "tool-call", "tool-return"] * 2,
        ]
        assert seeded[1].finish_reason == "stop"

    def test_R2_at_the_limit_it_goes_on_stripping_before_it_drops(self):
        history = [brief_request(TASK), says("step", call()), results(result("x"))]
        assert len(_seed(TASK, history, limit=heuristic(history) + 1)) == 3
        assert len(_seed(TASK, history, limit=heuristic(history))) == 2

    def test_R2_a_carrier_with_nothing_left_is_removed(self):
        seeded = _seed(TASK, _history(3), limit=heuristic(_history(3)) - 50)
        assert len(seeded) == 1 + 2 * 2
        validate(seeded)

    def test_R3_then_whole_rounds_go_down_to_the_task(self):
        history = [brief_request(TASK)]
        for number in range(4):
            history += [says(f"{number} {prose(200)}"), user(f"go on {number}")]
        kept = _seed(TASK, history, limit=130)
        assert texts_of(kept, None) == ["go on 2", "go on 3"]
        assert len(_seed(TASK, history, limit=20)) == 1

    def test_R3_the_task_stays_alone_over_the_limit(self):
        seeded = _seed(prose(4_000), _history(3), limit=100)
        assert texts_of(seeded, "original") == [prose(4_000)]
        assert len(seeded) == 1

    def test_R4_huge_reported_usage_changes_nothing(self):
        plain, told = (
            _seed(TASK, _history(3), limit=300),
            _seed(TASK, _history(3, reported=90_000), limit=300),
        )
        assert [len(plain), heuristic(plain)] == [len(told), heuristic(told)]
        assert not any(map(reported_tokens, told))

    def test_R4_the_limit_is_exclusive(self):
        size = heuristic(_seed(TASK, _history(3), limit=100_000))
        assert heuristic(_seed(TASK, _history(3), limit=size + 1)) == size
        assert heuristic(_seed(TASK, _history(3), limit=size)) < size

    def test_a_summary_of_the_chain_stays_behind_the_task(self):
        seeded = _seed(TASK, [summary_message("FACT"), *_history(1)], limit=100_000)
        assert [*texts_of(seeded[:1], "original"), *texts_of(seeded[1:2], "summary")][0] == TASK
        assert "FACT" in texts_of(seeded, "summary")[0]

    def test_a_summary_outlives_rounds_that_are_newer(self):
        history = [summary_message(f"FACT {prose(400)}"), *_history(1), says(prose(2_000)), user("go on")]
        seeded = seed(TASK, history, limit=heuristic(history) - 300)
        assert [*texts_of(seeded.messages, "summary"), *texts_of(seeded.messages, None)] == [
            user_text(history[0].parts[0])
        ]
        assert seeded.lost

    def test_a_summary_that_does_not_fit_makes_place_for_the_rounds(self):
        history = [summary_message(f"FACT {prose(4_000)}"), *_history(1), says("It is a.")]
        seeded = seed(TASK, history, limit=800)
        assert head_summary(seeded.messages) is None
        assert len(seeded.messages) == 4
        assert seeded.lost

    @pytest.mark.parametrize(("less", "lost"), [(-1, False), (0, True), (200, True), (10_000, True)])
    def test_whatever_is_left_out_is_told(self, less, lost):
        history = [summary_message("FACT"), *_history(3), says("It is a.")]
        size = heuristic(_seed(TASK, history, limit=100_000))
        assert seed(TASK, history, limit=size - less).lost is lost

    def test_the_task_that_is_there_twice_is_nothing_lost(self):
        assert not seed(TASK, [user(TASK), says("It is a.")], limit=1_000).lost

    def test_the_history_it_was_given_is_not_modified(self):
        history = _history(4, reported=500)
        before = stored(history)
        _seed(TASK, history, limit=200)
        assert stored(history) == before
