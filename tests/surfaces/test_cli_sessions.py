"""Runs are stored, sessions are found again, shown whole, kept in order and gone on with."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai.messages import ModelMessagesTypeAdapter

from sidequest.core.transcript import validate
from sidequest.store import SessionRow, Store
from sidequest.surfaces.storing import now_ms
from tests.core.builders import call, result, says, user
from tests.support.neutral import Reject, Reply, Seen
from tests.support.provider import LoopbackProvider
from tests.surfaces.conftest import Cli, Result, write_settings
from tests.surfaces.stored import (
    EXPLORER,
    SESSION,
    Conversation,
    dead_pid,
    harbour_in,
    hold,
    store_of,
    with_store,
    write_harbour,
)

QUESTION = "What is the value of BERTH_LIMIT?"
pytestmark = pytest.mark.usefixtures("ready_store")

KEY = "key-that-nobody-may-read"


def rows(home: Path) -> list[SessionRow]:
    return with_store(home, lambda store: store.sessions.list())


def last(result: Result) -> dict[str, Any]:
    return json.loads(result.out.splitlines()[-1])


def shown_session(result: Result) -> str:
    found = re.search(r"^session       (\w{8})$", result.err, re.MULTILINE)
    assert found, result.err
    return found[1]


def complains(result: Result, code: int, cause: str, remedy: str = "") -> None:
    """Check the code and the two lines that an error has; without a remedy of its own it has one."""
    assert result.code == code, result
    said = result.err[result.err.index("error: ") :].splitlines()
    assert cause in said[0]
    assert remedy in "".join(said[1:])


@pytest.fixture
def provider(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """A default model on loopback that gives what is put into the list."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    script: list[Any] = []

    def answer(seen: Seen) -> Reply | Reject:
        step = script.pop(0)
        return step(seen) if callable(step) else step

    with LoopbackProvider(answer).run_in_thread() as server:
        write_settings(
            home,
            f'default_model = "lab/test"\n[models."lab/test"]\nbase_url = "{server.openai_url}"\n'
            f'api_key = "{KEY}"\ncontext_window = 32000\n',
        )
        yield script


class TestStoring:
    def test_a_run_is_stored_under_the_users_data_folder_and_names_its_session(
        self, cli: Cli, home: Path, ready_store: Path
    ):
        ready_store.unlink()
        result = cli("run", QUESTION)
        (row,) = rows(home)
        assert row.id.startswith(shown_session(result))
        assert (row.title, row.root, row.delegations) == (QUESTION, str(Path.cwd()), 1)
        assert ready_store.stat().st_mode & 0o777 == 0o600

    def test_a_delegation_is_stored_under_the_name_of_its_subagent(self, cli: Cli, home: Path):
        result = cli("delegate", "explorer", QUESTION, "--json")
        (row,) = rows(home)
        assert last(result)["sessionId"] == row.id
        assert (row.title, row.messages, row.delegations) == (f"explorer: {QUESTION}", 0, 1)

    def test_a_delegation_shows_the_id_that_resumes_it(self, cli: Cli):
        result = cli("delegate", "explorer", QUESTION)
        assert re.search(r"^delegation    \w{8}\nsession       \w{8}$", result.err, re.MULTILINE)

    @pytest.mark.parametrize("command", [("run",), ("delegate", "explorer")], ids=["run", "delegate"])
    def test_no_store_keeps_nothing(self, cli: Cli, ready_store: Path, command: tuple[str, ...]):
        ready_store.unlink()
        result = cli(*command, QUESTION, "--no-store", "--json")
        assert (result.code, last(result)["sessionId"]) == (0, None)
        assert not ready_store.exists()

    def test_the_option_beats_the_variable_and_that_the_settings(
        self, cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
    ):
        write_settings(home, 'store = "by-settings.db"\n')
        cli("sessions", "list")
        monkeypatch.setenv("SIDEQUEST_STORE", str(home / "by-variable.db"))
        cli("delegate", "explorer", QUESTION)
        cli("delegate", "explorer", QUESTION, "--store", "by-option.db")
        assert (home / ".config/sidequest/by-settings.db").exists()
        assert (home / "by-variable.db").exists()
        assert Path("by-option.db").exists()
        assert len(json.loads(cli("sessions", "list", "--json").out)["sessions"]) == 1

    def test_what_is_refused_leaves_no_session_behind(self, cli: Cli, home: Path):
        assert cli("delegate", "nobody", "x").code == 2
        assert rows(home) == []

    def test_keys_of_configured_models_are_never_stored(self, cli: Cli, home: Path, provider: list[Any]):
        provider.append(Reply(f"The key is {KEY}."))
        cli("run", f"Is it {KEY}?")
        data = b"".join(file.read_bytes() for file in store_of(home).parent.iterdir())
        assert b"[masked]" in data
        assert KEY.encode() not in data


