"""Applies the tenants of a described deployment: their keys and salts are set, kept, replaced or removed, never
shown."""

from __future__ import annotations

from kvaudit.auditor.fleetfile import FleetTenant
from kvaudit.auditor.targets import tenants_origins
from kvaudit.server.accounts.actors import actor_name
from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.fleet.deployment_import import DeploymentImport
from kvaudit.server.fleet.filekeys import Refused
from kvaudit.server.fleet.import_diff import FieldDifference
from kvaudit.server.fleet.key_origins import origins_of_tenants
from kvaudit.server.fleet.key_overview import equal_stored_keys
from kvaudit.server.fleet.models import Deployment, Tenant
from kvaudit.server.fleet.sealed_headers import Headers
from kvaudit.server.fleet.services import KEY_FIELDS, close


def apply_tenants(application: DeploymentImport, deployment: Deployment) -> None:
    """What the file says of tenants. The nodes of the deployment are as they will be."""
    _Tenants(application, deployment).apply()


class _Tenants:
    """``asked``: the origins that tenants' keys are sent to from now on; ``named``: those in the file."""

    def __init__(self, application: DeploymentImport, deployment: Deployment) -> None:
        described = application.described
        self.application, self.deployment = application, deployment
        self.given = False
        self.asked = origins_of_tenants(deployment)
        self.named = tenants_origins(
            described.entry,
            [node.url for node in described.nodes],
            described.session.url if described.session else "",
        )

    def apply(self) -> None:
        application, deployment = self.application, self.deployment
        current = {tenant.name: tenant for tenant in Tenant.objects.current().filter(deployment=deployment)}
        kept = []
        for each in application.described.tenants:
            headers = application.keys.named_in(each, f"tenant {each.name}")
            self.given = self.given or bool(headers)
            tenant = current.pop(each.name, None)
            if tenant is None:
                tenant = self._added(each, headers)
            else:
                self._key(tenant, headers, each.key_env)
                self._salt(tenant, each)
            kept.append(tenant)
            if not tenant.credential_sealed:
                application.keys.notes.append(
                    f"{deployment.slug}: tenant {each.name} has no key yet; active checks wait for it."
                )
        for tenant in current.values():
            if not application.partial:
                close(tenant, application.at)
                application.differs("tenant", tenant.name, "removed")
            else:
                self._key(tenant, (), "")
                self._salt(tenant, FleetTenant(tenant.name))
                kept.append(tenant)
        if problem := equal_stored_keys(kept):
            if self.given:
                raise Refused(application.described.line, problem)
            # Stored so since before it was refused: the file did not do it, and cannot mend it.
            application.keys.notes.append(f"{deployment.slug}: {problem}")

    def _added(self, each: FleetTenant, headers: Headers) -> Tenant:
        application = self.application
        tenant = Tenant(deployment=self.deployment, name=each.name, valid_from=application.at)
        sealed, secret = self._kept_key(tenant, headers)
        tenant.credential_sealed = sealed
        tenant.credential_set_at = application.at if sealed else None
        tenant.credential_set_by = actor_name(application.actor) if sealed else ""
        tenant.key_env = each.key_env if sealed else ""
        tenant.salt_sealed, _ = self._kept_salt(tenant, each)
        tenant.save()
        application.differs("tenant", each.name, "added", _secret_field("key", secret))
        return tenant

    def _key(self, tenant: Tenant, headers: Headers, variable: str) -> None:
        """``headers`` were read from ``variable`` ("": from headers_env); none keeps what is stored."""
        application = self.application
        sealed, secret = self._kept_key(tenant, headers)
        if secret:
            tenant.credential_sealed = sealed
            tenant.credential_set_at = application.at if sealed else None
            tenant.credential_set_by = actor_name(application.actor) if sealed else ""
            application.differs("tenant", tenant.name, "changed", _secret_field("key", secret))
        if secret or headers:
            tenant.key_env = variable if headers and sealed else ""
            tenant.save(update_fields=KEY_FIELDS)

    def _salt(self, tenant: Tenant, each: FleetTenant) -> None:
        sealed, secret = self._kept_salt(tenant, each)
        if secret:
            tenant.salt_sealed = sealed
            tenant.save(update_fields=["salt_sealed"])
            self.application.differs("tenant", tenant.name, "changed", _secret_field("salt", secret))

    def _kept_key(self, tenant: Tenant, headers: Headers) -> tuple[str, str]:
        return self.application.keys.kept(
            tenant.credential_sealed,
            place_of(tenant, "credential_sealed"),
            headers,
            asked=self.asked,
            named=self.named,
            whose=f"tenant {tenant.name}",
        )

    def _kept_salt(self, tenant: Tenant, each: FleetTenant) -> tuple[str, str]:
        return self.application.keys.kept_salt(
            tenant.salt_sealed,
            place_of(tenant, "salt_sealed"),
            each,
            asked=self.asked,
            named=self.named,
            partial=self.application.partial,
        )


def _secret_field(name: str, secret: str) -> tuple[FieldDifference, ...]:
    return (FieldDifference(name, "", secret),) if secret else ()
