"""A stage for incidents: results, states and changes as the auditor would have left them, with the
incident's own shapes of measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from django.utils import timezone

from kvaudit.auditor.readings import Fingerprint, deployment_digest
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.models import CheckState, Result, Run, StateChange
from kvaudit.server.fleet.models import Deployment, FingerprintChange, NodeSnapshot
from kvaudit.server.incidents import opening
from kvaudit.server.incidents.models import Incident
from tests.factories import a_deployment, a_node, a_team, a_user
from tests.recorded import recorded

LEAKING_LENGTHS = (681_274, 681_275)


def fingerprint_named(version: str) -> dict[str, Any]:
    return Fingerprint({"engine": "sglang", "version": version}, {"pool": 681_280}).as_json()


def a_target(slug: str = "", *, version: str = "0.5.19", team: Any = None) -> Deployment:
    """A deployment with one prefill node that has been read."""
    deployment = a_deployment(slug, team=team or a_team(), engine="sglang", context=1_048_576)
    runs_version(deployment, version)
    return deployment


def runs_version(deployment: Deployment, version: str, *, at: datetime | None = None) -> None:
    """From now on the node says this version: a significant change, when it said another before."""
    at = at or timezone.now()
    node = deployment.nodes.first() or a_node(deployment, "prefill-0", role="prefill")
    before = NodeSnapshot.objects.filter(node=node, current=True).first()
    NodeSnapshot.objects.filter(node=node).update(current=False)
    NodeSnapshot.objects.create(
        node=node,
        first_seen=at,
        last_confirmed=at,
        engine="sglang",
        version=version,
        role="prefill",
        pool=681_280,
        context=1_048_576,
        digest="0" * 16,
        content=version.ljust(64, "0"),
        facts={},
        fingerprint=fingerprint_named(version),
        reference=fingerprint_named(version),
    )
    if before is not None:
        FingerprintChange.objects.create(
            deployment=deployment,
            node=node,
            at=at,
            significant=True,
            summary=f"version {before.version} to {version}",
            diff=[{"name": "version", "before": before.version, "after": version, "significant": True}],
        )


def digest(version: str) -> str:
    return deployment_digest([Fingerprint.from_json(fingerprint_named(version))])


def rejection_measures(
    *, leaking: Sequence[int] = (), answered: Sequence[int] = (), refused: Sequence[int] = ()
) -> dict[str, Any]:
    rows = [{"name": f"L{n}", "tokens": n, "trials": 3, "without_nonce": 3} for n in leaking]
    rows += [{"name": f"A{n}", "tokens": n, "trials": 3, "accepted": 3} for n in answered]
    rows += [{"name": f"R{n}", "tokens": n, "trials": 3, "accepted": 0, "refused": 3} for n in refused]
    return {"rungs": rows}


def a_result(
    deployment: Deployment,
    check: str,
    verdict: str = "pass",
    *,
    at: datetime | None = None,
    severity: str = "",
    measures: Mapping[str, Any] | None = None,
    version: str = "",
    run: Run | None = None,
    **fields: Any,
) -> Result:
    """A finished run of this check on what the node says now (or ``version``), and its result."""
    at = at or timezone.now()
    current = NodeSnapshot.objects.filter(node__deployment=deployment, current=True).first()
    shown = version or (current.version if current else "")
    if run is None:
        run = Run.objects.create(
            deployment=deployment,
            kind="active",
            trigger="manual",
            checks=[check],
            expires_at=at + timedelta(hours=1),
            created_at=at,
            **fields,
        )
    Run.objects.filter(pk=run.pk).update(
        state="finished",
        verdict=verdict,
        attempt=1,
        started_at=at,
        finished_at=at,
        fingerprint=digest(shown) if shown else "",
        seed=run.seed or 7,
    )
    run.refresh_from_db()
    made = Result.objects.create(
        run=run,
        deployment=deployment,
        attempt=1,
        check_id=check,
        verdict=verdict,
        severity=severity or ("critical" if verdict == "fail" else ""),
        summary=f"{check} says {verdict}",
        measures=dict(measures or {}),
        next_step="Stop serving these lengths." if verdict == "fail" else "",
        observed_at=at,
    )
    recorded(run)
    return made


def a_state(result: Result, *, before: str = "") -> StateChange:
    """The state and the change that the result means."""
    CheckState.objects.filter(deployment=result.deployment, check_id=result.check_id, closed_at=None).update(
        closed_at=result.observed_at
    )
    CheckState.objects.create(
        deployment=result.deployment,
        check_id=result.check_id,
        verdict=result.verdict,
        severity=result.severity,
        summary=result.summary,
        since=result.observed_at,
        last_confirmed=result.observed_at,
        expires_at=result.observed_at + timedelta(days=7),
        run=result.run,
        result=result,
    )
    return StateChange.objects.create(
        at=result.observed_at,
        deployment=result.deployment,
        run=result.run,
        what=StateChange.What.VERDICT,
        check_id=result.check_id,
        before=before,
        after=result.verdict,
        summary=result.summary,
        detail={"severity": result.severity, "warn": False},
    )


def a_leak(deployment: Deployment, **more: Any) -> Result:
    """rejection fails critically at the incident's lengths, and the state says so."""
    more.setdefault("measures", rejection_measures(leaking=LEAKING_LENGTHS))
    found = a_result(deployment, "rejection", "fail", **more)
    a_state(found)
    return found


def an_incident(deployment: Deployment | None = None, **more: Any) -> Incident:
    """Opened by the consumer, from a leak."""
    deployment = deployment or a_target()
    a_leak(deployment, **more)
    opening.consume()
    return Incident.objects.lasting().get(deployment=deployment, kind="leak")


def an_operator(deployment: Deployment, role: str = "operator") -> User:
    return a_user(team=deployment.team, role=role)


def the_internal_set(deployment: Deployment, *, but: str = "", **more: Any) -> None:
    """canary, rejection, pool and version pass now."""
    for check in ("canary", "rejection", "pool", "version"):
        if check != but:
            a_state(a_result(deployment, check, **more))
