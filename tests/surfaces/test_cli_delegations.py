"""Stored delegations: listed by session, shown with all they did, gone on with from another process."""

from __future__ import annotations

import json
import re
import shutil
import socket
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sidequest.core.outcome import Status
from sidequest.store import DelegationProgress, DelegationRow, Store
from sidequest.surfaces.storing import now_ms
from tests.core.builders import brief, call, says
from tests.store.builders import delegation, outcome
from tests.support.neutral import Reply, Seen
from tests.support.provider import LoopbackProvider
from tests.surfaces.conftest import Cli, Result, write_definition, write_settings
from tests.surfaces.stored import (
    DIED,
    EXPLORER,
    FIXER,
    SESSION,
    Conversation,
    dead_pid,
    hold,
    store_of,
    with_store,
)

pytestmark = pytest.mark.usefixtures("ready_store")

QUESTION = "What is the value of BERTH_LIMIT?"
ANEW = "Delegate the work anew: `sidequest delegate explorer`."
AGAIN = "a6a10000-0004-4000-8000-000000000004"
LOOKER = "---\nname: looker\ndescription: Looks.\ntools: {tools}\n---\nLook.\n"


def stored(home: Path) -> list[DelegationRow]:
    return with_store(home, lambda store: store.delegations.list())


def last(result: Result) -> dict[str, Any]:
    return json.loads(result.out.splitlines()[-1])


def begun(cli: Cli, *options: str, agent: str = "explorer") -> str:
    """Delegate a question and return the id of the delegation."""
    return last(cli("delegate", agent, QUESTION, "--json", *options))["delegationId"]


def refusal(result: Result) -> tuple[str, str]:
    """Return cause and remedy of a command that did nothing."""
    assert (result.code, result.out) == (2, "")
    cause, remedy = result.err.splitlines()
    return cause.removeprefix("error: "), remedy.removeprefix("  try: ")


def died(home: Path, root: Path, *, turns: bool = True) -> None:
    """Store a session whose process was killed while a delegation ran."""

    async def write(store: Store) -> None:
        talk = Conversation(store, "dead5e55")
        await talk.begin("A killed one", root)
        await talk.delegate(DIED, "Look at the tides", definition={"name": "explorer", "tools": ["Read"]})
        if turns:
            await talk.say(brief("Look at the tides."), says("Half of it.", call("r1")), lane=DIED)

    with_store(home, write)


def gone_on_with_and_died(home: Path, root: Path) -> None:
    """Store that the one that died was gone on with, by a process that was killed before its first turn."""
    died(home, root)

    async def write(store: Store) -> None:
        await store.delegations.interrupt_running("dead5e55", now_ms())
        definition = {"name": "explorer", "tools": ["Read", "Grep", "Glob", "Bash"]}
        facts = {"resumed_from": DIED, "definition": definition, "model": "offline/extractive"}
        await store.delegations.start("dead5e55", delegation(AGAIN, **facts))

    with_store(home, write)


