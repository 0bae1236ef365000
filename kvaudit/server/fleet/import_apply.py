"""Compares one deployment of a fleet file with the database and applies the difference."""

from __future__ import annotations

import re
from typing import Any

from django.core.exceptions import PermissionDenied

from kvaudit.auditor.advisories.pins import parse_pin
from kvaudit.auditor.fleetfile import FleetNode
from kvaudit.auditor.text.quoting import quoted
from kvaudit.auditor.transport import origin_of
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import actor_name
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.accounts.services import team_slug
from kvaudit.server.fleet import session_plans
from kvaudit.server.fleet.deployment_import import DeploymentImport
from kvaudit.server.fleet.filekeys import Refused
from kvaudit.server.fleet.import_diff import Action, FieldDifference, between
from kvaudit.server.fleet.import_tenants import apply_tenants
from kvaudit.server.fleet.key_origins import origins_of_node
from kvaudit.server.fleet.models import Consent, Deployment, Node, Pin
from kvaudit.server.fleet.refused_addresses import closed_doors
from kvaudit.server.fleet.sealed_headers import Headers, seal_headers
from kvaudit.server.fleet.services import close, replace_node
from kvaudit.server.fleet.session_approval import end_approval
from kvaudit.server.fleet.snapshot_writer import note_removal
from kvaudit.server.fleet.tls_files import tls_problem

_SLUG = re.compile(r"[a-z0-9]+(?:[-_][a-z0-9]+)*\Z")  # what a URL of ours can hold


