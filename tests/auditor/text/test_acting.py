"""Characters that act: named for people, escaped for programs, the same document either way."""

from __future__ import annotations

import json

import pytest

from kvaudit.auditor.text.acting import acting, bytes_escaped, in_words, json_escaped

ACTING = ["\u202e", "\u2066", "\u200b", "\x1b", "\x00", "\x7f", "\x85", "\u2028", "\U000e0001", "\ufeff"]
HARMLESS = ["plain", "é 日本 😀", "two\nlines\tand a tab", "", "[U+202E]"]


@pytest.mark.parametrize("character", ACTING)
def test_each_is_named_and_escaped(character):
    text = f"a{character}b"
    assert acting(text)
    assert in_words(text) == f"a[U+{ord(character):04X}]b"
    told = json_escaped(json.dumps({"é": text}, ensure_ascii=False))
    assert not acting(told)
    assert json.loads(told) == {"é": text}
    assert json.loads(bytes_escaped(json.dumps(text, ensure_ascii=False).encode())) == text


@pytest.mark.parametrize("text", HARMLESS)
def test_the_rest_stays(text):
    assert not acting(text)
    assert in_words(text) == text
    told = json.dumps(text, ensure_ascii=False)
    assert json_escaped(told) == told
    assert bytes_escaped(told.encode()) == told.encode()
