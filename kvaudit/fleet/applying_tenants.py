"""The tenants of a described deployment: their keys and salts are set, kept, replaced or removed, never shown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvaudit.accounts.actors import actor_name
from kvaudit.accounts.sealing import seal
from kvaudit.fleet.credentials import Headers, same_origin, seal_headers
from kvaudit.fleet.differences import FieldDifference
from kvaudit.fleet.models import Deployment, Tenant
from kvaudit.fleet.services import KEY_FIELDS, close
from kvaudit.fleetfile import FleetTenant

if TYPE_CHECKING:
    from kvaudit.fleet.applying import Application


def apply_tenants(application: Application, deployment: Deployment, *, moved: bool) -> None:
    """What the file says of tenants; ``moved``: their keys and salts were entered for another origin."""
    current = {tenant.name: tenant for tenant in Tenant.objects.current().filter(deployment=deployment)}
    for each in application.described.tenants:
        headers = application.keys.named_in(each, f"tenant {each.name}")
        tenant = current.pop(each.name, None)
        if tenant is None:
            Tenant.objects.create(
                deployment=deployment,
                name=each.name,
                valid_from=application.at,
                credential_sealed=seal_headers(headers),
                credential_set_at=application.at if headers else None,
                credential_set_by=actor_name(application.actor) if headers else "",
                key_env=each.key_env if headers else "",
                salt_sealed=seal(application.keys.salt_of(each)),
            )
            secret = "set" if headers else ""
            application.differs("tenant", each.name, "added", _secret_field("key", secret))
        else:
            _key(application, tenant, headers, moved, each.key_env)
            _salt(application, tenant, each, moved)
        if not headers and not (tenant and tenant.credential_sealed):
            application.keys.notes.append(
                f"{deployment.slug}: tenant {each.name} has no key yet; active checks wait for it."
            )
    for tenant in current.values():
        if not application.partial:
            tenant.credential_sealed = tenant.salt_sealed = tenant.key_env = ""
            tenant.save(update_fields=["credential_sealed", "salt_sealed", "key_env"])
            close(tenant, application.at)
            application.differs("tenant", tenant.name, "removed")
        elif moved:
            _key(application, tenant, (), moved, "")
            _salt(application, tenant, FleetTenant(tenant.name), moved)


def _key(application: Application, tenant: Tenant, headers: Headers, moved: bool, variable: str) -> None:
    """``headers`` were read from ``variable`` ("": from headers_env); none keeps what is stored."""
    sealed, secret = application.keys.kept(
        tenant.credential_sealed, headers, moved=moved, whose=f"tenant {tenant.name}"
    )
    if secret:
        tenant.credential_sealed = sealed
        tenant.credential_set_at = application.at if sealed else None
        tenant.credential_set_by = actor_name(application.actor) if sealed else ""
        application.differs("tenant", tenant.name, "changed", _secret_field("key", secret))
    if secret or headers:
        tenant.key_env = variable if headers else ""
        tenant.save(update_fields=KEY_FIELDS)


def _salt(application: Application, tenant: Tenant, each: FleetTenant, moved: bool) -> None:
    if not each.salt_env and application.partial and not moved:
        return
    sealed, secret = application.keys.kept_salt(tenant.salt_sealed, each, moved=moved)
    if secret:
        tenant.salt_sealed = sealed
        tenant.save(update_fields=["salt_sealed"])
        application.differs("tenant", tenant.name, "changed", _secret_field("salt", secret))


def elsewhere(entry: str, session: dict[str, Any], now: Deployment) -> bool:
    """Whether tenants' keys would be sent to an origin that they were not entered for."""
    if not same_origin(entry, now.entry):
        return True
    url = now.session.get("url", "")
    return bool(url) and not same_origin(url, now.entry) and not same_origin(url, session.get("url", ""))


def _secret_field(name: str, secret: str) -> tuple[FieldDifference, ...]:
    return (FieldDifference(name, "", secret),) if secret else ()
