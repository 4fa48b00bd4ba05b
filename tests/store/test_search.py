"""Recall: what was said is found by its words, and read in pages (specification 2.12)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidequest.core.errors import ErrorCode
from sidequest.store.search import EXCERPT_CHARS, MAX_INDEXED_CHARS, Query, index_words
from tests.core.builders import call, repeatable, result, results, says, user
from tests.store.builders import S, a_session, delegation, new, now, on_a_store, problems, refused

SAID = {
    "m1": "Where is the Context BUDGET computed? See src/core/budget.py",
    "m2": "In `budget.py`, line 40. It's CAFÉ time: naïve Straße",
    "m3": "关于上下文预算的问题,在 budget.py 里",
    "m4": "コンテキストの予算は? カタカナ 予算案",
    "m5": "คำถามเกี่ยวกับงบประมาณ",
    "m6": "snake_case_name and kebab-case-name, 3.14 and 1e5, e-mail a.b@example.org",
    "m7": "",
}


async def a_conversation(store):
    messages = [(user if n % 2 else says)(text) for n, text in enumerate(SAID.values(), start=1)]
    await a_session(store, *(new(key, message) for key, message in zip(SAID, messages, strict=True)))


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("budget", ["m3", "m2", "m1"]),
        ("Budget COMPUTED", ["m1"]),
        ("budget nowhere", []),
        ("udget", []),
        ("src/core/budget.py", ["m1"]),
        ("core/budget.py", ["m1"]),
        ("core.budget", []),
        ("budget.py,", ["m3", "m2", "m1"]),
        ("预算", ["m3"]),
        ("预问", []),
        ("予算", ["m4"]),
        ("カナ", ["m4"]),
        ("งบประมาณ", ["m5"]),
        ("café", ["m2"]),
        ("cafe", []),
        ("STRASSE", ["m2"]),
        ("snake_case_name", ["m6"]),
        ("case", ["m6"]),
        ("3.14", ["m6"]),
        ("1e5", ["m6"]),
        ("a.b@example.org", ["m6"]),
        ("it's", ["m2"]),
        ("%", []),
        ("\" OR ' -- *", []),
        ("budget AND NOT", []),
        ("", []),
    ],
)
@on_a_store
async def test_every_word_must_appear_in_any_case(store, query, found):
    await a_conversation(store)
    assert [match.message_id for match in await store.search.find(S, query)] == found


@on_a_store
async def test_the_newest_are_given_first_ten_unless_asked_and_never_more_than_25(store):
    await a_session(store, *(new(f"m{n}", user(f"word number {n}")) for n in range(40)))
    assert [m.message_id for m in await store.search.find(S, "word")] == [f"m{n}" for n in range(39, 29, -1)]
    assert len(await store.search.find(S, "word", limit=99)) == 25
    assert len(await store.search.find(S, "word", limit=0)) == 1


@on_a_store
async def test_a_literal_is_looked_for_among_all_candidates(store):
    said = [user("a/b right here"), *(user(f"a and b {n}") for n in range(250))]
    await a_session(store, *(new(f"m{n}", message) for n, message in enumerate(said)))
    assert [m.message_id for m in await store.search.find(S, "a/b")] == ["m0"]


@on_a_store
async def test_what_tools_gave_is_read_by_its_id(store):
    said = [user("go"), says("looking", call("c1"), call("c2", path="b.py")), results(result("needle", "c1"))]
    await a_session(store, *(new(f"m{n}", message) for n, message in enumerate(said, start=1)))
    page = await store.search.read(S, "m2")
    assert page.text == (
        'looking\n[called Read with {"path":"a.py"}; its result is m2:1]\n'
        '[called Read with {"path":"b.py"}; its result is m2:2]'
    )
    assert (await store.search.read(S, "m2:1")).text == "needle"
    assert "no result was stored" in (await store.search.read(S, "m2:2")).text
    assert (await store.search.read(S, "m3")).text == "[carried a result of Read, called in m2]"


@pytest.mark.parametrize(
    "query", ["needle", "grep", "src/app.py", "needle app.py Grep", "second", "b\nneedle"]
)
@on_a_store
async def test_a_call_is_found_by_its_tool_its_arguments_and_its_result(store, query):
    asked = call("c2", "Grep", path="src/app.py", lines="first\nsecond")
    said = [user("go"), says("", call("c1"), asked), results(result("a b\nneedle", "c2"))]
    await a_session(store, *(new(f"m{n}", message) for n, message in enumerate(said, start=1)))
    (found,) = await store.search.find(S, query)
    assert (found.message_id, found.result_id, found.tool) == ("m2", "m2:2", "Grep")
    assert (await store.search.read(S, found.result_id)).text == "a b\nneedle"
    assert await store.search.find(S, query, lanes=["d1"]) == []


@on_a_store
async def test_a_call_is_found_by_the_version_of_its_result_that_was_sent(store):
    await a_session(store, new("m1", says("", call("c1"))))
    await store.transcript.record_result(S, "m1", result("whole needle", "c1"), now())
    await store.transcript.append(S, [new("m2", results(result("cut thread", "c1")))])
    assert await store.search.find(S, "needle") == []
    assert [match.result_id for match in await store.search.find(S, "thread")] == ["m1:1"]
    assert await problems(store) == []


@on_a_store
async def test_messages_and_calls_are_given_in_one_order_and_copied_with_the_branch(store):
    said = [user("word"), says("", call("c1")), results(result("word", "c1")), says("word")]
    await a_session(store, *(new(f"m{n}", message) for n, message in enumerate(said, start=1)))
    await store.sessions.fork(S, "s-2", at_ms=now())
    for session_id in (S, "s-2"):
        found = await store.search.find(session_id, "word")
        assert [match.result_id or match.message_id for match in found] == ["m4", "m2:1", "m1"]


@on_a_store
async def test_of_a_giant_result_the_first_words_are_indexed(store):
    giant = " ".join(f"w{n:x}" for n in range(50_000))
    said = [says("", call("c1")), results(result(giant, "c1"))]
    await a_session(store, *(new(f"m{n}", message) for n, message in enumerate(said, start=1)))
    assert len(await store.search.find(S, "w0 wff")) == 1
    assert await store.search.find(S, f"w{49_999:x}") == []


@on_a_store
async def test_a_long_message_is_read_in_pages(store):
    await a_session(store, new("m1", user("0123456789" * 3_000)))
    first = await store.search.read(S, "m1")
    assert (len(first.text), first.offset, first.total_chars, first.next_offset) == (8_000, 0, 30_000, 8_000)
    most = await store.search.read(S, "m1", offset=8_005, limit=99_999)
    assert (most.text[:5], len(most.text), most.next_offset) == ("56789", 20_000, 28_005)
    last = await store.search.read(S, "m1", offset=29_995)
    assert (last.text, last.next_offset) == ("56789", None)
    beyond = await store.search.read(S, "m1", offset=40_000)
    assert (beyond.text, beyond.next_offset) == ("", None)


@on_a_store
async def test_the_parent_and_each_delegate_recall_their_own_rows(store):
    await a_session(store, new("m1", user("shared word")))
    for lane in ("d1", "d2"):
        await store.delegations.start(S, delegation(lane))
        await store.transcript.append(S, [new(f"x-{lane}", user("shared word"), lane)])
    found = await store.search.find(S, "shared")
    assert [(m.message_id, m.delegation_id) for m in found] == [("m1", None)]
    assert [m.message_id for m in await store.search.find(S, "shared", lanes=["d1"])] == ["x-d1"]
    assert len(await store.search.find(S, "shared", lanes=None)) == 3
    assert await store.search.find(S, "shared", lanes=[]) == []
    with refused(ErrorCode.MESSAGE_UNKNOWN, "x-d1"):
        await store.search.read(S, "x-d1")
    with refused(ErrorCode.MESSAGE_UNKNOWN, "m1"):
        await store.search.read(S, "m1", lanes=["d1"])
    assert (await store.search.read(S, "x-d1", lanes=["d1"])).text == "shared word"


@on_a_store
async def test_other_sessions_are_neither_searched_nor_read(store):
    for session_id in (S, "s-2"):
        await a_session(store, new(f"m-{session_id}", user("shared word")), session_id=session_id)
    assert [m.session_id for m in await store.search.find(S, "shared")] == [S]
    assert len(await store.search.find(None, "shared")) == 2
    for unknown in ("m-s-2", "m-s-1:1", "m-s-1:x", ":1", "m9"):
        with refused(ErrorCode.MESSAGE_UNKNOWN):
            await store.search.read(S, unknown)


@on_a_store
async def test_a_text_of_millions_of_words_is_stored_and_its_beginning_found(store):
    giant = " ".join(f"w{n:x}" for n in range(300_000))
    await a_session(store, new("m1", user(giant)))
    assert [m.message_id for m in await store.search.find(S, "w0 wff")] == ["m1"]
    assert len(index_words(giant)) <= MAX_INDEXED_CHARS
    assert (await store.search.read(S, "m1")).total_chars == len(giant)


def test_an_excerpt_shows_the_word_in_its_surroundings():
    said = f"{'before ' * 100}\nthe NEEDLE here\n{'after ' * 100}"
    excerpt = Query.of("needle").excerpt(said)
    assert "the NEEDLE here after" in excerpt
    assert excerpt[0] == excerpt[-1] == "…"
    assert len(excerpt) <= EXCERPT_CHARS
    assert Query.of("short").excerpt("a short text") == "a short text"


@given(st.text(max_size=200))
@repeatable(200)
def test_a_text_is_found_by_each_of_its_own_words(said):
    for word in said.split():
        query = Query.of(word)
        assert query.appears_in(said) or not query.words


@given(st.text(max_size=60), st.text(max_size=20))
@repeatable(200)
def test_an_excerpt_is_bounded_whatever_is_asked(said, asked):
    assert len(Query.of(asked).excerpt(said * 20)) <= EXCERPT_CHARS
