"""Writes of the fleet by hand: keys, pins, consent, pauses. The import is in `fleet.importing`,
readings are in `fleet.reading`. Every act is recorded; nodes and pins are closed, never edited."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import IntegrityError, transaction

from kvaudit.auditor.fleetfile import values
from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor, actor_name
from kvaudit.server.accounts.sealed_fields import SealedField, place_of
from kvaudit.server.fleet.key_origins import origins_of_node, origins_of_tenants
from kvaudit.server.fleet.key_overview import equal_stored_keys
from kvaudit.server.fleet.models import SUSPENDER, Consent, Deployment, Node, Pause, Pin, Tenant
from kvaudit.server.fleet.sealed_headers import BadHeaders, bearer, seal_headers
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record

KEY_FIELDS = ("credential_sealed", "credential_set_at", "credential_set_by", "key_env")
"""What a tenant's row says of its key; they change together."""


@transaction.atomic
def set_tenant_key(*, tenant: Tenant, key: str, actor: Actor, header: str = "") -> Tenant:
    """Store a tenant's key, sent as a bearer token or as the value of ``header``. It can be
    replaced or removed ("" removes it) but never read again. It is bound to the addresses that the
    deployment has now. Raises `BadHeaders`, also where another tenant has the same key."""
    require(actor, "edit_fleet", tenant.deployment.team)
    headers = () if not key.strip() else ((header, key.strip()),) if header else bearer(key)
    deployment = Deployment.objects.select_for_update(of=("self",)).get(pk=tenant.deployment_id)
    origins = origins_of_tenants(deployment)
    tenant.credential_sealed = seal_headers(headers, place_of(tenant, "credential_sealed"), origins)
    others = Tenant.objects.current().filter(deployment=deployment).exclude(pk=tenant.pk)
    if headers and (problem := equal_stored_keys([*others, tenant])):
        raise BadHeaders(problem)
    tenant.credential_set_at = clock.now() if key.strip() else None
    tenant.credential_set_by = actor_name(actor) if key.strip() else ""
    tenant.key_env = ""  # no variable is known to hold this one
    tenant.save(update_fields=KEY_FIELDS)
    kind = "tenant.key_set" if key.strip() else "tenant.key_removed"
    record(actor=actor, kind=kind, subject=_subject(tenant.deployment, "tenant", tenant.name))
    return tenant


@transaction.atomic
def set_node_headers(*, node: Node, headers: Iterable[tuple[str, str]], actor: Actor) -> Node:
    """Store the headers that a node is asked with (none removes them); returns the node's new row."""
    require(actor, "edit_fleet", node.deployment.team)
    sealed = seal_headers(headers, place_of(node, "headers_sealed"), origins_of_node(node))
    changed = replace_node(node=node, at=clock.now(), headers_sealed=sealed, headers_env=[])
    record(actor=actor, kind="node.headers_set", subject=_subject(node.deployment, "node", node.name))
    return changed


def replace_node(*, node: Node, at: datetime, **fields: Any) -> Node:
    """Close the node's row at ``at`` and open one that differs in ``fields``. Not recorded here."""
    values = {
        name: getattr(node, name)
        for name in (
            "deployment_id",
            "name",
            "role",
            "engine",
            "url",
            "headers_sealed",
            "headers_env",
            "ca_file",
            "client_cert",
            "client_key",
            "pointers",
            "replicas",
        )
    }
    close(node, at)
    return Node.objects.create(**{**values, **fields}, valid_from=at)


def close(row: Any, at: datetime) -> None:
    """End an interval row; a second end changes nothing. The key of a node or tenant that is gone is
    dropped: the record needs what was asked, not what it was asked with."""
    dropped = {field.name: "" for field in row._meta.get_fields() if isinstance(field, SealedField)}
    type(row).objects.filter(pk=row.pk, valid_to=None).update(valid_to=at, **dropped)
    row.valid_to = row.valid_to or at
    for name in dropped:
        setattr(row, name, "")


@transaction.atomic
def set_pin(
    *, engine: str, specifier: str, actor: Actor, deployment: Deployment | None = None, reason: str = ""
) -> Pin | None:
    """Pin an engine's versions for one deployment or, without one, for the fleet. An empty
    ``specifier`` ends the pin. Raises ValueError with a sentence for an engine or range that cannot be read, and
    when somebody else sets the same pin at the same moment."""
    from kvaudit.auditor.advisories.pins import parse_pin

    require(actor, "edit_fleet", deployment.team if deployment else None)
    at = clock.now()
    wanted = parse_pin(values.pin(f"{engine}{specifier}")) if specifier else None
    engine = wanted.engine if wanted else engine
    for old in Pin.objects.current().filter(engine=engine, deployment=deployment).select_for_update():
        close(old, at)
    subject = _subject(deployment, "pin", f"{engine}{specifier}")
    pin = None
    if wanted:
        try:
            with transaction.atomic():
                pin = Pin.objects.create(
                    deployment=deployment,
                    engine=engine,
                    specifier=wanted.text,
                    set_by=actor_name(actor),
                    reason=reason[:500],
                    valid_from=at,
                )
        except IntegrityError:
            raise ValueError(
                f"Somebody else set the pin of {engine} at the same moment, so nothing was changed: look at it again."
            ) from None
    record(actor=actor, kind="pin.set" if pin else "pin.ended", subject=subject)
    return pin


