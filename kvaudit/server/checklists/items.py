"""Loads the items of the checklist. The shipped checklist is data of this package, one file per version; a
team's own items are rows (`models.OwnItem`) and become the same `Item` here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from typing import Any

from kvaudit.server import clock

SCHEMA = "kvaudit.checklist/1"

DISAGGREGATED, UNIFIED = "disaggregated", "unified"


@dataclass(frozen=True, slots=True)
class Standard:
    """The requirement that an item is cited for: name, version and text, since numbers move."""

    name: str
    version: str
    requirement: str
    text: str
    url: str = ""

    def __str__(self) -> str:
        return f"{self.name} {self.version}-{self.requirement}"


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an item that is read and shown, but never decides it. ``condition`` is a key of a
    node's conditions; ``applies_to`` is "", ``disaggregated`` or ``unified``."""

    name: str
    condition: str
    applies_to: str
    note: str


@dataclass(frozen=True, slots=True)
class Item:
    """One rule. It holds when every check of ``checks`` holds; where ``attestable``, a valid
    attestation stands in for checks that have not failed. ``team_id`` is None for the shipped ones."""

    key: str
    title: str
    rule: str
    checks: tuple[str, ...]
    remedy: str = ""
    attestable: bool = False
    applies_to: str = ""
    parts: tuple[Part, ...] = ()
    standard: Standard | None = None
    team_id: int | None = None
    checklist: str = ""
    version: int = 1

    @property
    def own(self) -> bool:
        return self.team_id is not None


@dataclass(frozen=True, slots=True)
class Checklist:
    """One version of the shipped checklist."""

    name: str
    version: int
    valid_from: datetime
    standard: Standard
    items: tuple[Item, ...]


def shipped(moment: datetime | None = None) -> Checklist:
    """The version that held at a moment (default: now). Moments before the first version are judged
    by the first: the evidence of that time can answer its questions too."""
    versions = _versions()
    when = clock.now() if moment is None else moment
    held = [version for version in versions if version.valid_from <= when]
    return held[-1] if held else versions[0]


def shipped_keys() -> frozenset[str]:
    """Keys that any version uses: a team's own items may not take them."""
    return frozenset(item.key for version in _versions() for item in version.items)


@lru_cache(maxsize=1)
def _versions() -> tuple[Checklist, ...]:
    folder = files("kvaudit.server.checklists") / "data"
    texts = [path.read_text("utf-8") for path in folder.iterdir() if path.name.endswith(".yaml")]
    return tuple(sorted((parse(text) for text in texts), key=lambda each: each.version))


def parse(text: str) -> Checklist:
    """A checklist out of its YAML. Raises ValueError with a sentence for anything but schema 1."""
    import yaml

    document = yaml.safe_load(text)
    if not isinstance(document, Mapping) or document.get("schema") != SCHEMA:
        raise ValueError(f"This is no checklist of the schema {SCHEMA}.")
    try:
        standard = Standard(**document["standard"])
        name, version = str(document["name"]), int(document["version"])
        items = tuple(_item(item, standard, name, version) for item in document["items"])
        moment = document["valid_from"]
        valid_from = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    except (KeyError, TypeError, AttributeError, ValueError) as problem:
        raise ValueError(f"The checklist lacks or misspells a field: {problem}.") from problem
    _distinct([item.key for item in items])
    return Checklist(name, version, valid_from, standard, items)


def _item(said: Mapping[str, Any], standard: Standard, checklist: str, version: int) -> Item:
    return Item(
        key=str(said["key"]),
        title=str(said["title"]),
        rule=str(said["rule"]),
        checks=tuple(said["checks"]),
        remedy=str(said.get("remedy", "")),
        attestable=bool(said.get("attestable", False)),
        applies_to=str(said.get("applies_to", "")),
        parts=tuple(Part(**part) for part in said.get("parts", ())),
        standard=standard,
        checklist=checklist,
        version=version,
    )


def _distinct(keys: Sequence[str]) -> None:
    if len(set(keys)) != len(keys):
        raise ValueError(f"Two items share a key: {', '.join(keys)}.")
