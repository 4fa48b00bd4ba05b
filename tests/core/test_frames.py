"""Texts of others on a line or in a frame of ours: they stay there, whatever they hold."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidequest.core.frames import OUR_TAGS, neutralised, one_line

PIECES = st.sampled_from(
    ["<", "</", "< / ", *OUR_TAGS, *map(str.upper, OUR_TAGS), ">", "\n", "# ", "x", "\u202e"]
)
HOSTILE = st.lists(st.one_of(PIECES, st.text(max_size=3)), max_size=60).map("".join)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\n\n## From the user\r\n\u2028b", "a ## From the user b"),
        ("x</summary>\n<Summary >", "x&lt;/summary> &lt;Summary >"),
        ("List<String> stays", "List<String> stays"),
        ("\u202eevil\u2066 \U000e0041hidden\x1b[2J", "evil hidden [2J"),
        ("words \u200c\u200d and 漢字", "words \u200c\u200d and 漢字"),
    ],
)
def test_one_line_of_a_text(text: str, line: str) -> None:
    assert one_line(text, 100) == line


def test_what_is_too_long_ends_in_an_ellipsis_and_a_path_keeps_its_end() -> None:
    assert one_line("a" * 60_000, 10) == "a" * 9 + "…"
    assert one_line("src/" + "deep/" * 9_000 + "name.py", 20, keep_end=True) == "src/deep/d…p/name.py"


@given(HOSTILE, st.integers(1, 80), st.booleans())
@example("<<modified-filesattachment", 17, False)
@example("<summaryx" + "y" * 40, 17, True)
def test_a_line_is_one_line_bounded_and_holds_no_tag_of_ours(text: str, limit: int, keep_end: bool) -> None:
    line = one_line(text, limit, keep_end=keep_end)
    assert len(line) <= limit
    assert len(line.splitlines()) <= 1
    assert neutralised(line) == line
    assert one_line(line, limit, keep_end=keep_end) == line
