"""Where the frontmatter is, which reader understood it, and what an unreadable file says (rules 1 and 3)."""

from __future__ import annotations

import pytest

from sidequest.subagents.definition import Permission, Reader
from sidequest.subagents.parse import MAX_DOCUMENT_BYTES, Severity, parse_definition
from tests.subagents.builders import defined, document, messages, parsed


def read(text: str | bytes):
    return parse_definition(text, path="agents/worker.md")


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_do_not_matter(newline):
    result = read(document("tools: Read").replace("\n", newline))
    assert result.definition is not None
    assert (result.definition.tools, result.definition.body) == (("Read",), "Do it.")


def test_frontmatter_begins_on_the_first_line():
    [error] = read("\n" + document()).diagnostics
    assert "line 2" in error.message


def test_blocks_of_dashes_in_the_body_belong_to_the_body():
    result = read(document(body="One\n---\ntools: Bash\n---\nTwo"))
    assert result.definition is not None
    assert result.definition.body.endswith("---\nTwo")
    assert "Bash" not in result.definition.tools


def test_an_empty_body_is_an_error_unless_a_prompt_key_holds_it():
    assert "no prompt" in read(document(body=" ")).diagnostics[0].message
    held = read(document("prompt: |", "  Line one.", "  Line two.", body=""))
    assert held.definition is not None
    assert held.definition.body == "Line one.\nLine two."


def test_several_errors_are_one_diagnostic():
    [error] = read("---\nname: worker\nmodel: openai/\n---\n").diagnostics
    assert "no prompt" in error.message
    assert "not a model" in error.message


def test_a_document_may_be_32_kib_and_not_a_byte_more():
    text = document()
    full = text + "x" * (MAX_DOCUMENT_BYTES - len(text))
    assert read(full).definition is not None
    [error] = read(full + "x").diagnostics
    assert "larger than 32,768 bytes" in error.message
    assert read(full + "x").name == "worker"


def test_bytes_that_are_no_utf_8_are_replaced_with_a_warning():
    result = read(document().encode().replace(b"Works", b"W\xf6rks"))
    assert result.definition is not None
    assert result.diagnostics[0].line == 3
    assert "not UTF-8" in result.diagnostics[0].message


def test_utf_16_is_read():
    result = read("---\r\ndescription: Für Häfen\r\n---\r\nRead.".encode("utf-16"))
    assert result.definition is not None
    assert result.definition.description == "Für Häfen"


def test_binary_data_is_an_error():
    assert "binary" in read(document(body="a\0b")).diagnostics[0].message


@pytest.mark.parametrize("word", ["off", "on", "yes", "no", "1.0", "null-ish", "0x10"])
def test_scalars_stay_the_words_that_were_written(word):
    assert defined(f"model: {word}").model.key == word


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["description: >", "  folded", "  text"], "folded text"),
        (["description: |", "  two", "  lines"], "two\nlines"),
        (["description: |-", "  stripped"], "stripped"),
        (["description:", "  on the", "  next lines"], "on the next lines"),
        (["description: 'it''s quoted'"], "it's quoted"),
        (['description: "a \\"word\\" and \\u00e9"'], 'a "word" and é'),
        (["description: literal\\nescapes"], "literal\\nescapes"),
        (["description: [beta] reviews: code"], "[beta] reviews: code"),
        (["description: {{ placeholder }} text"], "{{ placeholder }} text"),
        (['description: "unclosed: quote'], "unclosed: quote"),
        (['description: "quoted": then "more"'], 'quoted": then "more'),
        (["description:Missing blank"], "Missing blank"),
        (["description: see https://example.invalid/a: b"], "see https://example.invalid/a: b"),
    ],
)
def test_a_description_is_read_whichever_way_it_is_written(lines, expected):
    text = "\n".join(["---", "name: worker", *lines, "tools: Read", "---", "Do it."])
    result = read(text)
    assert result.definition is not None, result.diagnostics
    assert result.definition.description == expected
    assert result.definition.tools == ("Read",)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [(["description:", "  - one", "  - two"], "one\ntwo"), (["description: {when: always}"], "when: always")],
)
def test_a_description_that_is_no_text_is_made_one(lines, expected):
    result = read("\n".join(["---", *lines, "---", "Do it."]))
    assert result.definition is not None
    assert result.definition.description == expected


