"""What a model says becomes text, lists and tables on a page, and nothing that acts."""

from __future__ import annotations

import re

import pytest

from sidequest.surfaces.web.markdown import FIRST_SHOWN_CHARS, MARKDOWN_CHARS, first_part, to_html


def test_emphasis_lists_tables_and_code_are_laid_out() -> None:
    html = to_html("# Head\n\n- **one** `x`\n\n|a|b|\n|-|-|\n|1|2|\n\n```py\nif a < b: pass\n```\n")
    for tag in ("<h1>", "<li>", "<strong>", "<code>", "<table>", "<td>1</td>"):
        assert tag in html
    assert "if a &lt; b: pass" in html


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "a <b onclick='x()'>b</b>",
        "<iframe src='https://example.org'></iframe>",
        "```\n</code></pre><script>alert(1)</script>\n```",
        '[a](https://example.org/"onmouseover="alert(1))',
        '![x](https://example.org/"onerror="alert(1))',
    ],
)
def test_html_is_shown_as_the_text_it_is(text: str) -> None:
    html = to_html(text)
    tags = set(re.findall(r"<\s*/?([a-zA-Z]+)", html))
    assert tags <= {"p", "a", "span", "pre", "code"}
    attributes = {name for tag in re.findall(r"<[^>]*>", html) for name in re.findall(r'(\w+)="[^"]*"', tag)}
    assert attributes <= {"class", "href", "title", "rel"}


@pytest.mark.parametrize(
    "target", ["javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "//x.y", "/admin"]
)
def test_only_addresses_of_the_web_become_links(target: str) -> None:
    assert "<a" not in to_html(f"[here]({target})")


def test_a_link_shows_where_it_leads_and_gives_nothing_away() -> None:
    html = to_html("[here](https://example.org/a)")
    assert 'rel="noopener noreferrer nofollow"' in html
    assert "(https://example.org/a)" in html


def test_a_link_that_says_where_it_leads_does_not_say_it_twice() -> None:
    assert to_html("<https://example.org/a>").count("https://example.org/a</a>") == 1
    assert "markdown-target" not in to_html("<https://example.org/a>")


def test_names_with_underscores_stay_as_they_are() -> None:
    assert "src/__init__.py" in to_html("See src/__init__.py and __all__.")


def test_an_image_is_named_and_never_loaded() -> None:
    html = to_html("![a cat](https://example.org/cat.png)")
    assert "<img" not in html
    assert "[image: a cat https://example.org/cat.png]" in html


@pytest.mark.timeout(20)
def test_a_very_long_text_is_shown_as_it_was_written() -> None:
    text = "<script>alert(1)</script>" * (MARKDOWN_CHARS // 20)
    html = to_html(text)
    assert html.startswith("<pre")
    assert "<script" not in html


def test_control_codes_of_a_terminal_are_left_out() -> None:
    assert "\x1b" not in to_html("\x1b[31mred\x1b[0m")


def test_the_first_part_of_a_text_ends_with_a_line() -> None:
    assert first_part("short") == "short"
    assert first_part("line\n" * 10_000).endswith("line")
    assert len(first_part("line\n" * 10_000)) <= FIRST_SHOWN_CHARS
    assert len(first_part("x" * 50_000)) == FIRST_SHOWN_CHARS
