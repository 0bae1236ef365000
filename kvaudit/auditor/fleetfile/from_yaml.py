"""Reads ``kvaudit.fleet/1`` written as YAML. Every mistake becomes one sentence with its line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from kvaudit.auditor.checks import MODULES
from kvaudit.auditor.fleetfile import values
from kvaudit.auditor.fleetfile.keys import equal_variables
from kvaudit.auditor.fleetfile.reader import Reader, TooManyProblems
from kvaudit.auditor.fleetfile.schema import (
    SCHEMA,
    FleetDeployment,
    FleetFile,
    FleetNode,
    FleetPlan,
    FleetTenant,
    FleetWindow,
)
from kvaudit.auditor.fleetfile.tree import Unreadable, YamlNode, compose
from kvaudit.auditor.fleetfile.values import InvalidValue
from kvaudit.auditor.text.quoting import quoted

if TYPE_CHECKING:
    from kvaudit.auditor.checks.session.api import SessionPlan

FILE_FIELDS = ("schema", "deployments")
DEPLOYMENT_FIELDS = (
    "slug", "team", "owner", "contact", "engine", "entry", "entry_sets_salts", "model", "context", "edge_limit",
    "disagg_buffer", "headroom", "pins", "conditions", "components", "consent", "windows", "plans", "nodes", "tenants",
    "session",
)  # fmt: skip
NODE_FIELDS = (
    "name", "role", "url", "engine", "headers_env", "key_env", "ca_file", "client_cert", "client_key",
    "pointers", "replicas",
)  # fmt: skip
TENANT_FIELDS = ("name", "key_env", "headers_env", "salt_env")
WINDOW_FIELDS = ("days", "from", "to", "zone")
PLAN_FIELDS = (
    "name",
    "checks",
    "every",
    "cron",
    "zone",
    "jitter",
    "windows",
    "budget_tokens",
    "budget_seconds",
)
CONSENT_FIELDS = ("given", "by", "reason")


def parse(content: str | bytes) -> FleetFile:
    """The deployments of a YAML fleet file and its problems; never raises for its content."""
    try:
        root = compose(content)
    except Unreadable as unreadable:
        return FleetFile(problems=(unreadable.problem,))
    reader = _FleetReader()
    try:
        return reader.file(root)
    except TooManyProblems:
        return FleetFile(problems=tuple(sorted(reader.problems)))


class _FleetReader(Reader):
    """The shape of ``kvaudit.fleet/1``."""

    def file(self, root: YamlNode) -> FleetFile:
        fields = self.fields(root, "The file", FILE_FIELDS)
        if fields is None:
            return FleetFile(problems=tuple(self.problems))
        schema = fields.get("schema")
        if schema is None:
            self.add_problem(root.line, f"The file must say schema: {SCHEMA}.")
        elif schema.value != SCHEMA:
            self.add_problem(
                schema.line, f"The schema is {values.kind_of(schema.value)}; this version reads {SCHEMA}."
            )
        found = []
        listed = fields.get("deployments")
        if listed is None:
            self.add_problem(root.line, "The file has no deployments: list at least one.")
        else:
            found = [
                deployment
                for deployment in map(self.deployment, self.items(listed, "deployments"))
                if deployment
            ]
            if not listed.value:
                self.add_problem(listed.line, "deployments is empty: list at least one.")
        self.unique([(deployment.slug, deployment.line) for deployment in found], "slug")
        return FleetFile(tuple(found), tuple(sorted(self.problems)))

    def deployment(self, branch: YamlNode) -> FleetDeployment | None:
        fields = self.fields(branch, "A deployment", DEPLOYMENT_FIELDS)
        if fields is None:
            return None
        before = len(self.problems)
        consent = self.consent(fields.get("consent"))
        nodes = tuple(
            each
            for index, item in enumerate(self.items(fields.get("nodes"), "nodes"))
            if (each := self.node(item, index)) is not None
        )
        if not nodes and len(self.problems) == before:
            self.add_problem(
                branch.line, "The deployment lists no nodes: give the URL of each process to audit."
            )
        tenants = self.read_items(fields.get("tenants"), "tenants", self.tenant)
        plans = self.read_items(fields.get("plans"), "plans", self.plan)
        if same := equal_variables(tenants):
            self.add_problem(fields["tenants"].line, same)
        self.unique([(node.name, node.line) for node in nodes], "node name")
        self.unique([(node.url.lower(), node.line) for node in nodes], "node URL")
        self.unique([(tenant.name, tenant.line) for tenant in tenants], "tenant name")
        self.unique([(plan.name, plan.line) for plan in plans], "plan name")
        return FleetDeployment(
            slug=self.required(fields, branch, "slug", values.slug, ""),
            nodes=nodes,
            team=self.text(fields, "team"),
            owner=self.text(fields, "owner"),
            contact=self.text(fields, "contact"),
            engine=self.optional(fields, "engine", values.engine, "auto"),
            entry=self.optional(fields, "entry", lambda value: values.url(value, "entry"), ""),
            entry_sets_salts=self.optional(
                fields, "entry_sets_salts", lambda value: values.boolean(value, "entry_sets_salts"), False
            ),
            model=self.text(fields, "model"),
            context=self.tokens(fields, "context"),
            edge_limit=self.tokens(fields, "edge_limit"),
            disagg_buffer=self.tokens(fields, "disagg_buffer"),
            headroom=self.optional(fields, "headroom", values.headroom, None),
            pins=self.pins(fields.get("pins")),
            conditions=self.conditions(fields.get("conditions")),
            components=self.pairs(
                fields.get("components"),
                "components",
                values.component,
                lambda value: values.plain_text(value, "a component's version", longest=60),
            ),
            consent=consent[0],
            consent_by=consent[1],
            consent_reason=consent[2],
            windows=self.read_items(fields.get("windows"), "windows", self.window),
            plans=plans,
            tenants=tenants,
            session=self.session(fields.get("session")),
            line=branch.line,
        )

    def session(self, branch: YamlNode | None) -> SessionPlan | None:
        if branch is None:
            return None
        from kvaudit.auditor.fleetfile.session import read_session  # seldom there: the gate starts without

        return read_session(self, branch)

    def node(self, branch: YamlNode, index: int) -> FleetNode | None:
        fields = self.fields(branch, "A node", NODE_FIELDS)
        if fields is None:
            return None
        role = self.optional(fields, "role", lambda value: values.choice(value, "role", values.ROLES), "")
        self.one_authorization(fields)
        return FleetNode(
            name=self.optional(fields, "name", values.name, f"{role or 'node'}-{index}"),
            url=self.required(fields, branch, "url", values.url, ""),
            role=role,
            engine=self.optional(fields, "engine", values.engine, ""),
            headers_env=self.headers(fields.get("headers_env")),
            key_env=self.optional(fields, "key_env", lambda value: values.variable(value, "key_env"), ""),
            ca_file=self.text(fields, "ca_file"),
            client_cert=self.text(fields, "client_cert"),
            client_key=self.text(fields, "client_key"),
            pointers=self.pointers(fields.get("pointers")),
            replicas=self.optional(fields, "replicas", values.replicas, 0),
            line=branch.line,
        )

    def tenant(self, branch: YamlNode) -> FleetTenant | None:
        fields = self.fields(branch, "A tenant", TENANT_FIELDS)
        if fields is None:
            return None
        self.one_authorization(fields)
        return FleetTenant(
            name=self.required(fields, branch, "name", values.name, ""),
            key_env=self.optional(fields, "key_env", lambda value: values.variable(value, "key_env"), ""),
            headers_env=self.headers(fields.get("headers_env")),
            salt_env=self.optional(fields, "salt_env", lambda value: values.variable(value, "salt_env"), ""),
            line=branch.line,
        )

    def window(self, branch: YamlNode) -> FleetWindow | None:
        fields = self.fields(branch, "A window", WINDOW_FIELDS)
        if fields is None:
            return None
        days = tuple(
            day
            for item in self.items(fields.get("days"), "days")
            if (day := self.value(item, lambda value: values.choice(value, "a day", values.DAYS), ""))
        )
        return FleetWindow(
            start=self.required(fields, branch, "from", lambda value: values.clock(value, "from"), ""),
            end=self.required(fields, branch, "to", lambda value: values.clock(value, "to"), ""),
            days=days,
            zone=self.optional(fields, "zone", values.zone, "UTC"),
        )

    def plan(self, branch: YamlNode) -> FleetPlan | None:
        fields = self.fields(branch, "A plan", PLAN_FIELDS)
        if fields is None:
            return None
        checks = tuple(
            check
            for item in self.items(fields.get("checks"), "checks")
            if (check := self.value(item, lambda value: values.choice(value, "a check", MODULES), ""))
        )
        if not checks:
            self.add_problem(branch.line, "A plan must name its checks, such as [version, pool, drift].")
        interval = self.optional(fields, "every", lambda value: values.duration(value, "every"), None)
        cron = self.optional(fields, "cron", values.cron, "")
        if ("every" in fields) == ("cron" in fields):
            self.add_problem(branch.line, "A plan must say either every (such as 1h) or cron, and not both.")
        elif interval is not None and interval < values.SHORTEST_INTERVAL:
            self.add_problem(
                branch.line, f"every is {interval} s; at least {values.SHORTEST_INTERVAL} s are needed."
            )
        return FleetPlan(
            name=self.text(fields, "name") or " + ".join(checks),
            checks=checks,
            cron=cron,
            zone=self.optional(fields, "zone", values.zone, "UTC"),
            interval=interval,
            jitter=self.optional(fields, "jitter", lambda value: values.duration(value, "jitter"), 0),
            windows=self.read_items(fields.get("windows"), "windows", self.window),
            budget_tokens=self.tokens(fields, "budget_tokens"),
            budget_seconds=self.optional(
                fields, "budget_seconds", lambda value: values.duration(value, "budget_seconds"), None
            ),
            line=branch.line,
        )

    def consent(self, branch: YamlNode | None) -> tuple[bool, str, str]:
        if branch is None or branch.kind == "scalar":
            given = (
                self.value(branch, lambda value: values.boolean(value, "consent"), False) if branch else False
            )
            return given, "", ""
        fields = self.fields(branch, "consent", CONSENT_FIELDS) or {}
        given = self.required(fields, branch, "given", lambda value: values.boolean(value, "given"), False)
        return given, self.text(fields, "by"), self.text(fields, "reason")

    def pins(self, branch: YamlNode | None) -> tuple[str, ...] | None:
        if branch is None:
            return None
        found = (self.value(item, values.pin, "") for item in self.items(branch, "pins"))
        return tuple(pin for pin in found if pin)

    def conditions(self, branch: YamlNode | None) -> tuple[tuple[str, bool], ...]:
        return self.pairs(
            branch,
            "conditions",
            values.condition,
            lambda value: values.boolean(value, "a condition"),
        )

    def headers(self, branch: YamlNode | None) -> tuple[tuple[str, str], ...]:
        return self.pairs(
            branch, "headers_env", values.header, lambda value: values.variable(value, "a header's variable")
        )

    def one_authorization(self, fields: Mapping[str, YamlNode]) -> None:
        """A bearer key and an Authorization header would both be sent."""
        headers = fields.get("headers_env")
        if headers is None or headers.kind != "mapping" or "key_env" not in fields:
            return
        if any(str(key.value).strip().lower() == "authorization" for key, _ in headers.value):
            self.add_problem(headers.line, "key_env already sends Authorization; give one of the two.")

    def pointers(self, branch: YamlNode | None) -> tuple[tuple[str, str], ...]:
        return self.pairs(
            branch, "pointers", lambda key: values.choice(key, "pointer", values.POINTERS), _pointer
        )


def _pointer(value: object) -> str:
    text = values.plain_text(value, "a pointer", longest=200)
    if not text.startswith("/") and "#/" not in text and not text.isdigit():
        raise InvalidValue(f"A pointer {quoted(text)} must be a JSON pointer such as /pool/capacity.")
    return text
