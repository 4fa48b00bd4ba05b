"""A fan-out never overflows its parent: of every report its model sees a part, and can read the rest."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_ai.messages import ModelResponse

from sidequest.core.outcome import DEGRADED_NOTE, REPORT_LIMIT_CHARS, whole_report
from sidequest.core.tokens import estimate_text
from sidequest.runtime.records import MAX_TAKEN_BACK, DelegationRecord
from sidequest.runtime.session import TurnResult
from sidequest.runtime.tool_texts import MAX_WAIT_CHARS, MIN_BLOCK_TOKENS, hand_over, rest_block
from tests.support.scripted_model import Asked, ScriptedModel, Step, calling
from tests.support.sessions import helper, session
from tests.support.team import Doors, Team

ENGLISH, CHINESE = "many words of a long report " * 900, "汉字报告内容" * 1_900
TEN = calling(*[("Task", {"agent": "helper", "task": f"Task {n}."}) for n in range(10)])
WAIT = calling(("TaskWait", {}))


def reporting(body: str) -> ScriptedModel:
    """A model of subagents whose reports begin with the number of their task."""
    return ScriptedModel(lambda asked: f"REPORT-{asked.user_texts[-1][5]} {body}", repeat=True)


class Fan:
    """A session of a parent that starts ten delegations at once."""

    def __init__(
        self, root: Path, steps: Sequence[Step], body: str, window: int, prompt: str = "Go."
    ) -> None:
        self.parent = ScriptedModel(*steps, "I go on.", repeat=True)
        opened = session(
            root, self.parent, reporting(body), definitions=[helper(tools=("Read",))], window=window,
            child_window=128_000,
        )  # fmt: skip

        async def case() -> TurnResult:
            async with opened:
                return await opened.prompt(prompt)

        self.result = asyncio.run(case())
        self.records = opened.delegations.records.all()

    def seen(self) -> set[str]:
        """The reports that the parent's model was sent a part of."""
        return {found for asked in self.parent.asked for found in re.findall(r"REPORT-\d", asked.text)}


@pytest.mark.parametrize("steps", [[TEN, WAIT], [TEN]], ids=["asked for", "delivered"])
@pytest.mark.parametrize("body", [ENGLISH, CHINESE], ids=["english", "chinese"])
@pytest.mark.parametrize("window", [16_000, 32_000, 200_000])
def test_of_ten_reports_the_parent_sees_each(
    tmp_path: Path, steps: list[Step], body: str, window: int
) -> None:
    fan = Fan(tmp_path, steps, body, window)
    assert fan.result.ok
    assert (fan.result.compactions, fan.result.degradations) == (0, 0)
    assert len(fan.seen()) == 10
    assert all(record.delivered and record.seen for record in fan.records)