class TestStoresThatFail:
    def test_one_that_cannot_be_opened_is_code_2_and_says_how_to_go_without(self, cli: Cli, tmp_path: Path):
        broken = tmp_path / "broken.db"
        broken.write_text("no database" * 100)
        for command in (("run", "x"), ("delegate", "explorer", "x")):
            result = cli(*command, "--store", str(broken))
            complains(
                result, 2, f"{broken} is not a sound SQLite database", "--no-store runs without keeping"
            )
            assert result.out == ""

    @pytest.mark.parametrize("command", [("run", "x"), ("sessions", "list")], ids=["run", "list"])
    def test_an_address_that_is_none_is_code_2(self, cli: Cli, command: tuple[str, ...]):
        result = cli(*command, "--store", "mysql://host/db")
        complains(result, 2, "it is neither SQLite nor PostgreSQL", "sqlite:///PATH")

    def test_one_that_fails_during_a_run_ends_it_with_code_1(self, cli: Cli, home: Path, provider: list[Any]):
        def pull_the_plug(seen: Seen) -> Reply:
            with sqlite3.connect(store_of(home)) as connection:
                connection.execute("ALTER TABLE messages RENAME TO lost")
            return Reply("Never stored.")

        provider += [pull_the_plug, Reply("Never asked for.")]
        result = cli("run", "x", "--json")
        complains(result, 1, "no such table")
        assert (last(result)["ok"], last(result)["error"]["code"]) == (False, "STORE_FAILED")
        assert len(provider) == 1

    def test_an_end_that_cannot_be_stored_is_no_success(self, cli: Cli, home: Path, provider: list[Any]):
        def pull_the_plug(seen: Seen) -> Reply:
            with sqlite3.connect(store_of(home)) as connection:
                connection.execute(
                    "CREATE TRIGGER late BEFORE UPDATE OF outcome ON delegations "
                    "BEGIN SELECT * FROM nowhere; END"
                )
            return Reply("The whole report.")

        provider.append(pull_the_plug)
        result = cli("delegate", "explorer", "x", "--json")
        complains(result, 1, "no such table: main.nowhere")
        data = last(result)
        assert (data["ok"], data["status"], data["error"]["code"]) == (False, "completed", "STORE_FAILED")
        assert data["report"] == "The whole report."


