"""How the embedded model understands questions, lines and messages."""

from __future__ import annotations

import pytest

from sidequest.models.offline.entries import AssistantText, ToolUse, UserText, parse_serialised
from sidequest.models.offline.lines import definition_of, is_fact, read_file, read_search
from sidequest.models.offline.recognise import find_brief
from sidequest.models.offline.subjects import asks_for_work, is_greeting
from sidequest.models.offline.terms import spellings, stem
from sidequest.models.offline.words import Aim, query_of, question_of


@pytest.mark.parametrize(
    ("question", "strong"),
    [
        ("Where is `hard limit` set?", ["hard limit"]),
        ("Where is hard_limit set?", ["hard_limit"]),
        ("Where is hardLimit set?", ["hardLimit"]),
        ("What does ContextBudget.of() do?", ["ContextBudget.of", "ContextBudget"]),
        ("List all FACT lines", ["FACT"]),
        ("What is utf8 for?", ["utf8"]),
        ("Where is the file-backed store?", []),
        ("Where does it write, e.g. and so on?", []),
    ],
)
def test_identifiers_and_quotations_are_the_strong_terms(question: str, strong: list[str]) -> None:
    assert [term.text for term in query_of(question).strong] == strong


def test_words_that_say_nothing_are_dropped() -> None:
    assert query_of("Please find where this is used and tell me").terms == ()


def test_words_about_code_are_searched_only_when_there_is_nothing_else() -> None:
    assert [term.text for term in query_of("Which function waits?").searchable] == ["waits"]
    assert [term.text for term in query_of("Which function is it?").searchable] == ["function"]


@pytest.mark.parametrize(
    ("question", "aim"),
    [
        ("Where is x_y?", Aim.WHERE),
        ("What is the value of x_y?", Aim.VALUE),
        ("How many tries are made?", Aim.VALUE),
        ("List all x_y", Aim.LIST),
        ("Where is x_y used?", Aim.LIST),
        ("How does x_y work?", Aim.EXPLAIN),
        ("Read every file in notes/ and report what it says.", Aim.SWEEP),
    ],
)
def test_the_shape_of_answer_is_recognised(question: str, aim: Aim) -> None:
    assert query_of(question).aim is aim


def test_paths_are_told_from_words() -> None:
    query = query_of("Is `src/a.py`, b.md or tests/ about reading and/or writing *.toml?")
    assert set(query.files) == {"src/a.py", "b.md", "*.toml"}
    assert query.folders == ("tests",)


@pytest.mark.parametrize(
    ("brief", "question"),
    [
        ("Search the files.\n\nQuestion: Where is x_y?\n\nReport as path:line.", "Where is x_y?"),
        ("You are now explorer.\n\nRole:\nfinds\n\nTask:\nSearch.\n\nQuestion: Where?\n\nReport.", "Where?"),
        ("Context first.\n<task>Where is x_y?</task>", "Where is x_y?"),
        ("Where is x_y?", "Where is x_y?"),
    ],
)
def test_the_marked_part_of_a_brief_is_the_question(brief: str, question: str) -> None:
    assert question_of(brief) == question


def test_a_name_is_looked_for_in_every_spelling() -> None:
    assert spellings("hardLimit") == ("hardlimit", "hard_limit", "hard-limit", "hard limit")


@pytest.mark.parametrize("word", ["degrade", "degraded", "degrades", "degradation"])
def test_forms_of_a_word_share_a_stem(word: str) -> None:
    assert stem(word) == "degrad"


def test_a_short_word_is_found_in_its_own_forms_only() -> None:
    mode = query_of("Which mode?").searchable[0]
    assert [bool(mode.match(text, text.lower())) for text in ("modes", "setMode()", "model")] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("line", "name", "value"),
    [
        ("    def fits(self) -> bool:", "fits", ""),
        ("export async function loadAll() {", "loadAll", ""),
        ("LIMIT: Final[int] = 4", "LIMIT", "4"),
        ("timeout: 30", "timeout", "30"),
        ("## How it works", "How it works", ""),
        ('  "name": "sidequest",', "name", '"sidequest",'),
    ],
)
def test_lines_that_define_something(line: str, name: str, value: str) -> None:
    definition = definition_of(line)
    assert definition is not None
    assert (definition.name, definition.value) == (name, value)


