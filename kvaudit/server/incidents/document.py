"""Parses an incident as a plain document: what the library ships, what people import, what every export starts
from. Schema ``kvaudit.incident/1``. Pure; no database."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kvaudit.server.audits.evidence.canonical import clean_text

SCHEMA = "kvaudit.incident/1"
DEEPEST = 12
LARGEST = 1_000_000  # bytes of a file; a postmortem is text
MOST_ROWS = 2_000


class DocumentProblem(ValueError):
    """A file that is no incident; the text is a sentence that says where and what to do."""


@dataclass(frozen=True, slots=True)
class Stated:
    """A line of the impact."""

    measure: str
    certainty: str
    statement: str
    source: str = ""


@dataclass(frozen=True, slots=True)
class Moment:
    """A line of the timeline. ``at`` is a date or an instant as it was written; ``system`` marks what
    the auditor itself recorded."""

    at: str
    what: str
    source: str = ""
    confidence: str = ""
    who: str = ""
    system: bool = False


@dataclass(frozen=True, slots=True)
class Contradiction:
    claim: str
    against: str
    finding: str


@dataclass(frozen=True, slots=True)
class Action:
    title: str
    enforced_by: str = ""
    owner: str = ""
    due: str = ""
    state: str = ""
    standing: str = ""


@dataclass(frozen=True, slots=True)
class Ground:
    """One condition of the restore gate as it was when the deployment was released."""

    title: str
    met: bool
    sentence: str


@dataclass(frozen=True, slots=True)
class Document:
    """All of an incident. Texts of several lines are Markdown; "" and () where nothing is said.
    ``primary_source_read`` is None where it does not apply."""

    id: str
    title: str
    operator: str = ""
    engine: str = ""
    mode: str = ""
    severity: str = ""
    state: str = ""
    started: str = ""
    ended: str = ""
    primary_source_read: bool | None = None
    summary: str = ""
    impact: tuple[Stated, ...] = ()
    figures: Mapping[str, str] = field(default_factory=dict)
    causes: tuple[str, ...] = ()
    overlap: str = ""
    detection: str = ""
    missed_by: str = ""
    verification: str = ""
    released: str = ""
    grounds: tuple[Ground, ...] = ()
    timeline: tuple[Moment, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()
    actions: tuple[Action, ...] = ()
    lessons: str = ""
    checklist: tuple[str, ...] = ()
    caught_by: tuple[str, ...] = ()
    prevented_by: tuple[str, ...] = ()

    def as_plain(self) -> dict[str, Any]:
        """As YAML or JSON holds it; what is empty is left out."""
        plain: dict[str, Any] = {"schema": SCHEMA}
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if isinstance(value, tuple):
                value = [_plain(item) for item in value]
            if value not in ("", [], {}, None):
                plain[name] = dict(value) if isinstance(value, Mapping) else value
        return plain


_ROWS: Mapping[str, type[Any]] = {
    "impact": Stated,
    "timeline": Moment,
    "contradictions": Contradiction,
    "actions": Action,
    "grounds": Ground,
}
_LISTS = ("causes", "checklist", "caught_by", "prevented_by")


def parse(document: Any) -> Document:
    """A document out of plain data. Raises DocumentProblem with the field that is wrong."""
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise DocumentProblem(f"This is no incident: the first line must say `schema: {SCHEMA}`.")
    known = set(Document.__dataclass_fields__)
    values: dict[str, Any] = {}
    for name, said in document.items():
        if name == "schema":
            continue
        if name not in known:
            raise DocumentProblem(f"There is no field {clean_text(str(name), 60)!r} in {SCHEMA}.")
        values[name] = _field(name, said)
    for name in ("id", "title"):
        if not values.get(name):
            raise DocumentProblem(f"The incident has no {name}.")
    if not all(letter.isalnum() or letter in "-_." for letter in values["id"]) or len(values["id"]) > 100:
        raise DocumentProblem("The id is up to 100 letters, digits, dots and hyphens: it becomes an address.")
    return Document(**values)


def parse_yaml(text: str | bytes) -> Document:
    """One YAML file. Raises DocumentProblem."""
    import yaml

    if len(text) > LARGEST:
        raise DocumentProblem(f"The file is larger than {LARGEST:,} bytes: an incident is text.")
    try:
        if isinstance(text, bytes):
            text = text.decode("utf-8")
        _no_tricks(text)
        found = yaml.safe_load(text)
    except UnicodeDecodeError:
        raise DocumentProblem("The file is not UTF-8 text.") from None
    # Beside its own errors, the library lets out what its constructors meet: `!!bool x` is a KeyError.
    except (
        yaml.YAMLError,
        ValueError,
        RecursionError,
        ArithmeticError,
        LookupError,
        AttributeError,
    ) as problem:
        if isinstance(problem, DocumentProblem):
            raise
        mark = getattr(problem, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        raise DocumentProblem(f"The file is no YAML{where}.") from None
    return parse(found)


def _no_tricks(text: str) -> None:
    """Aliases can make a small file enormous and brackets in brackets cost their square; an incident needs
    neither. Token by token, so that it stops at the first."""
    import yaml

    kinds = yaml.tokens
    opens = (
        kinds.FlowSequenceStartToken,
        kinds.FlowMappingStartToken,
        kinds.BlockSequenceStartToken,
        kinds.BlockMappingStartToken,
    )
    closes = (kinds.FlowSequenceEndToken, kinds.FlowMappingEndToken, kinds.BlockEndToken)
    depth = 0
    for token in yaml.scan(text, Loader=yaml.SafeLoader):
        line = token.start_mark.line + 1
        if isinstance(token, kinds.AliasToken):
            raise DocumentProblem(f"Line {line} uses an alias (*): write the value out.")
        depth += isinstance(token, opens) - isinstance(token, closes)
        if depth > DEEPEST:
            raise DocumentProblem(f"Line {line} nests deeper than {DEEPEST} levels; an incident has four.")


def _field(name: str, said: Any) -> Any:
    if name in _ROWS:
        return tuple(_row(name, number, item) for number, item in enumerate(_list(name, said), 1))
    if name in _LISTS:
        return tuple(_text(name, item) for item in _list(name, said))
    if name == "figures":
        if not isinstance(said, Mapping):
            raise DocumentProblem("`figures` maps a name to a value.")
        return {_text(name, key): _text(name, value) for key, value in said.items()}
    if name == "primary_source_read":
        if said is not None and not isinstance(said, bool):
            raise DocumentProblem("`primary_source_read` is true, false or left out.")
        return said
    return _text(name, said)


def _row(name: str, number: int, said: Any) -> Any:
    kind = _ROWS[name]
    if not isinstance(said, Mapping):
        raise DocumentProblem(f"Entry {number} of `{name}` is not a mapping.")
    fields = kind.__dataclass_fields__
    unknown = sorted(str(key) for key in said if key not in fields)
    if unknown:
        raise DocumentProblem(f"Entry {number} of `{name}` has no field {clean_text(unknown[0], 60)!r}.")
    values = {
        key: bool(value) if fields[key].type in ("bool", bool) else _text(name, value)
        for key, value in said.items()
    }
    try:
        return kind(**values)
    except TypeError:
        raise DocumentProblem(f"Entry {number} of `{name}` lacks a field.") from None


def _list(name: str, said: Any) -> list[Any]:
    if not isinstance(said, list):
        raise DocumentProblem(f"`{name}` is a list.")
    if len(said) > MOST_ROWS:
        raise DocumentProblem(f"`{name}` has more than {MOST_ROWS:,} entries.")
    return said


def _text(name: str, said: Any) -> str:
    if said is None:
        return ""
    if isinstance(said, (Mapping, list)):
        raise DocumentProblem(f"`{name}` holds text, not a list or a mapping.")
    return clean_text(said if isinstance(said, str) else str(said)).strip()


def _plain(any: Any) -> Any:
    if isinstance(any, str):
        return any
    row = {name: getattr(any, name) for name in any.__dataclass_fields__}
    return {
        name: value
        for name, value in row.items()
        if (value not in ("", None) and value is not False) or name == "met"
    }
