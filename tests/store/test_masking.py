"""Known secrets never reach the disk, whatever they are wrapped in, and what is stored stays readable."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelRequest,
    ModelResponse,
    ThinkingPart,
    ToolCallPart,
    UserPromptPart,
)

from sidequest.core.errors import ErrorCode, Failure
from sidequest.core.events import Notice, Numbered
from sidequest.core.outcome import Status
from sidequest.store import DelegationProgress, Grant, NewCheckpoint, NewSession, Store
from sidequest.store.columns import Content, Messages, Record, Structure
from sidequest.store.masking import MASK, Masker, secrets_of, to_json, worth_masking
from sidequest.store.payload import as_stored
from sidequest.store.structure import masked_messages, masked_record
from sidequest.store.tables import metadata
from tests.core.builders import call, repeatable, result, results, says, user
from tests.store.builders import (
    S,
    a_session,
    delegation,
    new,
    now,
    numbered,
    outcome,
    problems,
    refused,
    valid,
)

PLAIN = "sk-proj-abcdef123456"
HARD = 'p"a\\ss/wörd\n🎉&<x>'
ENV = {"OPENAI_API_KEY": PLAIN, "my_secret": HARD, "PATH": "/usr/bin:/bin", "SHORT_KEY": "abc1234"}


def test_names_of_the_environment_say_what_is_a_secret():
    env = {"A_TOKEN": "1", "b_key": "2", "C_SECRET": "3", "TOKENS": "4", "KEY": "5", "D_TOKEN_FILE": "6"}
    assert secrets_of(env) == ["1", "2", "3"]


@pytest.mark.parametrize(
    "value", ["1", "true", "abc1234", "development", "Production", "customer_id", "postgres", "lm-studio"]
)
def test_short_values_and_ordinary_words_are_no_secrets(value):
    assert worth_masking([value]) == []


@pytest.mark.parametrize("value", [PLAIN, HARD, "hunter22", "correct-horse-battery-staple", "aBcDeFgHi"])
def test_every_other_value_is_a_secret(value):
    assert worth_masking([f" {value}\n"]) == [value]


def test_every_column_of_text_says_what_it_holds():
    texts = [c for table in metadata.sorted_tables for c in table.c if c.type.python_type is str]
    assert [str(c) for c in texts if not isinstance(c.type, Structure | Content | Record | Messages)] == []


@pytest.mark.parametrize("secret", [PLAIN, HARD])
@pytest.mark.parametrize(
    "wrap",
    [
        lambda s: s,
        lambda s: f"before {s} and {s} after",
        lambda s: json.dumps(s),
        lambda s: json.dumps({"a": [s, {s: 1}]}),
        lambda s: json.dumps({"args": json.dumps({"key": s})}),
        lambda s: json.dumps([json.dumps([json.dumps([s], ensure_ascii=False)])], ensure_ascii=False),
        lambda s: json.dumps(s).replace("/", "\\/").replace("&", "\\u0026").replace("<", "\\u003C"),
        lambda s: f"output: {json.dumps({'key': s})} and so on",
        lambda s: f"https://example.org/?key={quote(s, safe='')}&x=1",
        lambda s: f"https://example.org/?key={quote(s, safe='').lower() if s is HARD else s}",
    ],
)
def test_a_secret_is_found_in_every_wrapping(secret, wrap):
    masked = Masker([secret]).text(wrap(secret))
    assert MASK in masked
    for core in ("proj-abcdef", "rd\\n", "a\\ss", "ass/w", "x%3e", "x%3E"):
        assert core not in masked


@pytest.mark.parametrize("text", ["", "ordinary", "abc1234", '{"a": "\\n"}', "sk-proj-abcdef12345", "[1, 2"])
def test_everything_else_stays_as_it_was(text):
    assert Masker(ENV.values()).text(text) == text


def test_a_secret_that_is_learned_later_is_masked_from_then_on():
    masker = Masker(["first-secret"])
    assert masker.text("second-secret") == "second-secret"
    masker.learn(["second-secret"])
    assert masker.text("first-secret and second-secret") == f"{MASK} and {MASK}"


def test_layout_of_json_is_kept():
    text = json.dumps({"key": PLAIN, "n": 1}, indent=2)
    assert Masker([PLAIN]).text(text) == json.dumps({"key": MASK, "n": 1}, indent=2)


@pytest.mark.parametrize(
    ("secret", "document"),
    [
        ("nsecretvalue", '{"a":"\\nsecretvalue"}'),
        ("00e9abcdef", '{"a":"\\u00e9abcdef"}'),
        ('value","other', '["value","other"]'),
    ],
)
def test_what_only_looks_like_a_secret_in_the_spelling_is_left_alone(secret, document):
    assert Masker([secret]).text(document) == document


def test_the_longest_of_overlapping_secrets_is_masked_whole():
    assert Masker(["abcdefgh", "abcdefghij"]).text("abcdefghij abcdefgh") == f"{MASK} {MASK}"


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
)
secrets = st.text(st.characters(exclude_categories=["Cs"]), min_size=8, max_size=20).map(str.strip)


@given(secrets.filter(lambda s: len(s) >= 8 and s not in MASK and "\x00" not in s), values, st.integers(0, 2))
@repeatable(300)
def test_no_secret_survives_in_json_and_json_survives(secret, value, depth):
    held = {"before": value, "holds": ["x " + secret + " y", value]}
    document = to_json(held)
    for _ in range(depth):
        document = to_json({"args": document})
    masked = Masker([secret]).text(document)
    inside = json.loads(masked)
    for _ in range(depth):
        inside = json.loads(inside["args"])
    assert inside["holds"][0] == f"x {MASK} y"


@given(st.text(alphabet='\\u0n"a\x00', max_size=30))
@repeatable(200)
def test_json_with_nul_in_it_is_json_without(text):
    assert json.loads(to_json(text)) == text.replace("\x00", "\ufffd")


def test_no_table_holds_a_secret(store_url, tmp_path):
    """Everything the store can be told, told with a secret: then every byte of the database is looked at."""

    async def tell() -> list[tuple[Any, str]]:
        async with await Store.open(store_url, env=ENV, secrets=["given-at-open-7"]) as store:
            for number, secret in enumerate([PLAIN, HARD, "given-at-open-7"]):
                await _tell_everything(store, f"s-{number}", secret)
            assert await problems(store) == []
            assert len(valid(await store.transcript.history("s-1"))) == 3
            assert (await store.search.find("s-0", "proj abcdef123456")) == []
            return await _every_text(store)

    texts = [text for _, text in asyncio.run(tell())]
    assert any(MASK in text for text in texts)
    for text in texts:
        for trace in (
            PLAIN,
            "abcdef123456",
            "given-at-open-7",
            HARD,
            json.dumps(HARD)[1:-1],
            "given at open 7",
        ):
            assert trace not in text
    for file in Path(tmp_path).glob("store.db*"):
        assert b"abcdef123456" not in file.read_bytes()


async def _tell_everything(store, session_id, secret):
    await store.sessions.create(NewSession(session_id, now(), f"t {secret}", "/x/development/app", "a/b"))
    said = [
        new("m1", user(f"use {secret} please")),
        new("m2", says(f"I use {secret}", call("c1", "Bash", command=f"echo {json.dumps(secret)}"))),
    ]
    await store.transcript.append(session_id, said)
    await store.transcript.record_result(session_id, "m2", result({"out": secret}, "c1", "Bash"), now())
    await store.transcript.append(session_id, [new("m3", results(result(f"again {secret}", "c1", "Bash")))])
    await store.delegations.start(
        session_id,
        delegation(
            "d1",
            task=secret,
            brief=secret,
            label=secret,
            definition={"body": secret, "tools": ["Bash(git *)"]},
        ),
    )
    await store.delegations.progress(session_id, "d1", DelegationProgress(1, 1, 1, "a/b", "Bash"), now())
    await store.delegations.settle(
        session_id,
        outcome("d1", report=f"r {secret}", failure=Failure(ErrorCode.INTERNAL, f"m {secret}")),
        now(),
    )
    given = NewCheckpoint(
        "k1", f"s {secret}", "m3", 1, now(), details={"x": [secret]}, retained_tail=[user(secret)]
    )
    await store.checkpoints.append(session_id, given)
    await store.events.append(session_id, [Numbered(1, now(), Notice(None, secret))])
    await store.grants.put(session_id, Grant(f"Bash({secret})", True, now()))
    await store.settings.put(session_id, "k", {"v": secret}, now())
    await store.sessions.rename(session_id, f"renamed {secret}")
    await store.sessions.fork(session_id, f"{session_id}-fork", at_ms=now(), title=secret)


async def _every_text(store):
    """Every text in the database, each with its column."""

    def read(tx):
        return [
            (column, value)
            for table in metadata.sorted_tables
            for row in tx.execute(table.select())
            for column, value in zip(table.c, row, strict=True)
            if isinstance(value, str)
        ]

    return await store._db.read(read)


def test_the_password_of_the_address_is_a_secret_and_never_named(postgres):
    url = postgres.url("shared").replace("sidequest@", "sidequest:hunter2-hunter2@")

    async def tell() -> None:
        async with await Store.open(url, env={}) as store:
            assert "hunter2" not in store.name
            await a_session(store, new("m1", user("psql hunter2-hunter2")))
            assert (await store.transcript.history(S))[0].parts[0].content == f"psql {MASK}"

    postgres.emptied_database()
    asyncio.run(tell())
    with refused(ErrorCode.STORE_UNREACHABLE) as error:
        asyncio.run(Store.open(url.replace("/shared", "/nowhere"), env={}))
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize("numbers", [range(1, 4)])
def test_masking_is_part_of_every_statement_also_of_many_at_once(store_url, numbers):
    async def tell() -> None:
        async with await Store.open(store_url, env=ENV) as store:
            await a_session(store)
            await store.events.append(S, [numbered(n, PLAIN) for n in numbers])
            assert [e.data["text"] for e in await store.events.after(S)] == [MASK] * 3

    asyncio.run(tell())


OUR_WORDS = st.sampled_from(
    [
        "completed", "response", "part_kind", "tool-return", "user-prompt", "tool_call_id", "delegation_id",
        "2026-12-01T", "00000000", "offline/extractive", "/x/development/app", "explorer", "independent",
        "tool_started", "timestamp", "input_tokens", '"kind":"request"', "Bash(git *)", "s-1-session",
    ]
)  # fmt: skip
ARBITRARY = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=8, max_size=12).filter(
    lambda s: len(s.strip()) >= 8 and s.strip() not in MASK
)


@given(OUR_WORDS | ARBITRARY.map(str.strip))
@repeatable(60)
def test_whatever_the_secret_is_structure_reads_back_and_content_is_masked(empty_file, secret):
    """Also when the secret is a word of ours: what a program reads again is what it wrote."""

    async def tell(url: str) -> None:
        async with await Store.open(url, env={}) as store:
            store._db.masker.learn([secret])
            await _tell_everything(store, S, secret)
            assert await problems(store) == []
            await _check_structure(store)
            for column, text in await _every_text(store):
                if not isinstance(column.type, Structure):
                    assert secret not in _content_of(column, text)

    with TemporaryDirectory() as folder:
        asyncio.run(tell(str(shutil.copy(empty_file, folder))))


async def _check_structure(store):
    session = await store.sessions.get(S)
    assert (session.id, session.root, session.model, session.messages) == (S, "/x/development/app", "a/b", 3)
    history = valid(await store.transcript.history(S))
    assert [m.kind for m in history] == ["request", "response", "request"]
    assert [(p.part_kind, p.tool_name, p.tool_call_id) for p in history[1].tool_calls] == [
        ("tool-call", "Bash", "c1")
    ]
    row = await store.delegations.get(S, "d1")
    assert (row.status, row.agent, row.model) == (Status.COMPLETED, "explorer", "offline/extractive")
    assert row.definition["tools"] == ["Bash(git *)"]
    assert row.outcome is not None
    assert (row.outcome["status"], row.outcome["error"]["code"]) == ("completed", "INTERNAL")
    (event,) = await store.events.after(S)
    assert (event.type, event.data["type"], event.data["number"]) == ("notice", "notice", 1)
    assert len(await store.checkpoints.list(S)) == 1


def _content_of(column, text):
    """What is content of a stored text: of JSON, the texts that no field of ours holds."""
    if isinstance(column.type, Content):
        return text
    found: list[str] = []
    mark = masked_messages if isinstance(column.type, Messages) else masked_record
    mark(json.loads(text), lambda value: found.append(json.dumps(value, ensure_ascii=False)) or value)
    return "\n".join(found)


def test_a_message_keeps_its_bytes_and_what_a_tool_gave_is_content_at_any_depth():
    secret = "kind-of-a-secret-1"
    picture = BinaryContent(f"..{secret}..".encode() * 3, media_type="image/png")
    masker = Masker([secret, base64.b64encode(picture.data).decode()[8:20]])
    request = ModelRequest(
        parts=[
            UserPromptPart([f"see {secret}", picture, ImageUrl(f"https://x.org/?k={secret}")]),
            result({"part_kind": secret, "deep": [{"id": secret, secret: 1}]}),
        ]
    )
    document, read = as_stored(request, masker)
    prompt, given = read.parts
    text, shown, linked = prompt.content
    assert (text, shown.data, linked.url) == (f"see {MASK}", picture.data, f"https://x.org/?k={MASK}")
    assert given.content == {"part_kind": MASK, "deep": [{"id": MASK, MASK: 1}]}
    assert secret not in document


def test_arguments_are_content_whatever_they_are_called():
    told = {"tool": "Read", "path": PLAIN, "arguments": {"path": PLAIN, "name": [PLAIN]}, "text": PLAIN}
    assert Masker([PLAIN]).values(told) == {
        "tool": "Read",
        "path": PLAIN,
        "arguments": {"path": MASK, "name": [MASK]},
        "text": MASK,
    }


def test_reasoning_that_was_masked_is_not_signed_any_more():
    def answer(text: str) -> ModelResponse:
        thought = ThinkingPart(text, id="rs_1", signature="sig", provider_name="openai")
        return ModelResponse(parts=[thought, ToolCallPart("Read", {"path": "a"}, "c1", id="fc_1")])

    _, kept = as_stored(answer("the key is in a.py"), Masker([PLAIN]))
    _, changed = as_stored(answer(f"the key is {PLAIN}"), Masker([PLAIN]))
    assert [(p.id, getattr(p, "signature", "")) for p in kept.parts] == [("rs_1", "sig"), ("fc_1", "")]
    assert changed.parts[0] == ThinkingPart(f"the key is {MASK}")
    assert (changed.parts[1].id, changed.parts[1].tool_call_id) == (None, "c1")


@given(st.lists(st.text(alphabet='abcdefgh"\\ x', max_size=6), max_size=8), st.integers(0, 1))
@repeatable(300)
def test_pieces_of_a_text_that_grows_hold_secrets_whole(pieces, which):
    secret = ["abcabcab", 'ab"c\\deh'][which]
    masker = Masker([secret])
    whole = "".join(pieces) + secret + "".join(pieces) + json.dumps(secret)
    told, held = "", ""
    for char in whole:
        held += char
        ready = masker.safe_length(held)
        told, held = told + masker.text(held[:ready]), held[ready:]
    told += masker.text(held)
    assert secret not in told
    assert json.dumps(secret)[1:-1] not in told


def test_what_cannot_begin_a_secret_is_told_at_once():
    masker = Masker(["sk-secret-1"])
    assert masker.safe_length("hello") == 5
    assert masker.safe_length("hello sk-sec") == 6
    assert masker.safe_length("hello sk-secret-1 and s") == 22
    assert masker.safe_length("sk-secret-1") == 11