class TestList:
    def test_they_stand_below_their_session_the_one_used_last_first(self, cli: Cli, home: Path, harbour: str):
        begun(cli)
        assert re.fullmatch(
            r"\w{8}  explorer: What is the value of BERTH_LIMIT\?\n"
            r"  \w{8}  #1 explorer  completed    What is the value of BERTH_LIMIT\?\n"
            r"            just now    3 turns, 2 tools, \d\.\ds  offline/extractive\n"
            r"\n"
            r"5e551011  Berths and tides\n"
            r"  de1e9a7e  #1 explorer  completed    Look up BERTH_LIMIT\n"
            r"            2 h ago     2 turns, 1 tool, 5\.0s  offline/extractive\n"
            r"  f1ce0000  #2 fixer     failed       Raise the limit\n"
            r"            2 h ago     1 turn, 0 tools, 1\.0s  offline/extractive\n",
            cli("delegations", "list").out,
        )

    def test_those_of_one_session_by_the_beginning_of_its_id(self, cli: Cli, harbour: str):
        data = json.loads(cli("delegations", "list", "5e5", "--json").out)
        assert [row["id"] for row in data["delegations"]] == [EXPLORER, FIXER]
        assert {row["sessionId"] for row in data["delegations"]} == {SESSION}
        assert "report" not in data["delegations"][0]
        assert cli("delegations", "list", "00").code == 2

    def test_a_limit_keeps_the_newest_and_says_that_there_are_more(self, cli: Cli, harbour: str):
        result = cli("delegations", "list", "--limit", "1")
        assert "f1ce0000" in result.out
        assert "de1e9a7e" not in result.out
        assert result.err == "there are more: --limit 2\n"

    def test_nothing_stored_is_no_error(self, cli: Cli):
        result = cli("delegations", "list")
        assert (result.code, result.out, result.err) == (0, "", "no delegations are stored yet\n")

    def test_one_whose_process_died_is_interrupted_and_one_that_is_held_runs(
        self, cli: Cli, home: Path, tree: Path
    ):
        died(home, tree)
        assert "interrupted" in cli("delegations", "list").out
        with_store(home, lambda store: hold(store, "dead5e55"))
        (row,) = json.loads(cli("delegations", "list", "--json").out)["delegations"]
        assert row["status"] == "running"


class TestShow:
    def test_it_prints_facts_task_and_report(self, cli: Cli, harbour: str):
        out = cli("delegations", "show", "de1e").out
        assert out.startswith("de1e9a7e  #1 explorer  Look up BERTH_LIMIT\n  status      completed (stop)\n")
        assert "  session     5e551011  Berths and tides\n" in out
        assert "  model       offline/extractive, independent context\n" in out
        assert "  work        2 turns, 1 tool, 5.0s\n  tokens      4,220 in + 107 out tokens\n" in out
        assert "\ntask\nLook up BERTH_LIMIT.\n" in out
        assert out.endswith("\nreport\nFound:\n- src/harbour.py:1: BERTH_LIMIT = 12\n")

    def test_messages_show_all_that_it_said_and_did(self, cli: Cli, harbour: str):
        assert "• Read  src/harbour.py" not in cli("delegations", "show", "de1e").out
        out = cli("delegations", "show", "de1e", "--messages").out
        assert re.search(r"^task  .*  m0000003\nLook up BERTH_LIMIT\.$", out, re.MULTILINE)
        assert "Reading.\n• Read  src/harbour.py\n" in out

    def test_a_failure_says_why(self, cli: Cli, harbour: str):
        out = cli("delegations", "show", "f1ce").out
        assert "  status      failed (stop)\n" in out
        assert "  error       PROVIDER_UNAUTHORIZED: Incorrect API key\n" in out

    def test_json_has_everything(self, cli: Cli, harbour: str):
        data = json.loads(cli("delegations", "show", EXPLORER, "--json", "--messages").out)
        assert (data["status"], data["outcome"]["usage"]["inputTokens"]) == ("completed", 4_220)
        assert data["report"].startswith("Found:")
        assert [entry["role"] for entry in data["transcript"]] == ["task", "assistant", "assistant"]

    def test_of_a_copied_one_the_session_can_be_named(self, cli: Cli, home: Path, harbour: str):
        copy = cli("sessions", "fork", "5e55").out.strip()
        with_store(home, lambda store: store.sessions.touch(copy, now_ms()))
        for session in (SESSION, copy):
            data = json.loads(cli("delegations", "show", "de1e", "--session", session[:8], "--json").out)
            assert data["sessionId"] == session
        assert refusal(cli("delegations", "show", "d1ed", "--session", copy))[0].startswith("There is no")

    def test_the_one_that_went_on_with_it_and_died_is_interrupted(self, cli: Cli, home: Path, tree: Path):
        gone_on_with_and_died(home, tree)
        assert f"  went on in  {AGAIN[:8]}, interrupted\n" in cli("delegations", "show", "d1ed").out

    def test_an_unknown_id_is_code_2(self, cli: Cli, harbour: str):
        assert refusal(cli("delegations", "show", "00")) == (
            "There is no delegation 00.",
            "`sidequest delegations list` shows what there is.",
        )


