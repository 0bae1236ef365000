"""Finds characters that act on what shows them: without a shape of their own, or moving their neighbours. In a
file that is handed on they would deceive whoever opens it in an editor, a terminal or a spreadsheet. Pure."""

from __future__ import annotations

import re
import unicodedata

_SUSPECT = re.compile(r"[^\x20-\x7e\n\t]")
_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Zl", "Zp"})


def acts(character: str) -> bool:
    return character not in "\n\t" and unicodedata.category(character) in _CATEGORIES


def acting(text: str) -> bool:
    """Whether anything in it acts."""
    return any(acts(character) for character in _SUSPECT.findall(text))


def in_words(text: str) -> str:
    """Every such character as ``[U+202E]``."""
    return _SUSPECT.sub(lambda found: f"[U+{ord(found[0]):04X}]" if acts(found[0]) else found[0], text)


def json_escaped(text: str) -> str:
    """A JSON text with every such character as an escape: the same document to a program."""
    return _SUSPECT.sub(lambda found: _escape(found[0]) if acts(found[0]) else found[0], text)


def bytes_escaped(told: bytes) -> bytes:
    """`json_escaped` of UTF-8."""
    return told if told.isascii() else json_escaped(told.decode()).encode()


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
