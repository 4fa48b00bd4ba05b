"""The embedded model as a delegate: it searches, reads and quotes, and says so when there is nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, ToolReturnPart

from sidequest.models.extractive import ExtractiveModel
from tests.models.offline_bench import Workspace, calls_of, user


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path).write()


def test_where_is_quotes_the_definition_first(workspace: Workspace) -> None:
    report = workspace.report("Where is `hard_limit` defined?")
    assert report.splitlines()[2] == "- src/budget.py:11: hard_limit: int"


def test_source_outranks_documents_and_tests(workspace: Workspace) -> None:
    report = workspace.report("How does the hard limit work?")
    assert report.index("src/budget.py") < report.index("docs/budget.md")


def test_tests_are_first_when_the_question_is_about_tests(workspace: Workspace) -> None:
    report = workspace.report("Which test checks hard_limit?")
    assert "tests/test_budget.py:1: def test_hard_limit():" in report


def test_a_name_spelled_otherwise_is_found(workspace: Workspace) -> None:
    assert "src/budget.py:3: DEFAULT_WINDOW = 128_000" in workspace.report("What is defaultWindow?")


def test_value_of_quotes_the_assignment(workspace: Workspace) -> None:
    report = workspace.report("What is the value of RESERVE_FLOOR?")
    assert report.splitlines()[2] == "- src/budget.py:5: RESERVE_FLOOR = 16_384"


def test_plain_words_find_the_constant_they_spell(workspace: Workspace) -> None:
    report = workspace.report("What is the default window?")
    assert report.splitlines()[2] == "- src/budget.py:3: DEFAULT_WINDOW = 128_000"


def test_a_value_that_is_another_name_is_followed(workspace: Workspace) -> None:
    report = workspace.report("What is the value of RETRY_LIMIT?")
    assert "src/settings.py:3: RETRY_LIMIT = MAX_TRIES" in report
    assert "src/retry.py:3: MAX_TRIES = 4" in report


def test_list_all_quotes_every_line_and_counts_them(workspace: Workspace) -> None:
    report = workspace.report("List all places where DEFAULT_WINDOW is used")
    assert report.startswith("Found 2 matching lines in 2 files.")
    assert "- src/budget.py:3: " in report
    assert "- src/retry.py:1: " in report


def test_listing_the_members_of_a_class_reads_its_block(workspace: Workspace) -> None:
    report = workspace.report("List all paint colours")
    quoted = [line.split(": ", 1)[1] for line in report.splitlines() if line.startswith("- ")]
    assert quoted == ["class PaintColour:", 'RED = "red"', 'SAP_GREEN = "green"', 'BLUE = "blue"']


def test_a_cut_search_result_is_not_called_complete(workspace: Workspace) -> None:
    workspace.grep_lines = 1
    assert "Found at least " in workspace.report("List all uses of hard_limit")


def test_a_cut_search_is_followed_by_one_for_the_definition(tmp_path: Path) -> None:
    files = {f"a/use{number}.py": "print(late_name)\n" for number in range(9)}
    workspace = Workspace(tmp_path, grep_lines=5).write(
        {**files, "z/deep.py": "def late_name():\n    return 1\n"}
    )
    report = workspace.report("Where is late_name defined?")
    assert report.splitlines()[2] == "- z/deep.py:1: def late_name():"


@pytest.mark.parametrize("path", ["a/vendor/x.py", "a/tests/x.py", "a/docs.md"])
def test_copies_tests_and_documents_come_after_the_source(tmp_path: Path, path: str) -> None:
    workspace = Workspace(tmp_path).write({path: "print(LIMIT_A)\n", "zz.py": "print(LIMIT_A)\n"})
    assert workspace.report("Where is LIMIT_A?").splitlines()[2] == "- zz.py:1: print(LIMIT_A)"


def test_a_use_comes_before_an_import(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).write({"a.py": "from zz import LIMIT_A\n", "zz.py": "print(LIMIT_A)\n"})
    assert workspace.report("Where is LIMIT_A?").splitlines()[2] == "- zz.py:1: print(LIMIT_A)"


def test_two_slices_of_one_file_do_not_overlap(tmp_path: Path) -> None:
    lines = ["nothing here"] * 600
    lines[99] = lines[239] = lines[259] = "deep_name(1)"
    workspace = Workspace(tmp_path).write({"a.py": "\n".join(lines)})
    workspace.report("How does deep_name work?")
    reads = [call.split()[2:] for call in workspace.calls if call.startswith("Read")]
    assert reads == [["59", "160"], ["219", "140"]]


def test_without_grep_it_reads_what_it_can_list(workspace: Workspace) -> None:
    agent = Agent(ExtractiveModel(window=200_000), tools=[workspace.Glob, workspace.Read])
    report = asyncio.run(agent.run("Where is MAX_TRIES defined?")).output
    assert "- src/retry.py:3: MAX_TRIES = 4" in report


def test_with_read_alone_and_nothing_to_read_it_says_so(workspace: Workspace) -> None:
    agent = Agent(ExtractiveModel(window=200_000), tools=[workspace.Read])
    assert asyncio.run(agent.run("Where is MAX_TRIES defined?")).output.startswith("Nothing was searched")


def test_not_found_names_what_was_looked_for(workspace: Workspace) -> None:
    report = workspace.report("Where is flux_capacitor defined?")
    assert report.startswith("Nothing was found for `flux_capacitor`.")
    assert "path:" not in report


def test_half_found_says_which_half_is_missing(workspace: Workspace) -> None:
    report = workspace.report("Where are MAX_TRIES and flux_capacitor defined?")
    assert "- src/retry.py:3: MAX_TRIES = 4" in report
    assert "Not found: `flux_capacitor`." in report


def test_steps_that_are_no_longer_in_view_still_count(workspace: Workspace) -> None:
    history = [
        user("How does the retry wait?"),
        ModelResponse(
            parts=[
                TextPart("Step 12 of at most 12: Read src/retry.py lines 1-2."),
                ToolCallPart("Read", {"path": "src/retry.py", "limit": 2}, "c1"),
            ]
        ),
        ModelRequest(parts=[ToolReturnPart("Read", workspace.Read("src/retry.py", 5, 2), "c1")]),
    ]
    workspace.calls.clear()
    report = asyncio.run(workspace.agent().run(message_history=history)).output
    assert workspace.calls == []
    assert "- src/retry.py:6: def wait_seconds" in report


def test_one_call_per_turn_and_none_twice(workspace: Workspace) -> None:
    result = asyncio.run(workspace.agent().run("How does the retry wait, and what is the hard limit?"))
    answers = [message for message in result.all_messages() if message.kind == "response"]
    assert all(len(calls_of([answer])) == 1 for answer in answers[:-1])
    assert 6 <= len(workspace.calls) <= 14
    assert len(set(workspace.calls)) == len(workspace.calls)


def test_a_named_file_is_opened(workspace: Workspace) -> None:
    report = workspace.report("What does retry.py say about attempts?")
    assert workspace.calls[:2] == ["Glob **/retry.py .", "Read src/retry.py 0 200"]
    assert "- src/retry.py:6: def wait_seconds(attempt: int) -> float:" in report


def test_a_named_folder_bounds_the_search(workspace: Workspace) -> None:
    workspace.report("Where is MAX_TRIES set in src/?")
    assert workspace.calls[0] == "Grep MAX_TRIES src"


def test_reading_every_file_reads_all_pages(tmp_path: Path) -> None:
    filler = "nothing to see\n" * 450
    files = {f"notes/{n}.txt": f"FACT {n} first\n{filler}FACT {n} last\n" for n in range(3)}
    workspace = Workspace(tmp_path).write(files)
    report = workspace.report("Read every file in notes/ and report each line that begins with FACT.")
    assert report.startswith("Found 6 matching lines in 3 files.")
    assert "- notes/2.txt:452: FACT 2 last" in report


def test_a_range_of_files_is_read_one_by_one(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).write(
        {f"note-{n:02d}.txt": f"FACT-{n:02d} is {n * 7}\n" for n in range(1, 6)}
    )
    report = workspace.report("Read note-01.txt to note-05.txt, each file once. Report all facts.")
    assert workspace.calls == [f"Read note-{n:02d}.txt 0 200" for n in range(1, 6)]
    assert "- note-04.txt:1: FACT-04 is 28" in report


def test_a_result_cut_in_its_middle_is_read_again_where_it_was_cut(tmp_path: Path) -> None:
    class Cutting(Workspace):
        def Read(self, path: str, offset: int = 0, limit: int | None = None) -> str:
            whole = super().Read(path, offset, limit)
            return whole if len(whole) < 900 else f"{whole[:400]}\n[… cut: 9 characters …]\n{whole[-400:]}"

    text = "".join(f"line {n}\n" if n != 60 else "FACT is in the middle\n" for n in range(1, 121))
    workspace = Cutting(tmp_path).write({"a.txt": text, "b.txt": "nothing\n"})
    report = workspace.report("Read a.txt and b.txt and quote every FACT line")
    assert "- a.txt:60: FACT is in the middle" in report


def test_files_of_a_kind_are_listed_without_reading_them(workspace: Workspace) -> None:
    report = workspace.report("List all markdown files")
    assert report.startswith("Found 1 files:\n\n- docs/budget.md\n")
    assert workspace.calls == ["Glob **/*.md ."]


def test_a_limit_that_strikes_leaves_a_word_about_what_was_not_read(tmp_path: Path) -> None:
    files = {f"notes/{n:03d}.txt": f"FACT {n} first\n" for n in range(70)}
    report = Workspace(tmp_path).write(files).report("Read every file in notes/ and report each FACT line.")
    assert report.startswith("Found 60 matching lines in 60 files.")
    assert "Not read to the end: notes/060.txt, notes/061.txt" in report


def test_work_that_it_cannot_do_is_refused_in_a_sentence(workspace: Workspace) -> None:
    report = workspace.report("Implement a cache for wait_seconds.")
    assert "not a language model" in report
    assert workspace.calls == []


def test_a_tool_that_fails_is_reported_and_not_called_again(tmp_path: Path) -> None:
    class Broken(Workspace):
        def Read(self, path: str, offset: int = 0, limit: int | None = None) -> str:
            self.calls.append(f"Read {path} {offset} {limit}")
            raise ToolFailed("Permission denied.")

    workspace = Broken(tmp_path).write()
    report = workspace.report("Where is MAX_TRIES defined?")
    assert "src/retry.py:3: MAX_TRIES = 4" in report
    assert "Permission denied." in report
    assert len(set(workspace.calls)) == len(workspace.calls)
