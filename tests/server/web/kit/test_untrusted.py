"""Text of others must neither run, nor hide, nor reorder, nor flood a page."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.server.web.kit import untrusted

SCRIPT = "<script>alert(1)</script>"
ALL_FORMS = (untrusted.spelled, untrusted.inline, untrusted.block)


@pytest.mark.parametrize("show", ALL_FORMS)
def test_markup_is_escaped(show):
    assert "<script" not in show(SCRIPT)
    assert "&lt;script&gt;" in show(SCRIPT)
    assert '"' not in re.sub(r"<[^>]*>", "", show('" onmouseover="x'))


@pytest.mark.parametrize(
    ("character", "name"),
    [
        ("\u202e", "U+202E"),
        ("\u2066", "U+2066"),
        ("\u200f", "U+200F"),
        ("\u200b", "U+200B"),
        ("\x00", "U+0000"),
        ("\x1b", "U+001B"),
        ("\u2028", "U+2028"),
        ("\ufeff", "U+FEFF"),
        ("\ud800", "U+D800"),
    ],
)
def test_acting_characters_are_spelled_out(character, name):
    for show in ALL_FORMS:
        shown = show(f"a{character}b")
        assert character not in shown
        assert f'<span class="ctrl">{name}</span>' in shown
    assert untrusted.plain(f"a{character}b") == f"a[{name}]b"


def test_harmless_text_stays_as_it_is():
    for text in ("GET /server_info", "résumé 東京 😀", "two\nlines\tand a tab"):
        assert untrusted.inline(text) == f"<bdi>{text}</bdi>"


def test_long_text_is_cut_in_line_and_folds_in_a_block():
    text = "x" * 10_000
    assert untrusted.inline(text, 50).count("x") == 50
    assert "(10,000 characters)" in untrusted.inline(text, 50)
    folded = untrusted.block(text, 50)
    assert folded.startswith("<details><summary>")
    assert "x" * 10_000 in folded, "nothing may be lost"
    assert "(10,000 characters)" in untrusted.plain(text, 50)


def test_only_a_word_longer_than_a_column_breaks_anywhere():
    assert "unbroken" in untrusted.inline("a" * 50)
    assert "unbroken" not in untrusted.inline("many short words " * 10)


def test_a_flood_is_bounded():
    assert len(untrusted.block("y" * 1_000_000)) < 2 * untrusted.LONGEST


@given(st.text(max_size=400))
def test_whatever_comes_only_our_own_tags_are_in_it(text):
    shown = untrusted.block(text, 100)
    tags = set(re.findall(r"<[^>]*>", shown))
    assert tags <= {
        "<bdi>", '<bdi class="unbroken">', "</bdi>", "<details>", "</details>", "<summary>", "</summary>",
        '<span class="ctrl">', "</span>",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "kept"), [(None, ""), ("  chat \x00\u202e", "chat"), ("a" * 500, "a" * 200), ("łódź", "łódź")]
)
def test_search_terms_are_cleaned(given, kept):
    assert untrusted.query_text(given) == kept


@pytest.mark.parametrize(
    ("count", "said"), [(1, "a"), (4, "a, b, c, d"), (5, "a, b, c and 2 more"), (8, "a, b, c and 5 more")]
)
def test_long_lists_of_names_end_in_a_count(count, said):
    assert untrusted.few("abcdefgh"[:count]) == said


def test_for_markup_by_hand_only_what_is_marked_as_safe_stays():
    assert untrusted.escaped(SCRIPT) == "&lt;script&gt;alert(1)&lt;/script&gt;"
    assert untrusted.escaped(untrusted.spelled(SCRIPT)) == untrusted.spelled(SCRIPT)
    assert untrusted.escaped(7) == "7"
