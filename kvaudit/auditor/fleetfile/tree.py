"""Parses YAML that may be hostile into a small tree with line numbers, without recursion.

Events of PyYAML's parser are read one by one: anchors and aliases (the alias bomb), tags, several
documents, more than 12 levels and more than 200,000 values are refused before anything is built.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor.fleetfile.schema import LARGEST_FILE, Problem

DEEPEST = 12
MOST_VALUES = 200_000

_INTEGER = re.compile(r"^[-+]?\d[\d_]{0,30}$")
_DECIMAL = re.compile(r"^[-+]?\d{1,15}\.\d{0,15}$")
_WORDS: dict[str, Any] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False,
}  # fmt: skip


@dataclass(slots=True)
class YamlNode:
    """A value and its line. ``value`` is a scalar, a list of nodes or a list of (key, node)."""

    line: int
    kind: str  # "scalar", "list" or "mapping"
    value: Any


class Unreadable(ValueError):
    """The file as a whole cannot be used."""

    def __init__(self, line: int, sentence: str) -> None:
        super().__init__(sentence)
        self.problem = Problem(line, sentence)


def decode(content: str | bytes) -> str:
    """The text of a file; `Unreadable` when it is too large, not UTF-8, or holds NUL."""
    if isinstance(content, str) and len(content) <= LARGEST_FILE:
        given = content
        try:
            content = given.encode()
        except UnicodeEncodeError as problem:
            line = given.count("\n", 0, problem.start) + 1
            raise Unreadable(
                line, "The file holds half a character (a surrogate); save it as UTF-8."
            ) from None
    if len(content) > LARGEST_FILE:
        raise Unreadable(0, f"The file is {len(content):,} long; at most {LARGEST_FILE:,} bytes are read.")
    assert isinstance(content, bytes)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        line = content.count(b"\n", 0, problem.start) + 1
        raise Unreadable(line, "The file is not UTF-8 text; save it as UTF-8.") from None
    if "\x00" in text:
        line = text.count("\n", 0, text.index("\x00")) + 1
        raise Unreadable(line, "The file holds a NUL character; it is not a text file.")
    return text


def compose(content: str | bytes) -> YamlNode:
    """The tree of the one document in ``content``; `Unreadable` with a line otherwise."""
    import yaml  # only when a YAML file is read: parsing it costs most of a gate's time

    text = decode(content)
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        return _build(yaml, yaml.parse(text, Loader=loader))
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        said = getattr(problem, "problem", None) or getattr(problem, "reason", None) or "it is malformed"
        raise Unreadable(mark.line + 1 if mark else 0, f"The file is no valid YAML: {said}.") from None


def _build(yaml: Any, events: Any) -> YamlNode:
    root: YamlNode | None = None
    open_branches: list[YamlNode] = []
    waiting: list[Any] = []  # per open mapping: its key until the value comes, else _NO_KEY
    count = 0
    for event in events:
        line = event.start_mark.line + 1
        if isinstance(event, yaml.DocumentStartEvent) and root is not None:
            raise Unreadable(line, "The file holds several YAML documents; keep one.")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise Unreadable(
                line, "Anchors and aliases (& and *) are not used in a fleet file; write the value out."
            )
        if getattr(event, "tag", None) not in (None, "!"):
            raise Unreadable(line, "YAML tags (!) are not used in a fleet file; write a plain value.")
        if isinstance(event, yaml.CollectionEndEvent):
            open_branches.pop()
            waiting.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        count += 1
        if count > MOST_VALUES:
            raise Unreadable(line, f"The file holds more than {MOST_VALUES:,} values.")
        branch = _node_of(yaml, event, line)
        if not open_branches:
            root = branch
        elif open_branches[-1].kind == "list":
            open_branches[-1].value.append(branch)
        elif waiting[-1] is _NO_KEY:
            if branch.kind != "scalar":
                raise Unreadable(line, "A list or group of fields stands where a field name is expected.")
            waiting[-1] = branch
            continue
        else:
            open_branches[-1].value.append((waiting[-1], branch))
            waiting[-1] = _NO_KEY
        if branch.kind != "scalar":
            if len(open_branches) >= DEEPEST:
                raise Unreadable(line, f"The file is nested more than {DEEPEST} levels deep.")
            open_branches.append(branch)
            waiting.append(_NO_KEY)
    if root is None:
        raise Unreadable(0, "The file is empty.")
    return root


_NO_KEY: Any = object()


def _node_of(yaml: Any, event: Any, line: int) -> YamlNode:
    if isinstance(event, yaml.SequenceStartEvent):
        return YamlNode(line, "list", [])
    if isinstance(event, yaml.MappingStartEvent):
        return YamlNode(line, "mapping", [])
    plain = event.style is None or event.style == ""
    return YamlNode(line, "scalar", scalar(event.value) if plain else event.value)


def scalar(text: str) -> Any:
    """A plain scalar by YAML 1.2's core rules: ``01:30`` and ``no`` stay text."""
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.match(text):
        return int(text.replace("_", ""))
    if _DECIMAL.match(text):
        return float(text)
    return text
