"""Shows the line of a fleet file that a mistake is on, without what could be a key.

What is shown is chosen, not what is hidden: values of known fields that hold no secrets. A key may have
been pasted anywhere else, and a password looks like a word.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Sequence
from typing import Protocol

from kvaudit.auditor.checks import MODULES
from kvaudit.auditor.fleetfile import from_csv, from_yaml, values
from kvaudit.auditor.fleetfile.reader import SECRET_WORDS
from kvaudit.auditor.text.quoting import HIDDEN, without_keys
from kvaudit.auditor.transport import secret_name

LEFT_OUT = "…"
LONGEST = 500

_OPEN_FIELDS = (
    {*from_yaml.FILE_FIELDS, *from_yaml.DEPLOYMENT_FIELDS, *from_yaml.NODE_FIELDS, *from_yaml.TENANT_FIELDS,
     *from_yaml.WINDOW_FIELDS, *from_yaml.PLAN_FIELDS, *from_yaml.CONSENT_FIELDS, *values.POINTERS}
    | {"steps", "method", "path", "largest", "wait", "without", "pool"}
)  # fmt: skip
_NAMES_A_VARIABLE = frozenset({"key_env", "headers_env", "salt_env", "tenants"})
_VARIABLES = re.compile(r"[\"']?(?:[A-Za-z][\w -]{0,60}=)?[A-Z_][A-Z0-9_]{0,127}[\"']?")
_FIELD = re.compile(r"(?P<name>[\"']?[A-Za-z_][\w.-]{0,60}[\"']?)\s*:(?:\s+|\Z)")
_FRAME = re.compile(r"[\s\-{}\[\],]*")
_WORDS = frozenset({*MODULES, *values.DAYS, *values.ROLES})


class Mistake(Protocol):
    """A problem of the file, as the parser or a page has it."""

    @property
    def line(self) -> int: ...

    @property
    def sentence(self) -> str: ...


def excerpt(lines: Sequence[str], number: int, format: str) -> str:
    """Line ``number`` (from 1) as it may be shown; "" where there is none, or nothing of it may be."""
    if not 0 < number <= len(lines):
        return ""
    line = lines[number - 1][:LONGEST]
    return without_keys(_of_table(line, lines[0], number) if format == "csv" else _of_tree(line)).rstrip()


def _of_tree(line: str) -> str:
    line = re.sub(r"(?:^|\s)#.*", "", line)
    fields = list(_FIELD.finditer(line))
    if not fields:
        return _item(line)
    shown = [_frame(line[: fields[0].start()])]
    for field, after in zip(fields, [*fields[1:], None], strict=True):
        name = field["name"].strip("\"'")
        value = line[field.end() : after.start() if after else len(line)]
        shown += [field[0].rstrip() + " " if name in _OPEN_FIELDS else f"{LEFT_OUT}: ", _value(name, value)]
    return "".join(shown)


def _value(name: str, value: str) -> str:
    """With the frame around it, so that the line keeps its shape."""
    start = re.match(r"[\s{\[-]*", value)
    end = re.search(r"[\s}\],]*\Z", value)
    assert start is not None
    assert end is not None
    inner = value[start.end() : max(start.end(), end.start())]
    if inner and (
        name not in _OPEN_FIELDS or (name in _NAMES_A_VARIABLE and not _VARIABLES.fullmatch(inner))
    ):
        inner = LEFT_OUT
    return start[0] + inner + (end[0] if end.start() >= start.end() else "")


def _item(line: str) -> str:
    """A line without a field: an item of a list, or the middle of a text."""
    words = [word for word in re.split(r"[\s\-{}\[\],\"']+", line) if word]
    return line if all(word in _WORDS for word in words) else _frame(line)


def _frame(text: str) -> str:
    start = _FRAME.match(text)
    assert start is not None
    return start[0] + (LEFT_OUT if start.end() < len(text) else "")


def _of_table(line: str, header: str, number: int) -> str:
    """Cells of known columns. One record may fill several lines; then its cells are not told apart."""
    try:
        [names], [cells] = list(csv.reader([header], strict=True)), list(csv.reader([line], strict=True))
    except (csv.Error, ValueError):
        return LEFT_OUT
    columns = [name.strip().lower() for name in names]
    if number == 1:
        return ",".join(name if name.strip().lower() in from_csv.COLUMNS else LEFT_OUT for name in names)
    if len(cells) != len(columns):
        return LEFT_OUT
    return ",".join(_cell(column, cell.strip()) for column, cell in zip(columns, cells, strict=True))


def _cell(column: str, cell: str) -> str:
    if column not in from_csv.COLUMNS:
        return LEFT_OUT if cell else ""
    if column in _NAMES_A_VARIABLE:
        return ";".join(
            part if _VARIABLES.fullmatch(part.strip()) else LEFT_OUT for part in cell.split(";") if part
        )
    return cell


def kept(text: str, problems: Iterable[Mistake], format: str) -> str:
    """The text as it may stand in the form again: what was typed, without values of fields that are called
    as keys are, and on lines with a mistake without anything that could be one. Chosen more narrowly than in
    `excerpt`, since what is hidden here must be typed again."""
    wrong: dict[int, str] = {}
    for problem in problems:
        wrong[problem.line] = wrong.get(problem.line, "") + problem.sentence
    lines = text.split("\n")
    header = lines[0].lower().split(",")
    for place, line in enumerate(lines):
        said = wrong.get(place + 1, "")
        if format != "csv":
            clean = _without_values(line, said)
        else:
            clean = _without_cells(line, header) if place else line
        lines[place] = without_keys(clean) if said else clean
    return "\n".join(lines)


def _without_values(line: str, said: str) -> str:
    fields = list(_FIELD.finditer(line))
    if not fields:
        return line
    shown = [line[: fields[0].start()]]
    for field, after in zip(fields, [*fields[1:], None], strict=True):
        name = field["name"].strip("\"'")
        value = line[field.end() : after.start() if after else len(line)]
        inner = value.strip(" {}[],\r")
        secret = name.lower() in SECRET_WORDS or secret_name(name) or name in _NAMES_A_VARIABLE
        if inner and (secret or "never the key itself" in said) and not _VARIABLES.fullmatch(inner):
            value = value.replace(inner, HIDDEN)
        shown += [field[0], value]
    return "".join(shown)


def _without_cells(line: str, header: Sequence[str]) -> str:
    cells = line.split(",")
    for place, column in enumerate(header[: len(cells)]):
        parts = [part.strip() for part in cells[place].split(";") if part.strip()]
        if column.strip() in _NAMES_A_VARIABLE and not all(map(_VARIABLES.fullmatch, parts)):
            cells[place] = HIDDEN
    return ",".join(cells)
