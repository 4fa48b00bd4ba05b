"""`sidequest run` and `delegate` with the embedded engine on a tiny tree: output, exit codes, JSON."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.neutral import Reject, Reply, Responder, Seen
from tests.support.provider import LoopbackProvider
from tests.surfaces.conftest import Cli, Result, write_definition, write_settings

QUESTION = "What is the value of BERTH_LIMIT?"
NOTICE = "no model configured: using offline/extractive, which is not a language model"


def json_lines(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.out.splitlines()]


def reads(times: int) -> Responder:
    """Return a model that reads a file so many times and then reports; its summaries are short."""
    left = iter(range(times))

    def answer(seen: Seen) -> Reply:
        if not seen.tools:
            return Reply("## Goal\nRead the log.\n\n## Progress\n### Done\n- [x] read it")
        again = next(left, None) is not None
        return Reply(tool_calls=[("Read", {"path": "log.txt"})]) if again else Reply("All read.")

    return answer


def use(
    provider: LoopbackProvider, home: Path, monkeypatch: pytest.MonkeyPatch, window: int = 32_000
) -> None:
    """Make the provider on loopback the default model."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    write_settings(
        home,
        f'default_model = "lab/test"\n[models."lab/test"]\nbase_url = "{provider.openai_url}"\n'
        f'api_key = "k"\ncontext_window = {window}\n',
    )


class TestRun:
    def test_the_answer_goes_to_standard_output_and_progress_to_standard_error(self, cli: Cli):
        result = cli("run", QUESTION)
        assert result.code == 0
        assert "src/harbour.py:1: BERTH_LIMIT = 12" in result.out
        lines = result.err.splitlines()
        assert lines[0] == NOTICE
        assert any(line.startswith("#1 explorer  started on offline/extractive") for line in lines)
        assert any(re.match(r"status        done \(stop\) in ", line) for line in lines)
        assert "\x1b" not in result.out + result.err

    def test_the_metadata_name_model_turns_tokens_and_cost(self, cli: Cli):
        err = cli("run", QUESTION).err
        assert "model         offline/extractive\n" in err
        assert re.search(r"parent        \d+ turns, [\d,]+ in \+ [\d,]+ out tokens, no cost", err)
        assert re.search(r"delegations   1 completed: \d+ turns, .* no cost", err)
        assert re.search(r"total         [\d,]+ in \+ [\d,]+ out tokens, no cost", err)

    def test_quiet_prints_the_answer_only(self, cli: Cli):
        result = cli("run", QUESTION, "--quiet")
        assert (result.code, result.err) == (0, "")
        assert "BERTH_LIMIT = 12" in result.out

    @pytest.mark.parametrize("arguments", [("run",), ("run", "-")])
    def test_the_prompt_may_come_from_standard_input(self, cli: Cli, arguments: tuple[str, ...]):
        assert "BERTH_LIMIT = 12" in cli(*arguments, "-q", stdin=QUESTION).out

    def test_a_model_that_was_asked_for_needs_no_notice(self, cli: Cli, home: Path):
        assert NOTICE not in cli("run", QUESTION, "--model", "offline/extractive").err
        write_settings(home, 'default_model = "offline/extractive"\n')
        assert NOTICE not in cli("run", QUESTION).err

    def test_a_definition_that_does_not_load_is_mentioned(self, cli: Cli, home: Path):
        write_definition(home / ".agents/subagents", "boats", "nothing")
        assert "does not load: boats; see `sidequest agents check`" in cli("run", QUESTION).err