class TestResume:
    def test_it_goes_on_in_the_folder_of_its_session_with_what_it_knew(
        self, cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        first = begun(cli)
        monkeypatch.chdir(tmp_path)
        result = cli("delegations", "resume", first[:8], "And what is HIGH_WATER_HOUR?")
        assert result.code == 0
        assert "src/tides.py:2: HIGH_WATER_HOUR = 14" in result.out
        assert 'Grep "BERTH_LIMIT"' in result.out
        lines = result.err.splitlines()
        session = stored(home)[0].session_id
        assert lines[0] == f"going on with #1 explorer ({first[:8]}) of session {session[:8]}: {QUESTION}"
        assert lines[1].startswith("Commands will be denied: nobody can be asked here.")
        assert lines[2] == "#2 explorer  started on offline/extractive: And what is HIGH_WATER_HOUR?"
        assert lines[-1] == f"session       {session[:8]}"

    def test_json_ends_with_the_outcome_and_its_session(self, cli: Cli, home: Path):
        first = begun(cli)
        result = last(cli("delegations", "resume", first, QUESTION, "--json"))
        before, after = stored(home)
        assert (result["ok"], result["delegationId"], result["sessionId"]) == (
            True,
            after.id,
            before.session_id,
        )
        assert (after.resumed_from, after.chain_id) == (before.id, before.id)
        assert f"  went on in  {after.id[:8]}, completed\n" in cli("delegations", "show", before.id).out
        assert f"went on with {before.id[:8]}" in cli("delegations", "list").out

    def test_any_id_of_a_chain_means_its_newest(self, cli: Cli, home: Path):
        first = begun(cli)
        cli("delegations", "resume", first, QUESTION)
        cli("delegations", "resume", first, QUESTION)
        assert [row.resumed_from for row in stored(home)] == [None, first, stored(home)[1].id]

    def test_one_that_a_kill_interrupted_can_be_gone_on_with(self, cli: Cli, home: Path, tree: Path):
        begun(cli)
        row = stored(home)[0]

        async def kill(store: Store) -> None:
            talk = Conversation(store, row.session_id)
            fact = {"agent": "explorer", "definition": row.definition}
            await talk.delegate(DIED, "Look at the tides", **fact)
            await talk.say(brief("Look at the tides."), says("Half of it.", call("r1")), lane=DIED)
            far = DelegationProgress(1, 1, 900, "offline/extractive", "Read")
            await store.delegations.progress(row.session_id, DIED, far, talk.tick())
            await hold(store, row.session_id, host=socket.gethostname(), pid=dead_pid())

        with_store(home, kill)
        result = cli("delegations", "resume", "d1ed", "What is HIGH_WATER_HOUR?")
        assert (result.code, "HIGH_WATER_HOUR = 14" in result.out) == (0, True)
        assert {row.id: row.status for row in stored(home)}[DIED] is Status.INTERRUPTED

    @pytest.mark.parametrize("reopened", [False, True])
    def test_a_kill_just_after_it_began_does_not_close_the_chain(
        self, cli: Cli, home: Path, tree: Path, reopened: bool
    ):
        gone_on_with_and_died(home, tree)
        with sqlite3.connect(store_of(home)) as connection:
            connection.execute("UPDATE delegations SET turns = 1 WHERE id = ?", (DIED,))
        if reopened:
            with_store(home, lambda store: store.delegations.interrupt_running("dead5e55", now_ms()))
        result = cli("delegations", "resume", "d1ed", "What is HIGH_WATER_HOUR?")
        assert (result.code, "HIGH_WATER_HOUR = 14" in result.out) == (0, True)

    def test_the_instruction_may_come_from_standard_input(self, cli: Cli):
        first = begun(cli)
        out = cli("delegations", "resume", first, "-q", stdin="What is HIGH_WATER_HOUR?").out
        assert "HIGH_WATER_HOUR = 14" in out
        assert refusal(cli("delegations", "resume", first))[0] == "The instruction is empty."


class TestRefusals:
    def test_an_unknown_id(self, cli: Cli, harbour: str):
        assert refusal(cli("delegations", "resume", "00", "x"))[0] == "There is no delegation 00."

    def test_one_that_was_stopped(self, cli: Cli, home: Path, tree: Path):
        died(home, tree)
        ended = outcome(DIED, Status.STOPPED, turns=1)
        with_store(home, lambda store: store.delegations.settle("dead5e55", ended, now_ms()))
        assert refusal(cli("delegations", "resume", "d1ed", "x")) == (
            "Delegation d1ed0000 of explorer was stopped, and what was stopped is not gone on with.",
            ANEW,
        )

    def test_one_that_did_nothing(self, cli: Cli, home: Path, tree: Path):
        died(home, tree, turns=False)
        ended = outcome(DIED, Status.FAILED, "")
        with_store(home, lambda store: store.delegations.settle("dead5e55", ended, now_ms()))
        cause, remedy = refusal(cli("delegations", "resume", "d1ed", "x"))
        assert cause == "Delegation d1ed0000 of explorer did nothing that could be gone on with."
        assert remedy == ANEW

    def test_one_that_another_process_runs(self, cli: Cli, home: Path, tree: Path):
        died(home, tree)
        with_store(home, lambda store: hold(store, "dead5e55"))
        cause, _ = refusal(cli("delegations", "resume", "d1ed", "x"))
        assert cause.startswith("Session dead5e55 is in use by process 4711 on other-host since")

    def test_a_folder_that_is_gone(self, cli: Cli, tree: Path, monkeypatch: pytest.MonkeyPatch):
        first = begun(cli)
        monkeypatch.chdir(tree.parent)
        shutil.rmtree(tree)
        cause, remedy = refusal(cli("delegations", "resume", first, "x"))
        assert cause.startswith(f"The folder {tree} of session ")
        assert remedy == "Put it back, or delegate the work anew: `sidequest delegate explorer`."

    def test_a_definition_that_is_gone(self, cli: Cli, home: Path):
        file = write_definition(home / ".agents/subagents", "looker", LOOKER.format(tools="Read, Grep"))
        first = begun(cli, agent="looker")
        file.unlink()
        cause, remedy = refusal(cli("delegations", "resume", first, "x"))
        assert cause == (
            f"The definition of delegation {first[:8]} cannot be used: There is no subagent named 'looker'."
        )
        assert remedy == "Bring the definition of looker back, or delegate the work to another subagent."

    def test_a_definition_that_was_given_more_tools(self, cli: Cli, home: Path):
        folder = home / ".agents/subagents"
        write_definition(folder, "looker", LOOKER.format(tools="Read, Grep"))
        first = begun(cli, agent="looker")
        write_definition(folder, "looker", LOOKER.format(tools="Read, Grep, Bash"))
        cause, _ = refusal(cli("delegations", "resume", first, "x"))
        assert cause == "looker was given more tools since that delegation ran: Bash."
        write_definition(folder, "looker", LOOKER.format(tools="Grep"))
        assert cli("delegations", "resume", first, QUESTION).code == 0

    def test_a_model_that_is_not_configured_any_more(
        self, cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
    ):
        def answer(seen: Seen) -> Reply:
            return Reply("A report.")

        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        with LoopbackProvider(answer).run_in_thread() as provider:
            table = f'[models."lab/test"]\nbase_url = "{provider.openai_url}"\napi_key = "k"\n'
            write_settings(home, f"{table}context_window = 32000\n")
            first = begun(cli, "--model", "lab/test")
        write_settings(home, "")
        cause, remedy = refusal(cli("delegations", "resume", first, "x"))
        assert cause.startswith("The delegation ran on lab/test, which cannot be used here: No model is")
        assert remedy.endswith("Available: offline/extractive.")
        assert len(stored(home)) == 1
