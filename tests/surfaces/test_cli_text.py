"""Short texts for people: control codes, numbers, bars."""

from __future__ import annotations

import pytest

from sidequest.surfaces.text import (
    ASCII,
    ago,
    duration,
    excerpt,
    gauge,
    glyphs_for,
    moment,
    money,
    one_line,
    printable,
    short_id,
    some,
)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain\n\ttext", "plain\n\ttext"),
        ("\x1b[31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("bell\x07 back\x08 \x9bclear \x7f", "bell back clear "),
        ("a\r\nb\rc", "a\nbc"),
        ("naïve 海 🦀", "naïve 海 🦀"),
    ],
)
def test_control_codes_never_reach_a_terminal(text: str, shown: str):
    assert printable(text) == shown


def test_one_line_is_cut_with_an_ellipsis():
    assert one_line("a\n  b\tc") == "a b c"
    assert one_line("0123456789", 5) == "0123…"
    assert one_line("01234", 5) == "01234"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3_599, "59 min ago"),
        (3_600, "1 h ago"),
        (86_399, "23 h ago"),
        (86_400, "1 d ago"),
        (604_799, "6 d ago"),
    ],
)
def test_how_long_ago_something_was(seconds: int, text: str):
    assert ago(10**12, 10**12 + seconds * 1000) == text


def test_after_a_week_it_is_a_date():
    assert ago(10**12, 10**12 + 604_800_000) == moment(10**12)[:10] == "2001-09-09"


def test_an_id_is_shown_by_its_beginning():
    assert short_id("5e551011aaaa") == "5e551011"


def test_an_excerpt_says_how_much_is_missing():
    assert excerpt("1\n2\n3", 2) == ["1", "2", "3"]
    assert excerpt("1\n2\n3\n4", 2) == ["1", "2", "… 2 more lines"]
    assert excerpt("  \n", 2) == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0.0s"),
        (0.44, "0.4s"),
        (9.94, "9.9s"),
        (9.96, "10s"),
        (59.6, "1m 00s"),
        (125, "2m 05s"),
        (3725, "1h 02m"),
    ],
)
def test_durations(seconds: float, text: str):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("cost", "text"), [(None, "price unknown"), (0.0, "no cost"), (0.0123, "$0.0123"), (1.5, "$1.50")]
)
def test_an_unknown_price_is_never_zero(cost: float | None, text: str):
    assert money(cost) == text


@pytest.mark.parametrize(
    ("tokens", "limit", "bar"),
    [
        (0, 8000, "--------"),
        (1, 8000, "#-------"),
        (4512, 8000, "#####---"),
        (9000, 8000, "########"),
        (5, 0, "#-------"),
    ],
)
def test_a_gauge_shows_at_least_one_sign_and_never_overflows(tokens: int, limit: int, bar: str):
    assert gauge(tokens, limit, 8, ASCII) == bar


def test_words_have_their_plural_and_numbers_their_commas():
    assert (some(1, "turn"), some(0, "turn"), some(1200, "tool")) == ("1 turn", "0 turns", "1,200 tools")


def test_signs_outside_ascii_need_utf_8():
    assert glyphs_for("ascii") is ASCII
    assert glyphs_for(None) is ASCII
    assert glyphs_for("UTF-8").full == "▮"