@pytest.mark.parametrize("steps", [[TEN, WAIT], [TEN]], ids=["asked for", "delivered"])
@pytest.mark.parametrize("body", [ENGLISH, CHINESE], ids=["english", "chinese"])
@pytest.mark.parametrize(("window", "share"), [(32_000, 0.67), (32_000, 0.95), (12_000, 0.75)])
def test_a_context_that_is_nearly_full_loses_none(
    tmp_path: Path, steps: list[Step], body: str, window: int, share: float
) -> None:
    empty = Fan(tmp_path, ["Hello."], "", window).parent.asked[0].tokens
    words = "words of a prompt " * int((window // 2 * share - empty) * 4 / 18)
    fan = Fan(tmp_path, steps, body, window, prompt=words)
    assert fan.result.ok
    assert fan.parent.asked[0].tokens == pytest.approx(window // 2 * share, rel=0.02)
    assert len(fan.seen()) == 10
    assert all(record.delivered and record.seen for record in fan.records)


def test_what_was_given_with_the_same_answer_counts(tmp_path: Path) -> None:
    """Two waits of one answer, and a read before them, fit into the next request together."""
    (tmp_path / "big.txt").write_text("line of a file\n" * 4_000)

    def ask(asked: Asked) -> ModelResponse:
        ids = [found for text in asked.results for found in re.findall(r"Delegation (\S+) started", text)]
        waits = [("TaskWait", {"delegationIds": half}) for half in (ids[:5], ids[5:])]
        return calling(("Read", {"path": "big.txt", "limit": 600}), *waits)

    fan = Fan(tmp_path, [TEN, ask], CHINESE, 32_000)
    assert (fan.result.ok, fan.result.compactions, fan.result.degradations) == (True, 0, 0)
    assert len(fan.seen()) == 10


def settled(*reports: str, **fields: Any) -> list[DelegationRecord]:
    """Delegations that have ended."""

    async def case() -> list[DelegationRecord]:
        team = Team(ScriptedModel(*reports))
        records = []
        for _ in reports:
            records.append(team.start())
            await team.delegations.wait(records)
        return records

    records = asyncio.run(case())
    for record in records:
        assert record.outcome is not None
        record.outcome = replace(record.outcome, **fields)
    return records


class TestSharing:
    @pytest.mark.parametrize("tokens", [0, 500, 3_000, 40_000])
    def test_the_text_fits_what_is_left_and_holds_one_report_at_least(self, tokens: int) -> None:
        records = settled(*[CHINESE] * 4)
        text, included = hand_over(["A note."], records, tokens)
        assert estimate_text(text) <= max(tokens, MIN_BLOCK_TOKENS + 60)
        assert len(text) <= MAX_WAIT_CHARS
        assert included == records[: len(included)] != []
        assert ("did not fit" in text) == (len(included) < 4)

    def test_short_reports_leave_their_room_to_the_long_ones(self) -> None:
        records = settled("Short.", ENGLISH, "Short too.")
        text, _ = hand_over([], records, 3_000)
        assert "Short." in text
        assert "Short too." in text
        assert 2_700 < estimate_text(text) <= 3_000

    def test_those_that_still_run_keep_their_part(self) -> None:
        (record,) = settled(ENGLISH)
        alone, _ = hand_over([], [record], 4_000)
        with_nine, _ = hand_over([], [record], 10_000, to_come=9)
        assert estimate_text(alone) > 2_500
        assert estimate_text(with_nine) <= 1_000

    @pytest.mark.parametrize("tokens", [0, 400, 3_000])
    def test_the_note_about_lost_history_is_never_cut(self, tokens: int) -> None:
        text, _ = hand_over([], settled(ENGLISH, degradations=1), tokens)
        assert DEGRADED_NOTE in text

    def test_a_first_one_that_ends_early_takes_a_part_and_not_all(self, tmp_path: Path) -> None:
        doors = Doors(CHINESE)

        async def case() -> None:
            async def one(asked: Asked) -> ModelResponse:
                await doors.arrived(10)
                doors.open(0)
                return calling(("TaskWait", {"mode": "any"}))

            def rest(asked: Asked) -> ModelResponse:
                for door in range(1, 10):
                    doors.open(door)
                return WAIT

            parent = ScriptedModel(TEN, one, rest, "Thanks.")
            async with session(tmp_path, parent, ScriptedModel(doors, repeat=True), window=32_000,
                               child_window=128_000) as opened:  # fmt: skip
                result = await opened.prompt("Go.")
            assert (result.ok, result.compactions) == (True, 0)
            first, second = parent.asked[-1].results[-2:]
            assert estimate_text(first) < estimate_text(second)
            assert second.count("<delegation-report") == 9

        asyncio.run(case())


class TestLostOnTheWay:
    """A report that a compaction took before a model has seen it is not delivered."""

    @staticmethod
    def team(*reports: str) -> tuple[Team, list[DelegationRecord]]:
        team = Team(ScriptedModel(*reports))
        return team, [team.start() for _ in reports]

    def test_it_is_handed_over_again_a_bounded_number_of_times(self) -> None:
        async def case() -> None:
            team, (record,) = self.team("One.")
            await team.delegations.wait([record])
            for _ in range(MAX_TAKEN_BACK):
                record.delivered = True
                team.delegations.records.in_history({record.id})
                await team.delegations.sent(set())
                assert not record.delivered
                assert team.delegations.records.undelivered() == [record]
            record.delivered = True
            team.delegations.records.in_history({record.id})
            await team.delegations.sent(set())
            assert record.delivered

        asyncio.run(case())

    def test_what_was_seen_or_is_not_in_the_history_yet_stays_as_it_is(self) -> None:
        async def case() -> None:
            team, (seen, enqueued) = self.team("One.", "Two.")
            await team.delegations.wait([seen, enqueued])
            seen.delivered = enqueued.delivered = True
            team.delegations.records.in_history({seen.id})
            await team.delegations.sent({seen.id})
            await team.delegations.sent(set())
            assert (seen.delivered, seen.seen) == (True, True)
            assert (enqueued.delivered, enqueued.seen) == (True, False)

        asyncio.run(case())

    def test_a_parent_that_compacts_at_that_moment_is_given_it_afterwards(self, tmp_path: Path) -> None:
        async def case() -> None:
            def full(asked: Asked) -> ModelResponse:
                return calling(("TaskWait", {}), ("new_context", {}))

            parent = ScriptedModel(
                calling(("Task", {"agent": "helper", "task": "Task 1."})), full, "Done.", "Now I know."
            )
            async with session(tmp_path, parent, reporting("THE-END")) as opened:
                result = await opened.prompt("Go.")
                (record,) = opened.delegations.records.all()
            assert (result.ok, result.compactions, record.delivered, record.seen) == (True, 1, True, True)
            assert "THE-END" not in parent.asked[2].text
            assert "THE-END" in parent.asked[3].text

        asyncio.run(case())


class TestReadingTheRest:
    @settings(max_examples=20, deadline=None)
    @given(st.integers(0, 3_000), st.sampled_from([ENGLISH, CHINESE, "x" * 30_000]))
    def test_pieces_leave_nothing_out_and_are_bounded(self, tokens: int, body: str) -> None:
        (record,) = settled(body)
        place, read = 0, ""
        for _ in range(1_000):
            text = rest_block(record, place, tokens)
            assert estimate_text(text) <= max(tokens, 2 * MIN_BLOCK_TOKENS)
            assert len(text) <= REPORT_LIMIT_CHARS + 600
            read += text.split('">\n', 1)[1].rsplit("\n</delegation-report>", 1)[0].split("\n\n[…")[0]
            more = re.search(r"fromCharacter (\d+) reads on", text)
            if more is None:
                break
            place = int(more[1])
        assert record.outcome is not None
        assert read == whole_report(record.outcome)

    @pytest.mark.parametrize("degradations", [0, 1])
    def test_the_cut_names_the_place_where_it_begins(self, degradations: int) -> None:
        (record,) = settled("".join(f"<{n}>" for n in range(9_000)), degradations=degradations)
        assert record.outcome is not None
        text, _ = hand_over([], [record], 2_000)
        cut = re.search(
            r"(<\d+>[^\n]*)\n\n\[… (\d+) characters are left out here: TaskWait with this delegationId and "
            r"fromCharacter (\d+) reads on …\]\n\n([^\n]*)",
            text,
        )
        assert cut is not None
        whole, place = whole_report(record.outcome), int(cut[3])
        assert whole[:place].endswith(cut[1])
        assert whole[place + int(cut[2]) :] == cut[4]

    def test_a_parent_reads_on_by_id(self, tmp_path: Path) -> None:
        def read_on(asked: Asked) -> ModelResponse:
            found = re.search(r"## helper \((\S+)\)[^…]*… \d+ .* fromCharacter (\d+)", asked.results[-1])
            assert found is not None
            return calling(("TaskWait", {"delegationIds": [found[1]], "fromCharacter": int(found[2])}))

        middle = f"{ENGLISH} THE-MIDDLE {ENGLISH}"
        steps = [calling(("Task", {"agent": "helper", "task": "Task 1."})), WAIT, read_on, read_on]
        parent, child = ScriptedModel(*steps[:3], "Done."), reporting(middle)

        async def case() -> None:
            async with session(tmp_path, parent, child, window=200_000) as opened:
                result = await opened.prompt("Go.")
            assert result.ok
            assert "[characters 5" in parent.asked[-1].results[-1]
            assert len(child.asked) == 1

        asyncio.run(case())

    @pytest.mark.parametrize("ids", [[], ["gone"], ["a", "b"]])
    def test_it_needs_the_id_of_one(self, tmp_path: Path, ids: list[str]) -> None:
        parent = ScriptedModel(
            calling(("Task", {"agent": "helper", "task": "Task 1."})),
            calling(("TaskWait", {"delegationIds": ids, "fromCharacter": 5})),
            *["Done."] * 2,
        )

        async def case() -> None:
            async with session(tmp_path, parent, reporting("ok")) as opened:
                await opened.prompt("Go.")

        asyncio.run(case())
        said = parent.asked[2].results[-1]
        assert "one" in said
        assert "REPORT" not in said

    def test_behind_the_end_there_is_nothing(self) -> None:
        (record,) = settled("Short.")
        assert "[characters 6 to 6 of 6]" in rest_block(record, 99, 500)