class TestJson:
    def test_run_prints_numbered_events_and_last_the_result(self, cli: Cli):
        result = cli("run", QUESTION, "--json")
        *events, last = json_lines(result)
        assert (result.code, result.err) == (0, "")
        assert [event["number"] for event in events] == list(range(1, len(events) + 1))
        assert {"notice", "turn_started", "delegation_started", "delegation_settled", "run_ended"} <= {
            event["type"] for event in events
        }
        assert (last["type"], last["ok"], last["stopReason"]) == ("result", True, "stop")
        assert "BERTH_LIMIT = 12" in last["text"]
        assert last["delegations"][0]["agent"] == "explorer"
        total, own = last["usage"]["total"], last["usage"]
        assert total["inputTokens"] == own["inputTokens"] + last["delegations"][0]["usage"]["inputTokens"]
        assert (last["contextCompactions"], last["contextDegraded"], last["modelFailures"]) == (0, False, [])
        assert "error" not in last

    def test_delegate_ends_with_its_outcome(self, cli: Cli):
        *events, last = json_lines(cli("delegate", "explorer", QUESTION, "--json"))
        assert events[-1]["type"] == "delegation_settled"
        assert (last["type"], last["ok"], last["status"], last["agent"]) == (
            "result",
            True,
            "completed",
            "explorer",
        )
        assert "BERTH_LIMIT = 12" in last["report"]
        assert (last["contextCompactions"], last["contextDegraded"], last["modelFailures"]) == (0, False, [])

    @pytest.mark.parametrize(
        ("arguments", "code"),
        [
            (("delegate", "nobody", "x"), "SUBAGENT_UNKNOWN"),
            (("run", "x", "--cwd", "/no"), "USAGE"),
            (("run", "x", "--bad"), "USAGE"),
            (("agents", "show", "nobody"), "SUBAGENT_UNKNOWN"),
        ],
    )
    def test_an_error_before_the_start_is_an_object_too(
        self, cli: Cli, arguments: tuple[str, ...], code: str
    ):
        result = cli(*arguments, "--json")
        (last,) = json_lines(result)
        assert (result.code, last["type"], last["ok"], last["error"]["code"]) == (2, "result", False, code)
        assert f"error: {last['error']['message']}" in result.err
        assert cli("run", "x", "--cwd", "/no", "--", "--json").out == ""

    def test_a_run_that_a_limit_ended_says_so(self, cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch):
        looks = Reply("So far.", tool_calls=[("Glob", {"pattern": "*"})])
        with LoopbackProvider(lambda seen: looks if seen.tools else Reply("So far.")).run_in_thread() as lab:
            use(lab, home, monkeypatch)
            monkeypatch.setenv("SIDEQUEST_MAX_TURNS", "2")
            result = cli("run", "x")
            last = json_lines(cli("run", "x", "--json"))[-1]
            delegated = json_lines(cli("delegate", "explorer", "x", "--json"))[-1]
        assert result.code == 0
        assert "warning: the answer may be incomplete: the turn limit was reached" in result.err
        assert (last["ok"], last["stopReason"]) == (True, "turn_limit")
        assert (delegated["stopReason"], delegated["turns"]) == ("turn_limit", 2)
        assert delegated["report"].startswith("Partial report: ")

    @pytest.mark.slow
    def test_a_real_process_prints_nothing_but_json(self, tree: Path, monkeypatch: pytest.MonkeyPatch):
        for name in ("PYTEST_VERSION", "CI"):  # with these pydantic-ai keeps its banner to itself anyway
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("AI_AGENT", "test")
        command = [sys.executable, "-m", "sidequest", "run", "--json", QUESTION]
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert (done.returncode, done.stderr) == (0, "")
        assert all(isinstance(json.loads(line), dict) for line in done.stdout.splitlines())

    @pytest.mark.slow
    @pytest.mark.parametrize("option", ["--json", "--model=lab/test"], ids=["json", "plain"])
    def test_a_reader_that_leaves_early_stops_the_work_quietly(
        self, home: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, option: str
    ):
        (tree / "log.txt").write_text("The tide was high.\n")
        with LoopbackProvider(reads(100_000)).run_in_thread() as provider:
            use(provider, home, monkeypatch)
            command = [sys.executable, "-m", "sidequest", "run", "x", option]
            process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True
            )
            assert process.stdout is not None
            first = process.stdout.readline()
            process.stdout.close()
            assert process.wait(timeout=60) == 1
        assert "Traceback" not in first


