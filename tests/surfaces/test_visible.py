"""What a person is shown before they allow it hides nothing."""

from __future__ import annotations

import pytest

from sidequest.surfaces.visible import shown_lines, visible, visible_command


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("a\x1b[8mb", "a\\x1b[8mb"),
        ("a\u00a0b\u2003c", "a\\xa0b\\u2003c"),
        ("rm\u3164\u2800\u200b\u034fx\ufe0f", "rm\\u3164\\u2800\\u200b\\u034fx\\ufe0f"),
        ("\u202egnp.exe", "\\u202egnp.exe"),
        ("g\u043e\u043egle.com", "g\\u043e\\u043egle.com"),
        ("\uff47it", "\\uff47it"),
        ("a\u0335\u0336\u0337", "a\u0335\u0336\\u0337"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_what_cannot_be_seen_or_looks_like_another_letter_is_written_out(written: str, shown: str) -> None:
    assert visible(written) == shown


@pytest.mark.parametrize("text", ["naïve café", "Привет, мир", "水は高い。", "x → y\n\tz", "Ωmega 50 µm"])
def test_words_of_other_scripts_stay_as_they_are(text: str) -> None:
    assert visible(text) == text


def test_signs_of_a_shell_have_no_doubles_in_a_command() -> None:
    assert visible_command("ls\uff1b rm \u2212rf \u2018x\u2019") == "ls\\uff1b rm \\u2212rf \\u2018x\\u2019"
    assert visible_command("echo 'done …' | cat") == "echo 'done …' | cat"
    assert visible("Yes \u2013 \u2018maybe\u2019") == "Yes \u2013 \u2018maybe\u2019"


def test_blanks_push_nothing_out_of_sight() -> None:
    lines = ["ls" + " " * 4000 + "; rm -rf x", "\tb", *[""] * 500, "rm y", "", "end"]
    assert list(shown_lines(lines)) == [
        "ls⟨4000 blanks⟩; rm -rf x",
        "→\tb",
        "⟨500 empty lines⟩",
        "rm y",
        "",
        "end",
    ]
    assert list(shown_lines(["+", "+ ", "+", "+x"], ("", "+"))) == ["⟨3 empty lines⟩", "+x"]