def test_frontmatter_without_a_single_key_does_not_load():
    assert "no description" in read("---\njust words\n---\nDo it.").diagnostics[0].message
    assert "no description" in read("---\n? [a, b]\n: c\n---\nDo it.").diagnostics[0].message


def test_a_prompt_key_beside_a_body_is_a_key_of_another_program():
    assert defined("prompt: other").foreign == ("prompt",)


def test_one_broken_line_spoils_one_key_only():
    found = defined("model: @nobody", "tools:", "  - Read", "  - Bash", "permission: ask")
    assert found.reader is Reader.LENIENT
    assert found.tools == ("Read", "Bash")
    assert found.permission.value == "ask"


def test_aliases_that_multiply_are_not_expanded():
    levels = [f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9)]
    found = defined("l0: &l0 [x]", *levels)
    assert found.reader is Reader.LENIENT


def test_deep_nesting_does_not_raise():
    assert defined("hooks: " + "[" * 9_000).tools == ("Read", "Glob", "Grep")


def test_an_indented_denial_counts():
    result = parsed("description2: a: b", "tools: Read, Bash", "hooks:", "  disallowedTools: Bash")
    assert result.definition is not None
    assert result.definition.granted_tools(["Read", "Bash"]) == ("Read",)
    assert any("taken away all the same" in warning for warning in messages(result))


@pytest.mark.parametrize(
    ("line", "left"),
    [
        ("readonly: true", ("Read",)),
        ("permission: plan", ("Read",)),
        ("permission: deny", ()),
        ("permission: auto", ("Read", "Bash")),
    ],
)
def test_an_indented_key_that_takes_away_counts_and_never_widens(line, left):
    result = parsed("description2: a: b", "tools: Read, Bash", "hooks:", f"  {line}")
    assert result.definition is not None
    assert result.definition.granted_tools(["Read", "Bash"]) == left
    assert result.definition.permission == Permission.INHERIT
    assert any("taken away all the same" in warning for warning in messages(result))


def test_an_indented_permission_does_not_undo_one_that_counts():
    found = defined("description2: a: b", "permission: accept-edits", "hooks:", "  permission: auto")
    assert found.permission is Permission.ACCEPT_EDITS


def test_a_key_written_twice_in_a_map_takes_away_what_either_takes():
    found = defined("tools: Read, Bash", "permission:", "  bash: deny", "  bash: allow")
    assert "Bash" not in found.granted_tools(["Read", "Bash"])


@pytest.mark.parametrize("text", ["../shared/a.md", "/home/max power/agents/scout.md", "scout.md\n"])
def test_a_file_that_is_one_path_is_a_symlink_written_as_text(text):
    assert "symlink" in read(text).diagnostics[0].message


def test_a_diagnostic_prints_as_path_line_severity_and_cause():
    [error] = read("---\nname: x\n").diagnostics
    assert str(error).startswith("agents/worker.md:1: error: The frontmatter")


def test_a_near_miss_is_pointed_out_and_not_used():
    result = parsed("tolls: Bash")
    assert result.definition is not None
    assert "Bash" not in result.definition.tools
    assert messages(result) == ["Unknown key `tolls`: did you mean `tools`? It was not used."]


def test_a_near_miss_that_only_narrows_is_used():
    found = defined("tools: Read, Bash", "permisson: plan")
    assert found.granted_tools(["Read", "Bash"]) == ("Read",)
    assert defined("permisson: bypassPermissions").permission.value == "inherit"


def test_notes_come_with_their_severity():
    assert {found.severity for found in parsed("color: red").diagnostics} == {Severity.NOTE}
