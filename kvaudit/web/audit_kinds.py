"""Which checks an "Audit now" may ask for: those that only read, or those that send prompts."""

from __future__ import annotations

from kvaudit import checks
from kvaudit.audits.defaults import missing_for
from kvaudit.fleet.models import Deployment, Tenant

_KEYS = {"none": 0, "one tenant": 1, "two tenants": 2}


def able_active(deployment: Deployment) -> list[str]:
    """Active checks that nothing keeps from running here: keys and consent are there."""
    if not checks.ACTIVE:
        return []
    kept_back = {each.check for each in missing_for(deployment)}
    keys = Tenant.objects.current().filter(deployment=deployment).exclude(credential_sealed="").count()
    return [
        check for check in checks.ACTIVE if check not in kept_back and _KEYS[checks.get(check).needs] <= keys
    ]