class Application(DeploymentImport):
    """Applies one described deployment; collects the differences it made and notes."""

    def apply(self) -> Deployment:
        """Raises `Refused`; the caller then rolls everything back."""
        if not _SLUG.match(self.described.slug):
            raise Refused(
                self.described.line,
                f"The slug {quoted(self.described.slug)} must be lower-case letters, digits, - and _.",
            )
        deployment = self._deployment()
        self._nodes(deployment)
        apply_tenants(self, deployment)
        self._pins(deployment)
        self._consent(deployment)
        self.keys.notes += closed_doors(self.described)
        return deployment

    # The deployment itself

    def _deployment(self) -> Deployment:
        team = self._team()
        values = self._declared()
        if self.found is None:
            self.allowed("edit_fleet", team)
            author = self._session_author() if values.get("session") else {}
            deployment = Deployment.objects.create(slug=self.described.slug, team=team, **values, **author)
            said = {name: value for name, value in {"team": team.slug, **values}.items() if value}
            self.differs("deployment", "", "added", between({}, said))
            return deployment
        deployment = self.found
        self.allowed("edit_fleet", deployment.team)
        if team.pk != deployment.team_id:
            self.allowed("edit_fleet", team)
        before = {name: getattr(deployment, name) for name in values}
        changed = between(
            {"team": deployment.team.slug, "retired": deployment.retired_at is not None, **before},
            {"team": team.slug, "retired": False, **values},
        )
        if changed:
            for name, value in values.items():
                setattr(deployment, name, value)
            deployment.team = team
            deployment.retired_at = None
            if "session" in values and values["session"] != before["session"]:
                end_approval(deployment, self.at)
                for name, value in self._session_author().items():
                    setattr(deployment, name, value)
            deployment.save()
            self.differs("deployment", "", "changed", changed)
        return deployment

    def _session_author(self) -> dict[str, Any]:
        """Whoever brings in steps for a session API cannot be the one who approves them."""
        if self.described.session is not None:
            self.keys.notes.append(
                f"{self.described.slug}: the steps of its session API are new or changed; the check session does not "
                "ask them before a second person with the role of approver has approved them, on the deployment's page."
            )
        person = self.actor if isinstance(self.actor, User) else None
        return {"session_author": person, "session_set_by": actor_name(self.actor)[:300]}

    def _team(self) -> Team:
        if not self.described.team:
            if self.found is None:
                raise Refused(
                    self.described.line,
                    f"{self.described.slug} is new and needs a team: say who answers for it.",
                )
            return self.found.team
        try:
            slug = team_slug(self.described.team)
        except ValueError as problem:
            raise Refused(self.described.line, str(problem)) from None
        known = Team.objects.filter(slug=slug).first()
        if known is not None:
            return known
        try:
            require(self.actor, "edit_fleet")
        except PermissionDenied:
            raise Refused(
                self.described.line, f"There is no team {slug}; an administrator must make it first."
            ) from None
        # Not through accounts' service: the ledger is written last, when every row is locked.
        self.differs("team", slug, "added")
        return Team.objects.create(slug=slug, name=self.described.team)

    def _declared(self) -> dict[str, Any]:
        """The columns as the file states them."""
        each = self.described
        values: dict[str, Any] = {
            "owner": each.owner,
            "contact": each.contact,
            "engine": each.engine,
            "entry": each.entry,
            "entry_sets_salts": each.entry_sets_salts,
            "model": each.model,
            "context": each.context,
            "edge_limit": each.edge_limit,
            "disagg_buffer": each.disagg_buffer,
            "headroom": 1.25 if each.headroom is None else each.headroom,
            "conditions": dict(each.conditions),
            "components": dict(each.components),
            "windows": [window.as_json() for window in each.windows],
            "session": session_plans.as_json(each.session),
        }
        if not self.partial or self.found is None:
            return values
        unsaid = {"engine": "auto", "headroom": 1.25 if each.headroom is None else None}
        return {name: value for name, value in values.items() if value and value != unsaid.get(name)}

    # Nodes

    def _nodes(self, deployment: Deployment) -> None:
        current = {node.name: node for node in Node.objects.current().filter(deployment=deployment)}
        added = []
        for each in self.described.nodes:
            headers = self.keys.named_in(each, f"node {each.name}")
            node = current.pop(each.name, None)
            if node is None:
                added.append(self._new_node(deployment, each, headers))
            else:
                self._changed_node(node, each, headers)
        Node.objects.bulk_create(added)
        for node in current.values():
            close(node, self.at)
            self.differs("node", node.name, "removed", (FieldDifference("url", node.url, None),))
        for node in () if added else current.values():
            note_removal(deployment=deployment, node=node, at=self.at)

    def _new_node(self, deployment: Deployment, each: FleetNode, headers: Headers) -> Node:
        values = self._node_values(each)
        shown = between({}, {name: value for name, value in values.items() if value})
        secret = (FieldDifference("headers", "", "set"),) if headers else ()
        self.differs("node", each.name, "added", (*shown, *secret))
        node = Node(
            deployment=deployment,
            name=each.name,
            valid_from=self.at,
            headers_env=_variables(each) if headers else [],
            **values,
        )
        node.headers_sealed = seal_headers(headers, place_of(node, "headers_sealed"), origins_of_node(node))
        return node

    def _changed_node(self, node: Node, each: FleetNode, headers: Headers) -> None:
        values = self._node_values(each)
        if self.partial:
            values = {name: value for name, value in values.items() if value and value != "auto"}
        changed = between({name: getattr(node, name) for name in values}, values)
        origins = frozenset({origin_of(each.url)})
        sealed, secret = self.keys.kept(
            node.headers_sealed,
            place_of(node, "headers_sealed"),
            headers,
            asked=origins,
            named=origins,
            whose=f"node {each.name}",
        )
        if secret:
            changed = (*changed, FieldDifference("headers", "", secret))
        names = _variables(each) if headers else node.headers_env if sealed else []
        if changed:
            replace_node(node=node, at=self.at, headers_sealed=sealed, headers_env=names, **values)
            self.differs("node", each.name, "changed", changed)
        elif names != node.headers_env:  # where a key is read from is nothing that an audit saw
            Node.objects.filter(pk=node.pk).update(headers_env=names)

    def _node_values(self, node: FleetNode) -> dict[str, Any]:
        if problem := tls_problem(node):
            raise Refused(node.line, problem)
        return {
            "url": node.url,
            "role": node.role,
            "engine": node.engine or "auto",
            "ca_file": node.ca_file,
            "client_cert": node.client_cert,
            "client_key": node.client_key,
            "pointers": dict(node.pointers),
            "replicas": node.replicas,
        }

    # Pins and consent

    def _pins(self, deployment: Deployment) -> None:
        if self.described.pins is None:
            return
        wanted = {pin.engine: pin.text for pin in map(parse_pin, self.described.pins)}
        current = {pin.engine: pin for pin in Pin.objects.current().filter(deployment=deployment)}
        for engine, specifier in wanted.items():
            pin = current.pop(engine, None)
            if pin is not None and pin.specifier == specifier:
                continue
            if pin is not None:
                close(pin, self.at)
            Pin.objects.create(
                deployment=deployment,
                engine=engine,
                specifier=specifier,
                set_by=actor_name(self.actor),
                reason="fleet file",
                valid_from=self.at,
            )
            action: Action = "changed" if pin else "added"
            before = pin.specifier if pin else None
            self.differs("pin", engine, action, (FieldDifference("range", before, specifier),))
        for engine, pin in current.items():
            close(pin, self.at)
            self.differs("pin", engine, "removed", (FieldDifference("range", pin.specifier, None),))

    def _consent(self, deployment: Deployment) -> None:
        current = Consent.objects.current().filter(deployment=deployment).first()
        if self.described.consent and current is None:
            self.allowed("give_consent", deployment.team)
            by = actor_name(self.actor)
            Consent.objects.create(
                deployment=deployment,
                valid_from=self.at,
                given_by=f"{self.described.consent_by} (imported by {by})"[:300]
                if self.described.consent_by
                else by,
                reason=self.described.consent_reason[:500],
            )
            self.differs("consent", "", "added")
        elif not self.described.consent and current is not None and not self.partial:
            close(current, self.at)
            self.differs("consent", "", "removed")


def _variables(node: FleetNode) -> list[list[str]]:
    """As `Node.headers_env` keeps them."""
    return [*map(list, node.headers_env), *([["", node.key_env]] if node.key_env else [])]