@transaction.atomic
def give_consent(*, deployment: Deployment, actor: Actor, reason: str = "", given_by: str = "") -> Consent:
    """Consent to prompts of N-8 tokens and more while the pool is small or N unknown."""
    require(actor, "give_consent", deployment.team)
    consent, new = Consent.objects.get_or_create(
        deployment=deployment,
        valid_to=None,
        defaults={"given_by": (given_by or actor_name(actor))[:300], "reason": reason[:500]},
    )
    if new:
        record(actor=actor, kind="consent.given", subject=_subject(deployment))
    return consent


@transaction.atomic
def withdraw_consent(*, deployment: Deployment, actor: Actor) -> None:
    """Anybody who may edit the deployment may withdraw: that is the safe direction."""
    require(actor, "edit_fleet", deployment.team)
    ended = Consent.objects.current().filter(deployment=deployment).update(valid_to=clock.now())
    if ended:
        record(actor=actor, kind="consent.withdrawn", subject=_subject(deployment))


@transaction.atomic
def pause_probes(*, actor: Actor, deployment: Deployment | None = None, reason: str = "") -> Pause:
    """Stop active checks of one deployment or of the fleet, before their next request."""
    require(actor, "pause_probes", deployment.team if deployment else None)
    pause, new = Pause.objects.get_or_create(
        deployment=deployment,
        valid_to=None,
        defaults={"paused_by": actor_name(actor), "reason": reason[:500]},
    )
    if new:
        record(actor=actor, kind="probes.paused", subject=_subject(deployment))
    return pause


@transaction.atomic
def suspend_probes(*, deployment: Deployment, reason: str) -> bool:
    """Pause active checks of a deployment whose server stopped answering after a prompt. A person's pause
    becomes part of it, so that ending the one takes knowing of the other. False when suspended already."""
    reason = reason[:500]
    for pause in Pause.objects.current().filter(deployment=deployment).select_for_update():
        if pause.suspended:
            return False
        close(pause, clock.now())
        reason = f"{reason[:380]} Paused before by {pause.paused_by[:40]}: {pause.reason}"[:500]
    Pause.objects.create(deployment=deployment, paused_by=SUSPENDER, reason=reason)
    record(
        actor="system:worker",
        kind="probes.suspended",
        subject=_subject(deployment),
        digest=digest_of([reason]),
    )
    return True


@transaction.atomic
def resume_probes(*, actor: Actor, deployment: Deployment | None = None, reason: str = "") -> None:
    """End the pause of one deployment or of the fleet (the other kind stays). ValueError with a sentence
    when a suspension is to end without a reason."""
    require(actor, "pause_probes", deployment.team if deployment else None)
    held = Pause.objects.current().filter(deployment=deployment).select_for_update()
    if any(pause.suspended for pause in held) and not reason.strip():
        raise ValueError(
            "kvaudit suspended these checks because the server stopped answering: give the reason why prompts may be "
            "sent again (restarted with a larger pool, upgraded, an edge limit)."
        )
    ended = Pause.objects.current().filter(deployment=deployment).update(valid_to=clock.now())
    if ended:
        record(actor=actor, kind="probes.resumed", subject=_subject(deployment, *reason.split()))


@transaction.atomic
def retire_deployment(*, deployment: Deployment, actor: Actor) -> None:
    """No more audits; history stays, keys do not."""
    require(actor, "edit_fleet", deployment.team)
    at = clock.now()
    if Deployment.objects.filter(pk=deployment.pk, retired_at=None).update(retired_at=at):
        deployment.retired_at = at
        Node.objects.filter(deployment=deployment).update(headers_sealed="", headers_env=[])
        Tenant.objects.filter(deployment=deployment).update(
            credential_sealed="",
            credential_set_at=None,
            credential_set_by="",
            key_env="",
            salt_sealed="",
        )
        record(actor=actor, kind="deployment.retired", subject=_subject(deployment))


def _subject(deployment: Deployment | None, *more: str) -> str:
    start = f"deployment:{deployment.slug}" if deployment else "fleet"
    return " ".join((start, *more))[:300]
