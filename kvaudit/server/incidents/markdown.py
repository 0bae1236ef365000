"""Writes a document as GitHub-flavoured Markdown: a postmortem to be read, reviewed and signed. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

from kvaudit.server.incidents.document import Document, Moment

_SPECIAL = re.compile(r"([\\|<>\[\]])")
_ACTING_LINK = re.compile(r"\](?=[(:]\s*(?:javascript|vbscript|data|file):)", re.IGNORECASE)
_ORDER = {"known": 0, "estimated": 1, "unknown": 2}


def to_markdown(document: Document) -> str:
    """The whole postmortem; sections of which nothing is known are said to be empty where a reader
    would look for them, and left out elsewhere."""
    parts = [f"# {cell(document.title)}", _about(document), _section("Summary", document.summary or _OPEN)]
    if document.primary_source_read is False:
        parts.insert(
            1,
            "> **The primary source has not been read.** What is said of the operator's side is second-hand.",
        )
    parts += [_impact(document), _figures(document), _timeline(document.timeline), _causes(document)]
    parts += [
        _section("How it was detected", document.detection),
        _section("Detection gaps", document.missed_by),
        _verification(document),
        _contradictions(document),
        _actions(document),
        _section("Lessons", document.lessons),
        _mapped(document),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


_OPEN = "_Not written yet._"


def cell(text: str) -> str:
    """Text of one line in a table or heading: no line breaks, nothing that opens HTML or a column, no
    characters that reorder what stands beside them."""
    line = " ".join(_visible(text).split())
    return _SPECIAL.sub(r"\\\1", line)


def prose(text: str) -> str:
    """Markdown that a person wrote, as it is, but for characters that have no shape; its headings go
    below ours."""
    shown = _SPELLED.sub(r"\\[\1\\]", _visible(text))  # a name of a character is no text of a link
    lines = [re.sub(r"^(#{1,4})(?=\s)", r"##\1", line) for line in shown.strip().splitlines()]
    return "\n".join(_ACTING_LINK.sub(r"\\]", line).replace("<", "&lt;") for line in lines)


_SPELLED = re.compile(r"\[(U\+[0-9A-F]{4,6})\]")


def _visible(text: str) -> str:
    return "".join(
        character
        if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
        else f"[U+{ord(character):04X}]"
        for character in text
    )


def _section(title: str, text: str) -> str:
    return f"## {title}\n\n{prose(text)}" if text else ""


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns in which nothing stands are left out."""
    filled = [list(row) for row in rows]
    kept = [number for number in range(len(columns)) if any(row[number] for row in filled)]
    lines = [" | ".join(columns[number] for number in kept), " | ".join("---" for _ in kept)]
    lines += [" | ".join(cell(row[number]) or " " for number in kept) for row in filled]
    return "\n".join(f"| {line} |" for line in lines)


def _about(document: Document) -> str:
    window = document.started and f"{document.started} to {document.ended or 'today'}"
    rows = [
        ("Operator", document.operator),
        ("Engine", document.engine),
        ("Mode", document.mode),
        ("Severity", document.severity),
        ("State", document.state),
        ("Window", window),
        ("Released", document.released),
    ]
    return _table(("Fact", "Value"), [(f"{name}", value) for name, value in rows if value])


def _impact(document: Document) -> str:
    rows = sorted(document.impact, key=lambda line: _ORDER.get(line.certainty, 3))
    if not rows:
        return f"## Impact\n\n{_OPEN}"
    return "## Impact\n\n" + _table(
        ("What", "Certainty", "Statement", "Source"),
        [(row.measure, row.certainty, row.statement, row.source) for row in rows],
    )


def _figures(document: Document) -> str:
    return (
        "## Figures\n\n" + _table(("Figure", "Value"), list(document.figures.items()))
        if document.figures
        else ""
    )


def _timeline(moments: Sequence[Moment]) -> str:
    if not moments:
        return f"## Timeline\n\n{_OPEN}"
    ours = [moment for moment in moments if moment.system]
    people = [moment for moment in moments if not moment.system]
    parts = ["## Timeline"]
    if people:
        parts.append(_events(people))
    if ours:
        parts.append(
            f"<details><summary>{len(ours)} events recorded by the auditor</summary>\n\n{_events(ours)}\n\n</details>"
        )
    return "\n\n".join(parts)


def _events(moments: Sequence[Moment]) -> str:
    return _table(
        ("When", "What", "Source", "Confidence"),
        [
            (
                moment.at,
                moment.what,
                " by ".join(filter(None, (moment.source, moment.who))),
                moment.confidence,
            )
            for moment in moments
        ],
    )


def _causes(document: Document) -> str:
    if not document.causes:
        return f"## Causes\n\n{_OPEN}"
    listed = "\n".join(
        f"{number}. {prose(cause).replace(chr(10), chr(10) + '   ')}"
        for number, cause in enumerate(document.causes, 1)
    )
    overlap = f"\n\n### How the causes combined\n\n{prose(document.overlap)}" if document.overlap else ""
    return f"## Causes\n\n{listed}{overlap}"


def _verification(document: Document) -> str:
    parts = [prose(document.verification)] if document.verification else []
    if document.grounds:
        parts.append(
            _table(
                ("Condition of the restore gate", "Met", "By what"),
                [
                    (ground.title, "yes" if ground.met else "**no**", ground.sentence)
                    for ground in document.grounds
                ],
            )
        )
    return "## Verification\n\n" + "\n\n".join(parts) if parts else ""


def _contradictions(document: Document) -> str:
    if not document.contradictions:
        return ""
    return "## Where sources disagree\n\n" + _table(
        ("Claim", "Against it", "Finding"),
        [
            (contradiction.claim, contradiction.against, contradiction.finding)
            for contradiction in document.contradictions
        ],
    )


def _actions(document: Document) -> str:
    if not document.actions:
        return ""
    return "## Action items\n\n" + _table(
        ("What", "Enforced by", "Owner", "Due", "State"),
        [
            (
                action.title,
                action.enforced_by.replace("item:", "checklist item ").replace("check:", "check "),
                action.owner,
                action.due,
                " – ".join(filter(None, (action.state, action.standing))),
            )
            for action in document.actions
        ],
    )


def _mapped(document: Document) -> str:
    parts = []
    if document.checklist:
        parts.append(f"Checklist items: {', '.join(document.checklist)}.")
    if document.caught_by:
        parts.append(f"Checks that would have caught it: {', '.join(document.caught_by)}.")
    if document.prevented_by:
        parts.append(f"Checks that would have kept it from beginning: {', '.join(document.prevented_by)}.")
    return "## Checks and checklist\n\n" + " ".join(cell(part) for part in parts) if parts else ""