@pytest.mark.parametrize(
    "line", ["if limit == 4:", "    call(limit=4,", "return x", "    limit=limit,", "for a in b:"]
)
def test_lines_that_define_nothing(line: str) -> None:
    definition = definition_of(line)
    assert definition is None or definition.name != "limit"


def test_facts_by_their_looks() -> None:
    assert is_fact("FACT 3: the lamp is lit")
    assert is_fact("RETRY_LIMIT = 7")
    assert not is_fact("the lamp is lit")


def test_a_search_result_with_context_and_notices() -> None:
    reading = read_search("src/a-b.py-6-before\nsrc/a-b.py:7:x = 1\n--\nc.py:2:x\n[3 more lines not shown]")
    assert reading.lines == {("src/a-b.py", 6): "before", ("src/a-b.py", 7): "x = 1", ("c.py", 2): "x"}
    assert (reading.matches, reading.cut) == (2, True)


def test_fragments_beside_a_cut_are_not_read_as_lines_of_other_files() -> None:
    reading = read_search(
        "src/a.py:7:x = 1\nsrc/b.py:9:x =\n[… 90 characters cut …]\nc.py:3:x = 3\nsrc/d.py:4:x = 4"
    )
    assert set(reading.lines) == {("src/a.py", 7), ("src/d.py", 4)}


def test_a_read_result_with_header_and_continuation() -> None:
    reading = read_file(
        "[a.py | 40 lines]\n     5\tx = 1\n     6\t\n... (34 more lines. Use offset=6 to continue reading.)",
        "a.py",
    )
    assert reading.lines == {("a.py", 5): "x = 1", ("a.py", 6): ""}
    assert reading.total == 40


def test_a_serialised_conversation_is_read_back() -> None:
    text = (
        "[User]: Where?\n\n[Assistant thinking]: hm\n\n[Assistant]: Looking.\n\n[Assistant tool calls]: "
        'Grep(pattern="a\\"; b(", literal=true)\n\n[Tool result]: a.py:1:x\n\nb.py:2:y'
    )
    assert parse_serialised(text) == (
        UserText("Where?"),
        AssistantText("Looking."),
        ToolUse("Grep", {"pattern": 'a"; b(', "literal": True}, "a.py:1:x\n\nb.py:2:y"),
    )


@pytest.mark.parametrize(
    "later",
    [
        "Continue.",
        "This is your last turn: the turn limit is reached. Write your report now.",
        "<summary>\n## Goal\nWhere is x_y?\n\n## Critical Context\n(none)\n</summary>",
        '## explorer (id)\n<delegation-report agent="explorer">\nFound: nothing\n</delegation-report>',
    ],
)
def test_what_is_not_a_new_brief_does_not_replace_the_brief(later: str) -> None:
    assert find_brief([UserText("Where is x_y?"), UserText(later)]) == (0, "Where is x_y?")


@pytest.mark.parametrize(
    "later",
    ["How many turns is the limit, and where is the answer reported?", "Report all facts of a.txt now."],
)
def test_a_new_brief_replaces_the_older_one(later: str) -> None:
    assert find_brief([UserText("Where is x_y?"), UserText(later)]) == (1, later)


@pytest.mark.parametrize("text", ["Hi", "hello there!", "thanks", "what can you do?"])
def test_greetings(text: str) -> None:
    assert is_greeting(text)


@pytest.mark.parametrize(
    "text", ["Where is hello_world?", "hello, where is the retry limit set in the settings?"]
)
def test_questions_are_no_greetings(text: str) -> None:
    assert not is_greeting(text)


def test_asking_where_something_is_written_is_not_asking_to_write() -> None:
    assert asks_for_work("Please write a parser.")
    assert asks_for_work("Can you rename foo to bar")
    assert not asks_for_work("Find where the file is written.")
    assert not asks_for_work("Write down where x_y is defined.")
