"""Reads a fleet written as CSV: one row per node, the deployment's fields on its first row.

``headers_env`` is ``Header=VARIABLE;Header=VARIABLE``, ``tenants`` is ``name=VARIABLE;name=VARIABLE``.
Plans and windows need the YAML form.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from kvaudit.auditor.fleetfile import values
from kvaudit.auditor.fleetfile.keys import equal_variables
from kvaudit.auditor.fleetfile.reader import MOST_PROBLEMS
from kvaudit.auditor.fleetfile.schema import FleetDeployment, FleetFile, FleetNode, FleetTenant, Problem
from kvaudit.auditor.fleetfile.tree import Unreadable, decode
from kvaudit.auditor.fleetfile.values import InvalidValue
from kvaudit.auditor.text.quoting import quoted

T = TypeVar("T")

DEPLOYMENT_COLUMNS = (
    "slug", "team", "owner", "contact", "engine", "entry", "model", "context", "edge_limit", "headroom",
    "consent", "tenants",
)  # fmt: skip
NODE_COLUMNS = ("name", "role", "url", "headers_env", "key_env", "replicas")
COLUMNS = (*DEPLOYMENT_COLUMNS, *NODE_COLUMNS)
REQUIRED = ("slug", "url")


def parse(content: str | bytes) -> FleetFile:
    """The deployments of a CSV file and its problems, by line; never raises for its content."""
    try:
        text = decode(content)
    except Unreadable as unreadable:
        return FleetFile(problems=(unreadable.problem,))
    return _Rows().file(text)


class _Rows:
    """Gathers deployments and nodes row by row, and the problems of each row."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []
        self.deployments: dict[str, FleetDeployment] = {}
        self.nodes: dict[str, list[FleetNode]] = {}
        self.used: dict[tuple[str, str, str], int] = {}  # (slug, name or url, value) -> its line

    def add_problem(self, line: int, sentence: str) -> None:
        if len(self.problems) <= MOST_PROBLEMS:
            self.problems.append(Problem(line, sentence))

    def file(self, text: str) -> FleetFile:
        """Read the whole file: its deployments, and the problems of its rows."""
        reader = csv.reader(io.StringIO(text, newline=""), strict=True)
        try:
            columns = self.header(next(reader, []))
            for cells in reader if columns else ():
                if any(cell.strip() for cell in cells):
                    self.row(columns, cells, reader.line_num)
                if len(self.problems) > MOST_PROBLEMS:
                    break
        except csv.Error as problem:
            self.add_problem(reader.line_num, f"The line is no valid CSV: {problem}.")
        if not self.deployments and not self.problems:
            self.add_problem(0, "The file holds no node: give at least one row below the header.")
        whole = (
            replace(deployment, nodes=tuple(self.nodes.get(deployment.slug, ())))
            for deployment in self.deployments.values()
        )
        return FleetFile(tuple(whole), tuple(sorted(self.problems)))

    def header(self, cells: list[str]) -> list[str]:
        """Check the names of the columns and return them; [] where no row can be read by them."""
        columns = [cell.strip().lower() for cell in cells]
        if not any(columns):
            self.add_problem(1, f"The first line must name the columns: {', '.join(COLUMNS)}.")
            return []
        if len(columns) > 2 * len(COLUMNS):
            self.add_problem(1, f"The first line names {len(columns):,} columns; there are {len(COLUMNS)}.")
            return []
        for name in columns:
            if name not in COLUMNS:
                self.add_problem(
                    1, f"The column {quoted(name)} is unknown; {values.suggestion(name, COLUMNS)}"
                )
            elif columns.count(name) > 1:
                self.add_problem(1, f"The column {quoted(name)} appears more than once.")
        for name in REQUIRED:
            if name not in columns:
                self.add_problem(1, f"The column {name!r} is missing.")
        return [] if self.problems else columns

    def row(self, columns: list[str], cells: list[str], line: int) -> None:
        """Read one row: a node, and on its deployment's first row the deployment."""
        if len(cells) != len(columns):
            self.add_problem(
                line, f"The row has {len(cells)} cells, the header names {len(columns)} columns."
            )
            return
        fields = {name: cell.strip() for name, cell in zip(columns, cells, strict=True) if cell.strip()}
        for name, cell in fields.items():
            if _formula(cell):
                self.add_problem(
                    line, f"{name} begins with {cell[0]!r}, which a spreadsheet runs as a formula; remove it."
                )
                return
        slug = self.read(line, fields, "slug", values.slug, "")
        if "slug" not in fields:
            self.add_problem(line, "The row has no slug: say which deployment the node belongs to.")
        known = self.deployments.get(slug)
        described = self.deployment(fields, slug, line)
        node = self.node(fields, line, len(self.nodes.get(slug, ())))
        if known is None:
            if same := equal_variables(described.tenants):
                self.add_problem(line, same)
            if slug and node:
                self.deployments[slug] = described
                self.add(slug, node, line)
            return
        self.same(known, described, fields, line)
        if node is None:
            return
        self.add(slug, node, line)

    def add(self, slug: str, node: FleetNode, line: int) -> None:
        for what, value in (("name", node.name), ("URL", node.url)):
            first = self.used.setdefault((slug, what, value if what == "name" else value.lower()), line)
            if first != line:
                self.add_problem(
                    line, f"The node {what} {quoted(value, longest=120)} was already used on line {first}."
                )
        self.nodes.setdefault(slug, []).append(node)

    def same(
        self, known: FleetDeployment, described: FleetDeployment, fields: dict[str, str], line: int
    ) -> None:
        """Later rows may repeat the deployment's fields, never contradict them."""
        for name in DEPLOYMENT_COLUMNS:
            if name not in fields or name == "slug":
                continue
            first, now = getattr(known, name), getattr(described, name)
            if name == "tenants":
                first, now = (
                    [(deployment.name, deployment.key_env) for deployment in first],
                    [(deployment.name, deployment.key_env) for deployment in now],
                )
            if first != now:
                self.add_problem(
                    line,
                    f"{name} of {known.slug} differs from line {known.line}; one deployment has one value.",
                )

    def deployment(self, fields: dict[str, str], slug: str, line: int) -> FleetDeployment:
        return FleetDeployment(
            slug=slug,
            nodes=(),
            team=self.text(line, fields, "team"),
            owner=self.text(line, fields, "owner"),
            contact=self.text(line, fields, "contact"),
            engine=self.read(line, fields, "engine", values.engine, "auto"),
            entry=self.read(line, fields, "entry", lambda value: values.url(value, "entry"), ""),
            model=self.text(line, fields, "model"),
            context=self.read(line, fields, "context", lambda value: values.tokens(value, "context"), None),
            edge_limit=self.read(
                line, fields, "edge_limit", lambda value: values.tokens(value, "edge_limit"), None
            ),
            headroom=self.read(line, fields, "headroom", values.headroom, None),
            consent=self.read(line, fields, "consent", lambda value: values.boolean(value, "consent"), False),
            tenants=tuple(
                FleetTenant(name, variable, line=line)
                for name, variable in self.pairs(line, fields, "tenants", values.name)
            ),
            line=line,
        )

    def node(self, fields: dict[str, str], line: int, index: int) -> FleetNode | None:
        if "url" not in fields:
            self.add_problem(line, "The row has no url: give the address of the node.")
            return None
        url = self.read(line, fields, "url", values.url, "")
        role = self.read(line, fields, "role", lambda value: values.choice(value, "role", values.ROLES), "")
        return FleetNode(
            name=self.read(line, fields, "name", values.name, f"{role or 'node'}-{index}"),
            url=url,
            role=role,
            headers_env=tuple(self.pairs(line, fields, "headers_env", values.header)),
            key_env=self.read(line, fields, "key_env", lambda value: values.variable(value, "key_env"), ""),
            replicas=self.read(line, fields, "replicas", values.replicas, 0),
            line=line,
        )

    def pairs(
        self, line: int, fields: dict[str, str], name: str, read_key: Callable[[Any], str]
    ) -> list[tuple[str, str]]:
        found: dict[str, str] = {}
        for part in fields.get(name, "").split(";") if fields.get(name) else ():
            key, equals, variable = part.partition("=")
            try:
                if not equals:
                    raise InvalidValue(
                        f"{name} must be written name=VARIABLE, several separated by semicolons."
                    )
                key = read_key(key.strip())
                if key in found:
                    raise InvalidValue(f"{name} names {quoted(key)} twice.")
                found[key] = values.variable(variable, name)
            except InvalidValue as problem:
                self.add_problem(line, str(problem))
        return list(found.items())

    def read(self, line: int, fields: dict[str, str], name: str, reader: Callable[[Any], T], default: T) -> T:
        if name not in fields:
            return default
        try:
            return reader(fields[name])
        except InvalidValue as problem:
            self.add_problem(line, str(problem))
            return default

    def text(self, line: int, fields: dict[str, str], name: str) -> str:
        return self.read(line, fields, name, lambda value: values.plain_text(value, name), "")


def _formula(cell: str) -> bool:
    """Whether a spreadsheet would run the cell; ``+49 30 1234`` is a telephone number."""
    if cell[0] in "=@\t\r":
        return True
    return cell[0] in "+-" and not all(char.isdigit() or char in " ()-/." for char in cell[1:])