class TestGoingOn:
    def test_continue_takes_the_newest_conversation_of_this_folder(
        self, cli: Cli, home: Path, harbour: str, provider: list[Any]
    ):
        provider += [Reply("Elsewhere."), Reply("A report."), Reply("Here.")]
        cli("run", "x", "--cwd", "src")
        cli("delegate", "explorer", "x")
        result = cli("run", "And now?", "--continue", "-m", "lab/test")
        assert (result.code, result.out, shown_session(result)) == (0, "Here.\n", "5e551011")
        assert result.err.startswith("going on with session 5e551011 (11 messages): Berths and tides\n")
        assert len(rows(home)) == 3

    def test_continue_takes_what_was_delegated_when_nothing_was_said(self, cli: Cli, home: Path):
        cli("delegate", "explorer", QUESTION)
        result = cli("run", QUESTION, "--continue")
        assert (result.code, len(rows(home))) == (0, 1)

    def test_delegations_are_numbered_over_all_runs(self, cli: Cli, harbour: str):
        assert "#3 explorer  started on" in cli("run", QUESTION, "--continue").err

    def test_the_model_sees_what_was_said_before(self, cli: Cli, provider: list[Any]):
        provider += [Reply("It is 12."), lambda seen: Reply(str(len(seen.messages)))]
        cli("run", "What is it?")
        assert int(cli("run", "And now?", "-c", "-q").out) > 2

    def test_session_works_in_the_folder_of_the_session_unless_another_is_named(
        self, cli: Cli, harbour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        monkeypatch.chdir(tmp_path)
        assert "HIGH_WATER_HOUR = 14" in cli("run", "What is HIGH_WATER_HOUR?", "--session", "5e55").out
        elsewhere = cli("run", "What is HIGH_WATER_HOUR?", "--session", "5e55", "--cwd", "home")
        assert (elsewhere.code, "HIGH_WATER_HOUR = 14" in elsewhere.out) == (0, False)

    def test_a_folder_that_is_gone_is_code_2(self, cli: Cli, home: Path, tmp_path: Path):
        harbour_in(home, tmp_path / "gone")
        complains(
            cli("run", "x", "--session", "5e55"),
            2,
            f"The folder {tmp_path}/gone of session {SESSION} is gone.",
            "name another one with --cwd",
        )

    def test_without_a_session_there_is_nothing_to_continue(self, cli: Cli, harbour: str):
        complains(cli("run", "x", "-c", "--cwd", "src"), 2, "no session of the folder", "--continue out")
        complains(cli("run", "x", "--session", "00"), 2, "There is no session 00.", "sessions list")

    @pytest.mark.parametrize(
        "options",
        [
            ("--no-store", "--continue"),
            ("--no-store", "--session", "a"),
            ("--no-store", "--store", "x.db"),
            ("--continue", "--session", "a"),
        ],
        ids=" ".join,
    )
    def test_options_that_contradict_each_other_are_code_2(self, cli: Cli, options: tuple[str, ...]):
        complains(cli("run", "x", *options), 2, "contradict each other", "Leave one of them out.")
        assert not Path("x.db").exists()

    def test_a_session_goes_on_with_its_own_model_until_another_is_named(
        self, cli: Cli, home: Path, harbour: str, provider: list[Any]
    ):
        assert "model         offline/extractive" in cli("run", QUESTION, "--continue").err
        provider.append(Reply("Hello."))
        cli("run", "x", "--continue", "--model", "lab/test")
        assert rows(home)[0].model == "lab/test"

    def test_without_that_model_it_goes_on_with_the_default_and_says_so(
        self, cli: Cli, home: Path, provider: list[Any]
    ):
        provider.append(Reply("Hello."))
        cli("run", "x")
        write_settings(home, "")
        result = cli("run", QUESTION, "--continue")
        assert "the session ran on lab/test, which cannot be used here, and goes on with the default" in (
            result.err
        )
        assert "BERTH_LIMIT = 12" in result.out

    def test_a_session_that_is_in_use_names_who_uses_it(self, cli: Cli, home: Path, harbour: str):
        with_store(home, lambda store: hold(store, harbour))
        result = cli("run", "x", "--session", "5e55")
        complains(result, 2, "is in use by process 4711 on other-host since", "fork the session")
        complains(cli("sessions", "delete", "5e55", "--yes"), 2, "is in use by process 4711 on other-host")
        assert "in use      by process 4711 on other-host" in cli("sessions", "show", "5e55").out

    def test_a_process_of_this_machine_that_was_killed_holds_nothing(
        self, cli: Cli, home: Path, harbour: str
    ):
        host, pid = socket.gethostname(), dead_pid()
        with_store(home, lambda store: hold(store, harbour, host=host, pid=pid))
        assert "in use" not in cli("sessions", "show", "5e55").out
        assert cli("run", QUESTION, "--session", "5e55", "-q").code == 0
        with_store(home, lambda store: hold(store, harbour, host=host, pid=pid))
        assert cli("sessions", "delete", "5e55", "--yes").code == 0

    def test_a_process_of_this_machine_that_lives_keeps_its_session(self, cli: Cli, home: Path, harbour: str):
        with_store(home, lambda store: hold(store, harbour, host=socket.gethostname(), pid=os.getpid()))
        complains(cli("run", "x", "--session", "5e55"), 2, f"is in use by process {os.getpid()} on")


class TestList:
    def test_two_lines_for_each_session_the_newest_first(self, cli: Cli, home: Path, harbour: str):
        cli("delegate", "explorer", QUESTION)
        first, facts, second, more = cli("sessions", "list").out.splitlines()
        assert re.fullmatch(r"\w{8}  explorer: What is the value of BERTH_LIMIT\?", first)
        assert facts == "          just now    1 delegation  this folder"
        assert second == "5e551011  Berths and tides"
        assert re.fullmatch(r" {10}2 h ago     11 messages, 2 delegations  this folder", more)

    def test_a_search_takes_all_of_its_words_from_title_and_messages(self, cli: Cli, harbour: str):
        assert "Berths and tides" in cli("sessions", "list", "TIDES").out
        assert "Berths and tides" in cli("sessions", "list", "ask", "explorer").out
        nothing = cli("sessions", "list", "whales")
        assert (nothing.code, nothing.out) == (0, "")
        assert nothing.err == "no title and no message says that\n"

    def test_a_limit_says_that_there_is_more(self, cli: Cli, home: Path, harbour: str):
        cli("sessions", "fork", "5e")
        result = cli("sessions", "list", "--limit", "1")
        assert (len(result.out.splitlines()), result.err) == (2, "there are more: --limit 2\n")
        data = json.loads(cli("sessions", "list", "-n", "1", "--json").out)
        assert (len(data["sessions"]), data["more"]) == (1, True)

    def test_json_has_whole_ids_and_times(self, cli: Cli, tree: Path, harbour: str):
        (row,) = json.loads(cli("sessions", "list", "--json").out)["sessions"]
        assert (row["id"], row["root"], row["messages"], row["delegations"]) == (SESSION, str(tree), 11, 2)
        assert row["createdAtMs"] < row["updatedAtMs"] < now_ms()

    def test_nothing_stored_is_no_error(self, cli: Cli):
        result = cli("sessions", "list")
        assert (result.code, result.out, result.err) == (0, "", "no sessions are stored yet\n")

    def test_a_store_that_was_named_must_be_there(self, cli: Cli, tmp_path: Path):
        complains(cli("sessions", "list", "--store", "no.db"), 2, "There is no store at", "leave --store out")
        assert not Path("no.db").exists()


TRANSCRIPT = """
user  m0000001
What is BERTH_LIMIT?

assistant  m0000002
I ask the explorer.
• Task  agent=explorer, task=Look up BERTH_LIMIT

✓ #1 explorer  de1e9a7e  Look up BERTH_LIMIT
    completed   2 turns, 1 tool, 5.0s   offline/extractive
    │ Found:
    │ - src/harbour.py:1: BERTH_LIMIT = 12

assistant  m0000008
• TaskWait  #1 explorer

assistant  m0000010
It is 12.

-- compacted: 12,345 -> 2,100 tokens --

user  m0000011
Raise it to 14.

assistant  m0000012
• Bash  make test  (failed)

✗ #2 fixer  f1ce0000  Raise the limit
    failed   1 turn, 0 tools, 1.0s   offline/extractive
    PROVIDER_UNAUTHORIZED: Incorrect API key

reports  m0000014
the report of #2 fixer

assistant  m0000015
[This turn ended with NETWORK_ERROR: no route]
"""


class TestShow:
    def test_it_prints_everything_in_order_compacted_or_not(self, cli: Cli, harbour: str):
        head, _, text = cli("sessions", "show", "5e551").out.partition("\n\n")
        assert head.startswith("5e551011  Berths and tides\n  id          5e551011aaaa")
        assert "  holds       11 messages, 2 delegations" in head
        assert re.sub(r"  \d{4}-\d\d-\d\d \d\d:\d\d", "", text) == TRANSCRIPT.removeprefix("\n")

    def test_json_has_the_same_entries(self, cli: Cli, harbour: str):
        data = json.loads(cli("sessions", "show", SESSION, "--json").out)
        kinds = [entry["type"] for entry in data["transcript"]]
        assert kinds.index("compaction") == 5
        assert (kinds.count("message"), kinds.count("delegation")) == (8, 2)
        assert data["transcript"][2]["report"].startswith("Found:")
        assert data["transcript"][5]["summary"] == "Goal: berths."

    def test_control_codes_of_a_model_never_reach_the_terminal(self, cli: Cli, provider: list[Any]):
        provider += [Reply("\x1b[2Jgone", tool_calls=[("Re\x1b[2Jad", {"path": "\x1b[2J"})]), Reply("Done.")]
        session = last(cli("run", "x", "--json"))["sessionId"]
        assert "\x1b" not in cli("sessions", "show", session).out

    def test_a_session_without_messages_is_shown_too(self, cli: Cli):
        session = last(cli("delegate", "explorer", QUESTION, "--json"))["sessionId"]
        out = cli("sessions", "show", session).out
        assert "  holds       1 delegation\n" in out
        assert "│ - src/harbour.py:1: BERTH_LIMIT = 12" in out

    def test_ids_that_are_unknown_or_fit_several_are_code_2(
        self, cli: Cli, home: Path, tree: Path, harbour: str
    ):
        with_store(home, lambda store: write_harbour(store, tree, "5e55ffff"))
        complains(cli("sessions", "show", "00"), 2, "There is no session 00.", "sessions list")
        complains(cli("sessions", "show", "5e55"), 2, "Several sessions begin with 5e55", "Write more")


class TestExport:
    def test_json_holds_every_message_as_pydantic_ai_reads_it(self, cli: Cli, harbour: str):
        data = json.loads(cli("sessions", "export", "5e55").out)
        lane = [row["message"] for row in data["messages"]]
        validate([*ModelMessagesTypeAdapter.validate_python(lane), user("next")])
        assert (data["format"], data["version"]) == ("sidequest-session", 1)
        explorer = data["delegations"][0]
        assert (explorer["id"], len(explorer["messages"])) == (EXPLORER, 4)
        assert data["checkpoints"][0]["summary"] == "Goal: berths."

    def test_results_that_a_kill_left_behind_are_in_it(self, cli: Cli, home: Path, harbour: str):
        async def kill(store: Store) -> None:
            talk = Conversation(store)
            talk.rows = 50
            asked = await talk.say(user("Look."), says("", call("k1"), call("k2")))
            given = result("known", "k1")
            await store.transcript.record_result(talk.id, asked, given, talk.tick())

        with_store(home, kill)
        newest = json.loads(cli("sessions", "export", "5e55").out)["messages"][-1]
        assert [(part["tool_call_id"], part["content"]) for part in newest["results"]] == [("k1", "known")]

    def test_the_ending_of_the_file_says_the_format(self, cli: Cli, harbour: str):
        result = cli("sessions", "export", "5e55", "--output", "talk.md")
        assert (result.code, result.out) == (0, "")
        text = Path("talk.md").read_text()
        assert text.startswith("# Berths and tides\n\n- id: 5e55")
        assert "> **#1 explorer** (de1e9a7e): Look up BERTH_LIMIT" in text
        assert "*-- compacted: 12,345 -> 2,100 tokens --*" in text
        assert cli("sessions", "export", "5e55", "--format", "md").out == text

    def test_the_file_is_private_also_when_it_was_there(self, cli: Cli, harbour: str):
        Path("old.json").touch(0o644)
        for name in ("old.json", "new.json"):
            assert cli("sessions", "export", "5e55", "-o", name).code == 0
            assert Path(name).stat().st_mode & 0o777 == 0o600

    def test_what_cannot_be_written_is_code_2(self, cli: Cli, harbour: str):
        complains(cli("sessions", "export", "5e", "--format", "pdf"), 2, "'pdf' is no format", "json or md")
        complains(cli("sessions", "export", "5e", "-o", "no/x.md"), 2, "no/x.md cannot be written")


class TestDamage:
    """One row that cannot be read hides no other."""

    @pytest.fixture(autouse=True)
    def damage(self, home: Path, harbour: str) -> None:
        with sqlite3.connect(store_of(home)) as connection:
            connection.execute("UPDATE messages SET payload = '{' WHERE id LIKE 'm0000015%'")
            connection.execute("UPDATE checkpoints SET details = '{'")
            connection.execute(
                "UPDATE delegations SET definition = '{', outcome = '{' WHERE id = ?", (EXPLORER,)
            )

    def test_show_has_what_is_sound_and_names_what_is_not(self, cli: Cli):
        result = cli("sessions", "show", "5e55")
        assert (result.code, "It is 12." in result.out) == (0, True)
        assert "[This message is damaged in the store and cannot be read.]" in result.out
        assert result.err == (
            "warning: 1 message cannot be read, or a result of it: m0000015; "
            "`sidequest sessions verify 5e551011` says what is damaged\n"
        )

    def test_export_too(self, cli: Cli):
        data = json.loads(cli("sessions", "export", "5e55").out)
        assert [row["id"][:8] for row in data["messages"] if row.get("damaged")] == ["m0000015"]
        assert len(data["messages"]) == 11
        assert "It is 12." in cli("sessions", "export", "5e55", "--format", "md").out

    def test_a_fork_through_a_sound_message_can_be_gone_on_with(self, cli: Cli):
        copy = cli("sessions", "fork", "5e55", "--through", "m0000002").out.strip()
        assert cli("run", QUESTION, "--session", copy).code == 0

    def test_its_delegations_are_shown(self, cli: Cli):
        assert cli("delegations", "show", "de1e").code == 0


class TestOrder:
    def test_rename_shows_the_new_title(self, cli: Cli, harbour: str):
        assert cli("sessions", "rename", "5e55", " Our\nharbour ").out == "5e551011  Our harbour\n"
        assert "Our harbour" in cli("sessions", "list").out
        complains(cli("sessions", "rename", "5e55", " "), 2, "The title is empty.")

    @pytest.mark.parametrize(
        ("typed", "code", "left"), [("\n", 1, 1), ("n\n", 1, 1), ("", 1, 1), ("y\n", 0, 0), ("YES\n", 0, 0)]
    )
    def test_delete_asks_at_a_terminal(
        self, cli: Cli, home: Path, harbour: str, typed: str, code: int, left: int
    ):
        result = cli("sessions", "delete", "5e55", typed=typed)
        assert (result.code, len(rows(home))) == (code, left)
        assert result.err.startswith("Delete 5e551011  Berths and tides (11 messages, 2 delegations)?")
        assert result.err.endswith("nothing was deleted\n") is (left == 1)

    def test_delete_without_a_terminal_needs_yes(self, cli: Cli, home: Path, harbour: str):
        result = cli("sessions", "delete", "5e55", stdin="y\n")
        complains(result, 2, "nobody to ask", "--yes")
        assert (
            cli("sessions", "delete", "5e55", "--yes", stdin="").out == "deleted 5e551011  Berths and tides\n"
        )
        assert rows(home) == []

    def test_fork_prints_the_id_of_the_copy(self, cli: Cli, home: Path, harbour: str):
        copy = cli("sessions", "fork", "5e55", "--through", "m0000002").out.strip()
        row = next(row for row in rows(home) if row.id == copy)
        assert (row.messages, row.delegations, row.forked_from) == (2, 1, SESSION)
        assert "fork of     5e551011 through m0000002" in cli("sessions", "show", copy).out
        assert json.loads(cli("sessions", "fork", "5e5510", "--json").out)["messages"] == 11

    def test_fork_refuses_a_message_that_is_not_there(self, cli: Cli, harbour: str):
        complains(cli("sessions", "fork", "5e", "--through", "zz"), 2, "has no message zz", "sessions show")
        complains(
            cli("sessions", "fork", "5e", "--through", "m0"), 2, "11 messages of session 5e551011 begin"
        )

    def test_verify_finds_nothing_in_a_sound_store(self, cli: Cli, harbour: str):
        assert cli("sessions", "verify", "5e55").out == "no problems in session 5e55\n"
        assert cli("sessions", "verify").code == 0

    def test_verify_ends_with_code_1_and_the_problems(self, cli: Cli, home: Path, harbour: str):
        with sqlite3.connect(store_of(home)) as connection:
            connection.execute("UPDATE messages SET text = 'other' WHERE id LIKE 'm0000001%'")
        result = cli("sessions", "verify")
        assert result.code == 1
        assert f"5e551011  text: m0000001{SESSION} is not the text of the message" in result.out
        data = json.loads(cli("sessions", "verify", "--json").out)
        assert (data["ok"], data["problems"][0]["kind"]) == (False, "text")
