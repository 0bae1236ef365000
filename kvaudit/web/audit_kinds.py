"""Which checks an "Audit now" may ask for: those that only read, or those that send prompts."""

from __future__ import annotations

from collections.abc import Sequence

from kvaudit import checks
from kvaudit.audits.defaults import Missing, missing_for
from kvaudit.fleet.models import Deployment, Tenant

_KEYS = {"none": 0, "one tenant": 1, "two tenants": 2}


def able_active(deployment: Deployment, missing: Sequence[Missing] | None = None) -> list[str]:
    """Active checks that nothing keeps from running here: keys and consent are there, and they need not
    be asked for by name.

    ``missing`` is what `missing_for` says, where the caller has asked already.
    """
    if not checks.ACTIVE:
        return []
    kept_back = {each.check for each in (missing_for(deployment) if missing is None else missing)}
    keys = Tenant.objects.current().filter(deployment=deployment).exclude(credential_sealed="").count()
    return [
        check
        for check in checks.ACTIVE
        if check not in checks.OPT_IN and check not in kept_back and _KEYS[checks.get(check).needs] <= keys
    ]
