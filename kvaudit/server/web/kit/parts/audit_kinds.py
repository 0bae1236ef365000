"""Which checks a person may run now: the passive ones, or the active ones; and which of these were left out."""

from __future__ import annotations

from collections.abc import Sequence

from django.db.models import Q

from kvaudit.auditor import checks
from kvaudit.server.audits.models import Kind, Run, Trigger
from kvaudit.server.audits.schedule.defaults import NIGHTLY, Missing, missing_for
from kvaudit.server.fleet.models import Consent, Deployment, Tenant


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
        if not checks.CHECKS[check].opt_in and check not in kept_back and checks.keys_needed(check) <= keys
    ]


def left_out(run: Run) -> str:
    """A sentence on what an audit with prompts went without because nobody had consented when it was asked for; ""
    where it went without nothing. One query, of such runs alone."""
    wanted = NIGHTLY
    if run.kind != Kind.ACTIVE or run.trigger != Trigger.MANUAL or set(run.checks) & set(wanted):
        return ""
    then = Q(valid_from__lte=run.created_at) & (Q(valid_to=None) | Q(valid_to__gt=run.created_at))
    if not wanted or Consent.objects.filter(then, deployment=run.deployment_id).exists():
        return ""
    return f"{len(wanted)} left out: no consent (give it in the deployment’s Settings): {', '.join(wanted)}."