class TestDelegate:
    def test_the_report_goes_to_standard_output(self, cli: Cli):
        result = cli("delegate", "explorer", QUESTION)
        assert result.code == 0
        assert "BERTH_LIMIT = 12" in result.out
        assert re.search(r"status        completed \(stop\) in ", result.err)
        assert "model         offline/extractive, independent context" in result.err

    def test_X8_an_attached_file_goes_with_the_task_wherever_it_lies(
        self, cli: Cli, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ):
        log = tmp_path / "build.log"
        log.write_text("BUILD FAILED AT BERTH 7\n")
        with LoopbackProvider([Reply("Seen.")]).run_in_thread() as provider:
            use(provider, home, monkeypatch)
            result = cli("delegate", "explorer", "Why?", "--attach", str(log), "--json", stdin="")
            assert result.code == 0
            assert "BUILD FAILED AT BERTH 7" in provider.requests[0].user_texts[0]
        assert json_lines(result)[-1]["status"] == "completed"

    def test_X8_a_file_that_cannot_be_attached_is_code_2(self, cli: Cli):
        result = cli("delegate", "explorer", "Why?", "--attach", "gone.log")
        assert (result.code, result.out) == (2, "")
        assert "gone.log cannot be attached: there is no such file." in result.err

    def test_X8_the_embedded_engine_takes_its_question_from_the_task_alone(self, cli: Cli, tree: Path):
        (tree / "note.txt").write_text("Task: find HIGH_WATER_HOUR\n")
        result = cli("delegate", "explorer", QUESTION, "--attach", "note.txt")
        assert "BERTH_LIMIT = 12" in result.out

    def test_the_model_that_was_asked_for_beats_a_pin(self, cli: Cli, home: Path):
        text = "---\nname: poet\ndescription: d\nmodel: sonnet\n---\nWrite.\n"
        write_definition(home / ".agents/subagents", "poet", text)
        assert cli("delegate", "poet", QUESTION, "--model", "offline/extractive").code == 0
        refused = cli("delegate", "poet", QUESTION)
        assert refused.code == 2
        assert "The pinned model 'sonnet' cannot be used" in refused.err

    def test_each_compaction_is_a_line_and_counted(
        self, cli: Cli, home: Path, tree: Path, monkeypatch: pytest.MonkeyPatch
    ):
        (tree / "log.txt").write_text("The tide was high and the boats were in.\n" * 100)
        with LoopbackProvider(reads(5)).run_in_thread() as provider:
            use(provider, home, monkeypatch, window=8000)
            result = cli("delegate", "explorer", QUESTION)
        assert (result.code, result.out) == (0, "All read.\n")
        line = r"^#1 explorer  context compacted  [\d,]+ -> [\d,]+ tokens \(limit 4,000\)$"
        found = re.findall(line, result.err, re.MULTILINE)
        assert found
        assert f"compactions   {len(found)}\n" in result.err

    def test_a_report_that_a_limit_cut_is_code_0_with_a_warning(
        self, cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
    ):
        with LoopbackProvider([Reply("The first half of", finish="length")]).run_in_thread() as provider:
            use(provider, home, monkeypatch)
            result = cli("delegate", "explorer", QUESTION, "-q")
        assert result.code == 0
        assert re.fullmatch(r"Partial report: .*\n\nThe first half of\n", result.out)
        assert result.err.startswith("warning: partial report: ")


