"""Reads typed fields out of a fleet file's tree, collecting problems with their lines instead of stopping at
the first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kvaudit.auditor.fleetfile import values
from kvaudit.auditor.fleetfile.schema import Problem
from kvaudit.auditor.fleetfile.tree import YamlNode
from kvaudit.auditor.fleetfile.values import InvalidValue
from kvaudit.auditor.text.quoting import quoted
from kvaudit.auditor.transport import secret_name

T = TypeVar("T")

MOST_PROBLEMS = 100
SECRET_WORDS = ("key", "token", "password", "secret", "api_key", "authorization", "headers", "bearer")


class TooManyProblems(Exception):
    """So many problems were found that no more are looked for: each costs time, and a file can hold a million."""


class Reader:
    """Typed access to YAML nodes; a value that cannot be read becomes its default and a problem."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add_problem(self, line: int, sentence: str) -> None:
        """Note a problem; raises `TooManyProblems` after the last that is listed."""
        if len(self.problems) < MOST_PROBLEMS:
            self.problems.append(Problem(line, sentence))
            return
        self.problems.append(Problem(line, "There are more problems; correct the ones above first."))
        raise TooManyProblems

    def pairs(
        self,
        branch: YamlNode | None,
        name: str,
        read_key: Callable[[Any], str],
        read_value: Callable[[Any], T],
    ) -> tuple[tuple[str, T], ...]:
        if branch is None:
            return ()
        if branch.kind != "mapping":
            self.add_problem(branch.line, f"{name} must be a group of name: value fields.")
            return ()
        found: dict[str, T] = {}
        for key, item in branch.value:
            try:
                read = read_key(key.value)
                if read in found:
                    raise InvalidValue(f"{name} names {quoted(read)} twice.")
                if item.kind != "scalar":
                    raise InvalidValue(f"{name} must map each name to one value.")
                found[read] = read_value(item.value)
            except InvalidValue as problem:
                self.add_problem(item.line, str(problem))
        return tuple(found.items())

    def fields(self, branch: YamlNode, what: str, allowed: tuple[str, ...]) -> dict[str, YamlNode] | None:
        """The known fields of a mapping by name; an empty value counts as not given."""
        if branch.kind != "mapping":
            shown = "a list" if branch.kind == "list" else values.kind_of(branch.value)
            self.add_problem(
                branch.line, f"{what} must be a group of fields ({', '.join(allowed[:4])}, ...), not {shown}."
            )
            return None
        found: dict[str, YamlNode] = {}
        for key, item in branch.value:
            name = str(key.value)
            if name not in allowed:
                self.add_problem(
                    key.line, f"{what} has no field {quoted(name)}; {_unknown_field(name, allowed)}"
                )
            elif name in found:
                self.add_problem(key.line, f"{what} gives {name} twice (first on line {found[name].line}).")
            else:
                found[name] = item
        return {
            name: item for name, item in found.items() if not (item.kind == "scalar" and item.value is None)
        }

    def items(self, branch: YamlNode | None, name: str) -> list[YamlNode]:
        if branch is None:
            return []
        if branch.kind != "list":
            self.add_problem(branch.line, f"{name} must be a list (lines that begin with a hyphen).")
            return []
        return list(branch.value)

    def read_items(
        self, branch: YamlNode | None, name: str, read: Callable[[YamlNode], T | None]
    ) -> tuple[T, ...]:
        return tuple(found for item in self.items(branch, name) if (found := read(item)) is not None)

    def value(self, branch: YamlNode, read: Callable[[Any], T], default: T) -> T:
        try:
            if branch.kind != "scalar":
                shown = "a list" if branch.kind == "list" else "a group of fields"
                raise InvalidValue(f"One value is expected here, not {shown}.")
            return read(branch.value)
        except InvalidValue as problem:
            self.add_problem(branch.line, str(problem))
            return default

    def optional(self, fields: Mapping[str, YamlNode], name: str, read: Callable[[Any], T], default: T) -> T:
        return self.value(fields[name], read, default) if name in fields else default

    def required(
        self,
        fields: Mapping[str, YamlNode],
        branch: YamlNode,
        name: str,
        read: Callable[[Any], T],
        default: T,
    ) -> T:
        if name not in fields:
            self.add_problem(branch.line, f"The field {name} is missing here.")
        return self.optional(fields, name, read, default)

    def text(self, fields: Mapping[str, YamlNode], name: str) -> str:
        return self.optional(fields, name, lambda value: values.plain_text(value, name), "")

    def tokens(self, fields: Mapping[str, YamlNode], name: str) -> int | None:
        return self.optional(fields, name, lambda value: values.tokens(value, name), None)

    def unique(self, named: list[tuple[str, int]], what: str) -> None:
        first: dict[str, int] = {}
        for name, line in named:
            if name and name in first:
                self.add_problem(line, f"The {what} {quoted(name)} was already used on line {first[name]}.")
            first.setdefault(name, line)


def _unknown_field(name: str, allowed: tuple[str, ...]) -> str:
    if name.lower() in SECRET_WORDS or secret_name(name):
        return "secrets never stand in a fleet file; name an environment variable in key_env or headers_env."
    return values.suggestion(name, allowed)
