"""A conversation that is forked in memory and stored afterwards: nothing of what the model knew is lost."""

from __future__ import annotations

from sidequest.core.events import RunEnded
from tests.durable.desk import Room, in_a_loop, shown
from tests.durable.test_journal import READ, TASK, WAIT
from tests.support.scripted_model import ScriptedModel, calling
from tests.support.sessions import session, told

LONG = "It is long, and here is why. " * 100
FACT = "## Goal\nRemember THE-FACT."


class TestOfAStoredConversation:
    @in_a_loop
    async def test_a_summary_and_what_came_after_it_are_given_to_the_model_again(self, room: Room) -> None:
        async with room.desk(ScriptedModel(LONG, "Two.", summary=FACT)) as desk:
            await desk.prompt("First.")
            await desk.session.compact()
            await desk.prompt("Second.")
            async with desk.session.fork() as fork:
                before = shown(fork.messages)
                await fork.attach(desk.store)  # type: ignore[arg-type]
            (checkpoint,) = await desk.store.checkpoints.list(fork.id)
            assert "THE-FACT" in checkpoint.summary
        model = ScriptedModel("Three.")
        async with room.desk(model, continues=fork.id) as desk:
            assert shown(desk.session.messages) == before == ["summary", "user: Second.", "says: Two."]
            await desk.prompt("Third.")
        assert "THE-FACT" in model.asked[0].user_texts[0]

    @in_a_loop
    async def test_the_tail_of_a_compaction_within_a_turn_comes_along(self, room: Room) -> None:
        (room.root / "a.txt").write_text("words of a file\n" * 900)
        model = ScriptedModel(READ, calling(("new_context", {})), "Read.", summary=FACT)
        async with room.desk(model) as desk:
            await desk.prompt("Read it, mind the end.")
            async with desk.session.fork() as fork:
                await fork.attach(desk.store)  # type: ignore[arg-type]
        async with room.desk(ScriptedModel(), continues=fork.id) as desk:
            expected = ["summary", "user: Read it, mind the end.", "says: Read."]
            assert shown(desk.session.messages) == expected

    @in_a_loop
    async def test_it_is_a_branch_that_knows_where_it_came_from(self, room: Room) -> None:
        async with room.desk(ScriptedModel(TASK, WAIT, LONG, "Two."), ScriptedModel("Found.")) as desk:
            await desk.prompt("Delegate.")
            await desk.session.compact()
            async with desk.session.fork() as fork:
                await desk.prompt("This is said after the fork.")
                await fork.attach(desk.store)  # type: ignore[arg-type]
                row = await desk.store.sessions.get(fork.id)
                assert (row.forked_from, row.title) == (desk.id, "Delegate.")
                rows = await desk.store.transcript.load(fork.id)
                assert shown([row.message for row in rows]) == (await desk.lane())[:6]
                assert [d.agent for d in await desk.store.delegations.list(fork.id)] == ["helper"]
                assert [r.agent for r in fork.delegations.records.resumable()] == ["helper"]

    @in_a_loop
    async def test_what_was_said_before_it_was_attached_is_stored_too(self, room: Room) -> None:
        async with room.desk(ScriptedModel(LONG, "Two.", "Three.", summary=FACT)) as desk:
            await desk.prompt("First.")
            await desk.session.compact()
            async with desk.session.fork() as fork:
                await fork.prompt("Second.")
                ended = told(fork, RunEnded)
                before = shown(fork.messages)
                await fork.attach(desk.store)  # type: ignore[arg-type]
                await fork.prompt("Third.")
            stored = [row.type for row in await desk.store.events.after(fork.id)]
            assert stored.count("run_ended") == len(ended) + 1
        async with room.desk(ScriptedModel(), continues=fork.id) as desk:
            assert shown(desk.session.messages)[:3] == before
            assert shown(desk.session.messages)[3:] == ["user: Third.", "says: Three."]

    @in_a_loop
    async def test_one_that_was_made_while_a_turn_ran_begins_before_that_turn(self, room: Room) -> None:
        async def fork_now(asked: object) -> str:
            forks.append(desk.session.fork())
            return "Two."

        forks: list[object] = []
        async with room.desk(ScriptedModel("One.", fork_now)) as desk:
            await desk.prompt("First.")
            await desk.prompt("Second.")
            (fork,) = forks
            async with fork:
                await fork.attach(desk.store)
                rows = await desk.store.transcript.load(fork.id)
                assert shown([row.message for row in rows]) == ["user: First.", "says: One."]

    @in_a_loop
    async def test_a_source_that_is_gone_leaves_what_the_fork_holds(self, room: Room) -> None:
        async with room.desk(ScriptedModel(LONG, summary=FACT)) as desk:
            await desk.prompt("First.")
            await desk.session.compact()
            fork, source = desk.session.fork(), desk.id
        await room.store.sessions.delete(source, now_ms=0)
        room.forget(source)
        async with fork:
            await fork.attach(room.store)  # type: ignore[arg-type]
        async with room.desk(ScriptedModel(), continues=fork.id) as desk:
            assert shown(desk.session.messages) == ["summary"]


class TestOfAConversationInMemory:
    @in_a_loop
    async def test_a_summary_and_what_came_after_it_are_given_to_the_model_again(self, room: Room) -> None:
        source = session(room.root, ScriptedModel(LONG, "Two.", summary=FACT))
        async with source:
            await source.prompt("First.")
            await source.compact()
            await source.prompt("Second.")
            async with source.fork() as fork:
                before = shown(fork.messages)
                await fork.attach(room.store)  # type: ignore[arg-type]
        model = ScriptedModel("Three.")
        async with room.desk(model, continues=fork.id) as desk:
            assert shown(desk.session.messages) == before == ["summary", "user: Second.", "says: Two."]
            assert (await desk.store.sessions.get(fork.id)).title == "Second."
            await desk.prompt("Third.")
            assert (await desk.lane())[0].startswith("notice: This conversation was copied")
        text = model.asked[0].user_texts[0]
        assert "THE-FACT" in text
        assert "recall" not in text, "nothing of what was replaced is stored"

    @in_a_loop
    async def test_one_with_nothing_but_a_summary_is_named_after_its_next_prompt(self, room: Room) -> None:
        async with session(room.root, ScriptedModel(LONG, "Two.", summary=FACT)) as source:
            await source.prompt("First.")
            await source.compact()
            async with source.fork() as fork:
                await fork.attach(room.store)  # type: ignore[arg-type]
                await fork.prompt("Second.")
        assert (await room.store.sessions.get(fork.id)).title == "Second."
        async with room.desk(ScriptedModel(), continues=fork.id) as desk:
            assert shown(desk.session.messages) == ["summary", "user: Second.", "says: Two."]

    @in_a_loop
    async def test_reports_that_were_delivered_in_memory_are_kept_as_text(self, room: Room) -> None:
        parent = ScriptedModel(TASK, "I wait.", "Thanks.", "Two.")
        async with session(room.root, parent, ScriptedModel("Found.")) as source:
            await source.prompt("Delegate.")
            before = shown(source.messages)
            await source.attach(room.store)  # type: ignore[arg-type]
            await source.prompt("And now?")
        async with room.desk(ScriptedModel(), continues=source.id) as desk:
            assert shown(desk.session.messages)[: len(before)] == before
            assert desk.session.delegations.records.all() == []