class TestFailures:
    def test_a_key_that_is_refused_is_code_1_and_two_lines(
        self, cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
    ):
        refusal = Reject(401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})
        with LoopbackProvider([refusal, refusal]).run_in_thread() as provider:
            use(provider, home, monkeypatch)
            for command in (("run", "x"), ("delegate", "explorer", "x")):
                result = cli(*command, "-q")
                cause, remedy = result.err.splitlines()
                assert (result.code, result.out) == (1, "")
                assert cause.startswith("error: ")
                assert "Incorrect API key" in cause
                assert remedy == "  try: Check the key of the provider: `sidequest models list`."

    def test_a_window_that_is_too_small_is_told_once_with_the_key_of_the_model_and_a_remedy(
        self, cli: Cli, home: Path
    ):
        write_settings(home, '[models."offline/extractive"]\ncontext_window = 2600\nmax_tokens = 300\n')
        for command in (("run", "x"), ("delegate", "explorer", "x")):
            result = cli(*command)
            cause, remedy = result.err.splitlines()[-2:]
            assert re.fullmatch(r"error: .* are \d,\d{3} tokens.* offline/extractive leaves 1,300 .*", cause)
            assert remedy.startswith("  try: ")
            assert result.err.count("The instructions and tool schemas alone") == 1

    def test_the_json_result_of_a_failure_carries_the_error(
        self, cli: Cli, home: Path, monkeypatch: pytest.MonkeyPatch
    ):
        refusal = Reject(401, {"error": {"message": "Incorrect API key", "code": "invalid_api_key"}})
        with LoopbackProvider([refusal]).run_in_thread() as provider:
            use(provider, home, monkeypatch)
            result = cli("run", "x", "--json")
        last = json_lines(result)[-1]
        assert (result.code, last["ok"], last["error"]["code"]) == (1, False, "PROVIDER_UNAUTHORIZED")

    @pytest.mark.parametrize(
        ("arguments", "cause", "remedy"),
        [
            (("run", ""), "The prompt is empty.", "Write it as an argument, or send it to standard input."),
            (("run",), "The prompt is empty.", "Write it as an argument, or send it to standard input."),
            (
                ("delegate", "explorer", " "),
                "The task is empty.",
                "Write it as an argument, or send it to standard input.",
            ),
            (
                ("delegate", "explorr", "x"),
                "There is no subagent named 'explorr'.",
                "Did you mean explorer? Use one of: code-reviewer, explorer, fixer, test-runner.",
            ),
            (
                ("run", "x", "--model", "no/such"),
                "No model is configured under the name 'no/such'.",
                'Add a table [models."no/such"] with its base_url to the settings. '
                "Available: offline/extractive.",
            ),
            (("run", "x", "--cwd", "/no"), "The folder /no is not there.", "Give --cwd an existing folder."),
            (
                ("run", "x", "--context", "maybe"),
                "'maybe' is no context mode.",
                "Use --context independent or fork.",
            ),
        ],
    )
    def test_what_cannot_start_is_code_2_and_two_lines(
        self, cli: Cli, arguments: tuple[str, ...], cause: str, remedy: str
    ):
        result = cli(*arguments)
        assert (result.code, result.out) == (2, "")
        assert result.err == f"error: {cause}\n  try: {remedy}\n"

    def test_a_model_without_its_key_is_code_2(self, cli: Cli):
        result = cli("run", "x", "--model", "anthropic/claude-sonnet-4-5")
        assert (result.code, result.out) == (2, "")
        assert result.err.startswith("error: ANTHROPIC_API_KEY is not set.\n  try: ")

    def test_a_definition_that_does_not_load_is_code_2(self, cli: Cli, home: Path):
        write_definition(home / ".agents/subagents", "boats", "nothing")
        result = cli("delegate", "boats", "x")
        assert result.code == 2
        assert result.err.startswith("error: The subagent boats does not load: There is no frontmatter")

    def test_a_pattern_of_the_settings_that_is_wrong_is_code_2(self, cli: Cli, home: Path):
        write_settings(home, '[[error_patterns]]\nname = "mine"\nkind = "input"\nregex = "("\n')
        result = cli("run", "x")
        assert result.code == 2
        assert "The provider error pattern mine has a regex that does not compile" in result.err
