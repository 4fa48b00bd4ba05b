"""The ladder before every request (specification 3.9, 2.3, 2.4; cases D1 to D11, D16, D17 and D19)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from pydantic_ai.messages import (
    ModelRequest,
    RetryFeedbackPart,
    RetryInfo,
    SystemPromptPart,
    TextContent,
    UserPromptPart,
)

from sidequest.core.budget import ContextBudget
from sidequest.core.compaction import (
    OMITTED_MEDIA,
    SUMMARY_PREFACE,
    TRUNCATION_MARKER,
    Compacted,
    Degraded,
    Overflow,
    Unchanged,
    compact,
    degraded_messages,
    loss_notice,
    retention_of,
    summary_body,
    summary_message,
)
from sidequest.core.outcome import Usage
from sidequest.core.summary import SummaryFailed
from sidequest.core.tokens import TokenMeter, estimate, estimate_message, estimate_text, reported_tokens
from sidequest.core.transcript import head_summary, mark_of, marked, validate
from tests.core.builders import (
    BRIEF,
    SMALL,
    Summariser,
    assert_snapshot,
    brief,
    call,
    exchange,
    failing,
    file_of,
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

MIDDLE = ContextBudget.of(16_000, 4_096)
"""A request must stay below 8,000 tokens; a kept message that has to be cut may take 4,000."""


def ladder(messages, summariser=None, *, budget=SMALL, **options):
    return asyncio.run(compact(messages, budget=budget, summarise=summariser or Summariser(), **options))


def three_results(chars: int = 3_000):
    """The history of case D2: three results of 3,000 characters on a model that takes 2,047 tokens."""
    return [brief(), *(message for n in range(3) for message in exchange(prose(chars), f"c{n}"))]


class TestUnchanged:
    def test_D1_a_small_context_is_left_alone_and_nobody_is_asked(self):
        summariser = Summariser()
        assert ladder([brief(), *exchange()], summariser) == Unchanged(estimate([brief(), *exchange()]))
        assert summariser.asked == []

    def test_a_size_equal_to_the_limit_is_over_it(self):
        at_limit = [brief(prose(2_048 * 4))]
        assert isinstance(ladder(at_limit), Overflow)
        assert ladder([brief(prose(2_047 * 4))]) == Unchanged(2_047)

    def test_what_goes_with_the_messages_counts(self):
        history = [brief(), *exchange(prose(4_000))]
        assert isinstance(ladder(history, overhead=900), Unchanged)
        assert isinstance(ladder(history, overhead=1_100), Compacted)

    def test_a_reported_size_counts(self):
        history = [brief(), *exchange(prose(2_400)), *exchange("x", "c2", reported=2_048)]
        assert isinstance(ladder(history, failing()), Degraded)

    def test_a_broken_report_does_not_compact_again_and_again(self):
        assert isinstance(ladder([brief(), *exchange("x", reported=90_000)]), Unchanged)

    def test_what_the_reports_of_a_model_taught_counts(self):
        history = [brief(), *exchange(prose(6_000))]
        assert isinstance(ladder(history), Unchanged)
        outcome = ladder(history, failing(), factor=1.5)
        assert isinstance(outcome, Degraded)
        assert 1.5 * heuristic(outcome.messages) <= outcome.tokens_after < 2_048 <= outcome.tokens_before

    def test_D19_a_cap_of_the_definition_moves_the_limit(self):
        history = [brief(), *exchange(prose(4 * 160_000))]
        wide = ContextBudget.for_model(window=200_000, max_tokens=32_000, cap=4_000)
        assert isinstance(ladder(history, budget=wide), Unchanged)
        assert isinstance(ladder(history, budget=ContextBudget.of(200_000, 64_000)), Compacted)


class TestCompacted:
    def test_D2_one_summary_request_with_the_brief_then_summary_and_brief(self):
        summariser = Summariser()
        outcome = ladder(three_results(), summariser)
        assert isinstance(outcome, Compacted)
        assert f"[User]: {BRIEF}" in summariser.prompt
        assert [
            len(texts_of([m], mark)) for m, mark in zip(outcome.messages, ["summary", "brief"], strict=True)
        ]
        assert outcome.tokens_after == estimate(outcome.messages) < 2_048
        assert outcome.tokens_before == estimate(three_results()) >= 2_048
        assert outcome.usage == Usage(1, 900, 100)

    def test_the_summary_stands_in_a_user_message_behind_a_preface(self):
        outcome = ladder(three_results())
        (text,) = texts_of(outcome.messages, "summary")
        assert text.startswith(f"{SUMMARY_PREFACE}\n\n<summary>\n## Goal")
        assert text.endswith("\n</summary>")
        assert summary_body(text) == outcome.summary

    def test_the_files_of_the_calls_end_the_summary(self):
        assert ladder(three_results()).summary.endswith("<read-files>\na.py\n</read-files>")

    def test_D3_after_a_completed_turn_only_the_summary_is_left(self):
        outcome = ladder(three_results(), retention="completed_turn")
        assert [texts_of([message], "summary") != [] for message in outcome.messages] == [True]

    @pytest.mark.parametrize(
        ("newest", "retention"),
        [
            (results(result()), "active_turn"),
            (user("go on"), "active_turn"),
            (says("", call()), "active_turn"),
            (says("text", finish_reason="tool_call"), "active_turn"),
            (says("done", finish_reason="stop"), "completed_turn"),
            (says("done"), "completed_turn"),
        ],
    )
    def test_D4_the_newest_message_decides_what_is_kept(self, newest, retention):
        assert retention_of([brief(), newest]) == retention

    def test_D5_an_earlier_summary_is_updated_and_not_summarised_again(self):
        summariser = Summariser()
        ladder([summary_message("OLD FACT"), *three_results()], summariser)
        conversation, rest = summariser.prompt.split("</conversation>")
        assert "OLD FACT" not in conversation
        assert "<previous-summary>\nOLD FACT\n</previous-summary>" in rest

    def test_D5_the_files_of_an_earlier_summary_are_kept(self):
        old = summary_message("OLD\n\n<read-files>\nz.py\n</read-files>")
        summariser = Summariser()
        outcome = ladder([old, *three_results()], summariser)
        assert outcome.summary.endswith("<read-files>\na.py\nz.py\n</read-files>")
        assert "<read-files>" not in summariser.prompt

    def test_a_summary_behind_the_original_task_of_a_resumed_chain_is_not_lost(self):
        summariser = Summariser()
        resumed = [ModelRequest(parts=[marked("task", "original")]), summary_message("OLD FACT")]
        ladder([*resumed, *three_results()], summariser)
        assert "<previous-summary>\nOLD FACT" in summariser.prompt

    def test_a_fact_on_the_last_line_of_a_result_is_shown_to_the_summariser(self):
        summariser = Summariser()
        ladder([brief(), *exchange(file_of(300))], summariser)
        assert "FIRST LINE" in summariser.prompt
        assert "LAST LINE" in summariser.prompt

    def test_a_wish_for_what_to_keep_reaches_the_summariser(self):
        summariser = Summariser()
        ladder(three_results(), summariser, focus="the error codes")
        assert "Pay special attention to: the error codes" in summariser.prompt

    def test_D10_the_list_is_a_new_one_and_the_given_one_stays(self):
        history = three_results()
        before = stored(history)
        outcome = ladder(history)
        outcome.messages.append(user("more"))
        assert stored(history) == before


class TestLossNotice:
    def test_it_says_that_history_is_gone_and_how_it_is_read(self):
        (said,) = texts_of([loss_notice(recall=True)], "notice")
        assert_snapshot("loss_notice.txt", said)
        assert "recall" not in texts_of([loss_notice()], "notice")[0]

    def test_it_stands_in_front_of_what_was_kept_and_only_when_it_is_asked_for(self):
        history = [user("look"), *exchange(prose(7_000), "c1"), *exchange(prose(1_600), "c2")]
        told, plain = (ladder(history, failing(), tell_loss=tell) for tell in (True, False))
        assert mark_of(told.messages[0].parts[0]) == "notice"
        assert told.messages[1:] == plain.messages
        assert plain.tokens_after < told.tokens_after < SMALL.hard_limit

    def test_without_room_for_it_the_instruction_goes_alone(self):
        question = user(prose(8_000))
        outcome = ladder([question, *exchange(prose(6_000))], failing(), tell_loss=True)
        assert outcome.messages == [question]

    def test_it_is_told_once_however_often_history_is_lost(self):
        history = [loss_notice(), user("look"), *exchange(prose(9_000))]
        outcome = ladder(history, failing(), tell_loss=True)
        assert len(texts_of(outcome.messages, "notice")) == 1


class TestRetained:
    def test_the_message_of_a_person_is_kept_verbatim_when_it_fits(self):
        question = "What does it do? " + prose(1_000)
        outcome = ladder([user(question), *exchange(prose(9_000))])
        assert texts_of(outcome.messages, None) == [question]

    def test_older_messages_of_a_person_are_not_kept(self):
        outcome = ladder([user("one"), says("done"), user("two"), *exchange(prose(9_000))])
        assert texts_of(outcome.messages, None) == ["two"]

    def test_one_that_does_not_fit_keeps_three_quarters_head_and_one_quarter_tail(self):
        question = prose(20_000)
        outcome = ladder([user(question), *exchange(prose(16_000))], Summariser(prose(14_000)), budget=MIDDLE)
        (kept,) = texts_of(outcome.messages, None)
        head, tail = kept.split(TRUNCATION_MARKER)
        assert question.startswith(head)
        assert question.endswith(tail)
        assert len(head) == pytest.approx(3 * len(tail), abs=4)
        assert estimate_message(outcome.messages[1]) <= MIDDLE.retained_user
        assert outcome.tokens_after < MIDDLE.hard_limit

    @pytest.mark.parametrize("question", ["漢" * 5_000 + prose(16_000), prose(16_000) + "漢" * 5_000])
    def test_one_that_is_dense_at_one_end_is_cut_until_it_fits(self, question):
        outcome = ladder([user(question), *exchange(prose(8_000))], Summariser("short"), budget=MIDDLE)
        assert isinstance(outcome, Compacted)
        (kept,) = texts_of(outcome.messages, None)
        assert TRUNCATION_MARKER in kept
        assert estimate_text(kept) <= MIDDLE.retained_user

    def test_a_message_that_fits_beside_the_summary_is_not_cut_at_the_cap(self):
        question = prose(20_000)
        outcome = ladder([user(question), *exchange(prose(16_000))], Summariser("short"), budget=MIDDLE)
        assert texts_of(outcome.messages, None) == [question]
        assert estimate_message(outcome.messages[1]) > MIDDLE.retained_user

    def test_one_with_next_to_no_room_is_a_piece_of_the_marker(self):
        history = [user(prose(20_000)), *exchange(prose(16_000))]
        outcome = ladder(history, Summariser(prose(31_780)), budget=MIDDLE)
        (kept,) = texts_of(outcome.messages, None)
        assert TRUNCATION_MARKER.strip().startswith(kept)
        assert outcome.tokens_after < MIDDLE.hard_limit

    def test_media_of_a_message_that_is_cut_leave_a_stub(self):
        question = ModelRequest(parts=[UserPromptPart(["what is this?", image(), image()])])
        outcome = ladder([question, *exchange(prose(3_000))])
        (kept,) = texts_of(outcome.messages, None)
        assert kept == f"what is this?\n{OMITTED_MEDIA}"

    def test_a_marked_brief_is_never_cut(self):
        text = prose(20_000)
        assert estimate_message(brief(text)) > MIDDLE.retained_user
        outcome = ladder([brief(text), *exchange(prose(16_000))], Summariser(prose(14_000)), budget=MIDDLE)
        assert texts_of(outcome.messages, "brief") == [text]


SYSTEM = SystemPromptPart("RULES " + prose(400))


class TestSystemPrompts:
    """What opens the history of an agent with a system prompt stays where providers look for it."""

    HISTORY = (
        ModelRequest(parts=[SYSTEM, *brief().parts]),
        *(message for n in range(3) for message in exchange(prose(3_000), f"c{n}")),
    )

    @pytest.mark.parametrize("retention", ["active_turn", "completed_turn"])
    def test_a_summary_stands_behind_them_and_they_count(self, retention):
        outcome = ladder(self.HISTORY, retention=retention)
        assert isinstance(outcome, Compacted)
        assert outcome.messages[0].parts[0] is SYSTEM
        assert len(texts_of(outcome.messages[:1], "summary")) == 1
        assert outcome.tokens_after == heuristic(outcome.messages) > 100

    def test_a_second_compaction_keeps_them_once(self):
        first = ladder(self.HISTORY).messages
        second = ladder([*first, *exchange(prose(9_000))])
        assert [part for m in second.messages for part in m.parts].count(SYSTEM) == 1
        assert len(texts_of(second.messages, "summary")) == len(texts_of(second.messages, "brief")) == 1

    def test_a_degraded_history_begins_with_them_and_they_count(self):
        outcome = ladder(self.HISTORY, failing())
        assert isinstance(outcome, Degraded)
        assert [p.part_kind for p in outcome.messages[0].parts] == ["system-prompt", "user-prompt"]
        size = estimate_message(brief()) + estimate_message(ModelRequest(parts=[SYSTEM]))
        assert degraded_messages(self.HISTORY, limit=size) is None
        assert len(degraded_messages(self.HISTORY, limit=size + 1)) == 1

    def test_no_summary_is_asked_for_when_they_and_the_brief_do_not_fit(self):
        summariser = Summariser()
        front = ModelRequest(parts=[SystemPromptPart(prose(5_000)), *brief(prose(4_000)).parts])
        assert isinstance(ladder([front, *exchange()], summariser), Overflow)
        assert summariser.asked == []

    def test_one_for_a_single_request_and_one_from_later_go(self):
        nudge = SystemPromptPart("now", scope="request")
        later = ModelRequest(parts=[SystemPromptPart("later")])
        history = [ModelRequest(parts=[nudge, *brief().parts]), *exchange(prose(9_000)), later]
        for summariser in (Summariser(), failing()):
            outcome = ladder(history, summariser)
            first = outcome.messages[0]
            assert not any(isinstance(part, SystemPromptPart) for part in first.parts)


class TestDegraded:
    def test_D6_a_failed_summary_leaves_the_brief_and_the_newest_rounds(self):
        outcome = ladder(three_results(), failing("invalid key"))
        assert isinstance(outcome, Degraded)
        assert texts_of(outcome.messages[:1], "brief") == [BRIEF]
        assert outcome.messages[1].kind == "response"
        assert len(outcome.messages) == 5
        assert outcome.reason == "the summary request failed: invalid key"
        validate(outcome.messages)

    @pytest.mark.parametrize(
        ("summariser", "reason"),
        [
            (Summariser(prose(8_400)), "the summary leaves no room"),
            (Summariser(prose(12_000)), "the summary is not smaller than what it replaces"),
            (Summariser(""), "the summary was empty"),
            (Summariser(" \n"), "the summary was empty"),
            (Summariser(truncated=True), "the summary was cut off"),
        ],
        ids=["D7 larger than the limit", "not smaller", "empty", "blank", "D16 cut by its length"],
    )
    def test_a_summary_that_cannot_be_used_degrades_and_is_paid_for(self, summariser, reason):
        outcome = ladder(three_results(), summariser)
        assert isinstance(outcome, Degraded)
        assert (outcome.reason, outcome.usage, len(summariser.asked)) == (reason, Usage(1, 900, 100), 1)

    def test_a_summary_that_is_not_smaller_than_our_count_degrades(self):
        history = [brief(), *exchange(prose(3_200)), *exchange("x", "c2", reported=3_000)]
        outcome = ladder(history, Summariser(prose(3_400)))
        assert isinstance(outcome, Degraded)
        assert outcome.reason == "the summary is not smaller than what it replaces"

    def test_D17_text_that_cannot_be_cut_to_fit_degrades_without_a_request(self):
        summariser = Summariser()
        history = [brief(), says(prose(24_000)), user("go on"), *exchange()]
        outcome = ladder(history, summariser, budget=ContextBudget.of(8_000, 1_024))
        assert isinstance(outcome, Degraded)
        assert (summariser.asked, outcome.usage) == ([], Usage())
        assert outcome.reason == "the conversation does not fit a summary request"

    def test_a_result_of_24000_characters_is_cut_to_fit_instead(self):
        summariser = Summariser()
        outcome = ladder(
            [brief(), *exchange(prose(24_000))], summariser, budget=ContextBudget.of(8_000, 1_024)
        )
        assert isinstance(outcome, Compacted)
        assert len(summariser.asked) == 1

    def test_what_was_reported_above_our_count_still_shrinks(self):
        history = [brief(), *exchange(prose(3_200), "c1"), *exchange("new", "c2", reported=3_000)]
        outcome = ladder(history, failing())
        assert isinstance(outcome, Degraded)
        assert heuristic(outcome.messages) < heuristic(history)
        assert not any(map(reported_tokens, outcome.messages))

    def test_it_is_smaller_when_only_the_provider_says_that_it_is_too_large(self):
        history = [brief(), *exchange("a", "c1"), *exchange("b", "c2")]
        outcome = ladder(history, failing(), force=True)
        assert isinstance(outcome, Degraded)
        assert outcome.tokens_after < heuristic(history)


class TestOverflow:
    def test_D8_a_brief_over_the_limit_overflows_with_both_numbers(self):
        summariser = Summariser()
        outcome = ladder([brief(prose(12_000))], summariser)
        assert outcome == Overflow(3_000, 2_048, 0, reason="the brief alone does not fit")
        assert summariser.asked == []

    def test_fixed_parts_over_the_limit_overflow_before_anybody_is_asked(self):
        summariser = Summariser()
        outcome = ladder(three_results(), summariser, overhead=2_048)
        assert outcome == Overflow(2_048 + heuristic(three_results()), 2_048, 2_048)
        assert summariser.asked == []
        assert ladder(three_results(), summariser, overhead=1_400, factor=1.5).fixed == 2_100

    def test_a_brief_that_fits_alone_but_not_beside_the_fixed_parts_overflows(self):
        outcome = ladder([brief(prose(4_000)), *exchange(prose(2_000))], failing(), overhead=1_100)
        assert isinstance(outcome, Overflow)
        assert outcome.fixed == 1_100

    def test_a_completed_turn_without_a_summary_overflows(self):
        outcome = ladder(three_results(), Summariser("", usage=Usage(1, 7, 0)), retention="completed_turn")
        assert isinstance(outcome, Overflow)
        assert outcome.usage == Usage(1, 7, 0)

    def test_a_forced_compaction_of_nothing_but_the_brief_overflows(self):
        assert isinstance(ladder([brief()], force=True), Overflow)


class TestEnding:
    def test_D9_an_abort_during_the_summary_is_an_abort_and_no_degradation(self):
        with pytest.raises(asyncio.CancelledError):
            ladder(three_results(), Summariser(error=asyncio.CancelledError()))

    def test_an_error_of_the_program_is_not_taken_for_a_failed_summary(self):
        with pytest.raises(ZeroDivisionError):
            ladder(three_results(), Summariser(error=ZeroDivisionError()))

    def test_the_meter_of_a_run_may_be_shared(self):
        meter = TokenMeter()
        assert ladder(three_results(), meter=meter).tokens_before == ladder(three_results()).tokens_before

    def test_nothing_to_send_fits(self):
        assert ladder([]) == Unchanged(0)


class TestDegradedMessages:
    def test_D11_the_newest_exchanges_stay_and_the_oldest_go(self):
        history = [brief(), *exchange("one", "c1"), *exchange("two", "c2"), *exchange("three", "c3")]
        limit = heuristic([history[0], *history[3:]]) + 1
        assert degraded_messages(history, limit=limit)[1:] == history[3:]
        assert len(degraded_messages(history, limit=limit - 1)) == 3

    def test_D11_what_is_kept_is_contiguous(self):
        history = [brief(), *exchange("small", "c1"), *exchange(prose(4_000), "c2"), *exchange("new", "c3")]
        assert degraded_messages(history, limit=200)[1:] == history[5:]

    def test_D11_a_result_never_stays_without_its_call(self):
        large_call = says("", call("c1", content=prose(4_000)))
        history = [brief(), large_call, results(result("small", "c1"))]
        assert len(degraded_messages(history, limit=200)) == 1

    @pytest.mark.parametrize(
        "failed",
        [
            [says("half", finish_reason="error"), user("again")],
            [says("", call("c9"), state="interrupted"), results(result("not executed", "c9"))],
            [says(), ModelRequest(parts=[RetryFeedbackPart("say something", retry=RetryInfo("no_output"))])],
        ],
        ids=["error", "interrupted", "empty"],
    )
    def test_D11_failed_and_empty_responses_are_passed_over(self, failed):
        history = [brief(), *exchange("one", "c1"), *failed, *exchange("two", "c2")]
        assert degraded_messages(history, limit=1_000)[1:] == [*history[1:3], *history[5:]]

    def test_a_list_ends_with_a_request_when_the_newest_response_failed(self):
        history = [brief(), *exchange(), says("so far"), says(finish_reason="error"), user("go on")]
        kept = degraded_messages(history, limit=1_000)
        assert kept[1:] == history[1:3]
        validate(kept)

    def test_D11_a_brief_that_is_too_large_gives_none(self):
        size = estimate_message(brief())
        assert degraded_messages([brief(), *exchange()], limit=size) is None
        assert len(degraded_messages([brief(), *exchange()], limit=size + 1)) == 1

    def test_nothing_to_work_on_gives_none(self):
        assert degraded_messages([summary_message("so far")], limit=1_000) is None

    def test_a_summary_in_front_is_not_kept(self):
        kept = degraded_messages([summary_message("so far"), brief(), *exchange()], limit=1_000)
        assert texts_of(kept, "summary") == []

    def test_the_brief_of_a_fork_is_kept_and_not_the_parents_first_message(self):
        kept = degraded_messages([user("parent"), *exchange(), brief(), *exchange("b", "c2")], limit=1_000)
        assert texts_of(kept, None) == []
        assert texts_of(kept, "brief") == [BRIEF]

    def test_a_resumed_run_keeps_its_instruction_and_the_original_task_if_both_fit(self):
        original = ModelRequest(parts=[marked("the first task", "original")])
        history = [original, *exchange("old", "c0"), brief(), *exchange("new", "c1")]
        kept = degraded_messages(history, limit=1_000)
        assert [*texts_of(kept[:1], "original"), *texts_of(kept[1:2], "brief")] == ["the first task", BRIEF]
        assert texts_of(degraded_messages(history, limit=estimate_message(brief()) + 1), "original") == []

    def test_an_original_task_that_is_the_instruction_itself_is_not_kept_twice(self):
        original = ModelRequest(parts=[marked(BRIEF, "original")])
        assert len(degraded_messages([original, brief()], limit=1_000)) == 1

    def test_reported_sizes_neither_decide_nor_stay(self):
        kept = degraded_messages([brief(), *exchange("one", reported=90_000)], limit=200)
        assert len(kept) == 3
        assert not any(map(reported_tokens, kept))


def test_a_summary_body_comes_back_from_its_message():
    text = "a\n<summary>\nquoted\n</summary>\nb"
    (part,) = summary_message(text).parts
    (item,) = part.content
    assert isinstance(item, TextContent)
    assert summary_body(item.content) == text
    assert summary_body("no tags") == "no tags"


def test_a_summary_keeps_no_anchor_from_before():
    told = [replace(m) for m in [brief(), *exchange(prose(9_000), reported=3_000)]]
    assert not any(map(reported_tokens, ladder(told).messages))


class TestSummaryThatIsCarriedOn:
    """Specification 2.7: a session whose summary fails keeps the one before."""

    def history(self, summary="EARLIER-SUMMARY"):
        return [
            summary_message(summary),
            user("now this"),
            *exchange("word " * 1_600, "c1"),
            *exchange("b", "c2"),
        ]

    @pytest.mark.parametrize("tell_loss", [True, False])
    def test_it_stands_in_front_of_the_notice_in_a_session_only(self, tell_loss):
        async def fails(request):
            raise SummaryFailed("no")

        outcome = asyncio.run(
            compact(
                self.history(),
                budget=ContextBudget.of(4_000, 500),
                summarise=fails,
                force=True,
                tell_loss=tell_loss,
            )
        )
        assert isinstance(outcome, Degraded)
        head = head_summary(outcome.messages)
        assert (head is not None and "EARLIER-SUMMARY" in head) is tell_loss

    def test_one_that_is_too_large_is_cut(self):
        async def fails(request):
            raise SummaryFailed("no")

        budget = ContextBudget.of(4_000, 500)
        outcome = asyncio.run(
            compact(self.history("字" * 5_000), budget=budget, summarise=fails, force=True, tell_loss=True)
        )
        assert isinstance(outcome, Degraded)
        head = head_summary(outcome.messages)
        assert head is not None and 0 < head.count("字") < 1_000
        assert outcome.tokens_after < budget.hard_limit
