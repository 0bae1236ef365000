"""Says what a run of a plan costs, before it is saved: prompt tokens of each deployment, minutes as its audits had."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from django.db.models import F, Sum

from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.checks.serving import Where
from kvaudit.auditor.prober.pricing import Price, prices
from kvaudit.auditor.prober.setup import SIZES
from kvaudit.auditor.readings import EngineFacts, Reading, read, unknown, whole_number
from kvaudit.server.audits.models import Kind, Run, RunState
from kvaudit.server.audits.schedule.plans import PlanSpec, kind_of
from kvaudit.server.fleet.models import Consent, Deployment, NodeSnapshot
from kvaudit.server.ledger.chain import digest_of

MOST_PRICED = 50
"""Deployments of a plan that are priced one by one; of more, the first."""

LATELY = 20
"""Runs with prompts by which a deployment's speed is measured."""


@dataclass(frozen=True, slots=True)
class DeploymentPrice:
    """``speed``: prompt tokens a second that audits had here of late; None where none sent any. ``unread``: no node has
    been read, so that no length is known."""

    slug: str
    checks: Sequence[Price]
    speed: float | None
    unread: bool

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.checks)

    @property
    def minutes(self) -> int | None:
        return None if self.speed is None else max(1, round(self.tokens / self.speed / 60))


@dataclass(frozen=True, slots=True)
class PlanPrice:
    """``key`` names what was priced: who confirms says it again. ``more``: deployments that are not in the list."""

    key: str
    deployments: Sequence[DeploymentPrice]
    more: int

    @property
    def tokens(self) -> int:
        return sum(each.tokens for each in self.deployments)


def price_of(spec: PlanSpec) -> PlanPrice | None:
    """None for a plan that only reads. Four queries."""
    if kind_of(spec.checks[0]) is not Kind.ACTIVE:
        return None
    selected = _selected(spec)
    priced = selected[:MOST_PRICED]
    ids = [each.pk for each in priced]
    nodes: dict[int, list[EngineFacts]] = {pk: [] for pk in ids}
    snapshots = NodeSnapshot.objects.filter(current=True, node__deployment__in=ids, node__valid_to=None)
    for snapshot in snapshots.select_related("node"):
        nodes[snapshot.node.deployment_id].append(_facts(snapshot))
    consenting = set(
        Consent.objects.current().filter(deployment__in=ids).values_list("deployment", flat=True)
    )
    speeds = _speeds(ids)
    return PlanPrice(
        _key(spec, selected),
        [_priced(each, spec, nodes[each.pk], each.pk in consenting, speeds.get(each.pk)) for each in priced],
        len(selected) - len(priced),
    )


def _priced(
    deployment: Deployment, spec: PlanSpec, nodes: list[EngineFacts], consent: bool, speed: float | None
) -> DeploymentPrice:
    rules = Rules(context=deployment.context, edge_limit=deployment.edge_limit)
    found = prices(
        spec.checks, nodes, rules, consent=consent, budget=spec.budget_tokens, where=cast(Where, spec.where)
    )
    return DeploymentPrice(deployment.slug, found, speed, not nodes)


def _selected(spec: PlanSpec) -> list[Deployment]:
    found = {deployment.pk: deployment for deployment in spec.deployments}
    if spec.team is not None or spec.engine:
        rows = Deployment.objects.active()
        rows = rows.filter(team=spec.team) if spec.team is not None else rows
        rows = rows.filter(engine=spec.engine) if spec.engine else rows
        found |= {deployment.pk: deployment for deployment in rows}
    return sorted(found.values(), key=lambda each: each.slug)


def _key(spec: PlanSpec, selected: Iterable[Deployment]) -> str:
    slugs = [each.slug for each in selected]
    return digest_of([sorted(spec.checks), slugs, spec.budget_tokens, spec.where])


def _facts(snapshot: NodeSnapshot) -> EngineFacts:
    """As far as lengths follow from it."""
    stored: Mapping[str, Any] = snapshot.facts if isinstance(snapshot.facts, dict) else {}
    settings = stored.get("settings")
    found: Mapping[str, Any] = settings if isinstance(settings, dict) else {}
    return EngineFacts(
        snapshot.engine,
        context=_reading(snapshot.context),
        pool=_reading(snapshot.pool),
        input_limit=_reading(_value(stored.get("input_limit"))),
        role=read(snapshot.role, "as read") if snapshot.role else unknown("not read"),
        settings={name: _reading(_value(found.get(name))) for name in ("page_size", *SIZES)},
    )


def _value(stored: object) -> int | None:
    return whole_number(stored.get("value")) if isinstance(stored, dict) else None


def _reading(value: int | None) -> Reading[int]:
    return unknown("not read") if value is None else read(value, "as read")


def _speeds(ids: Sequence[int]) -> dict[int, float]:
    """Prompt tokens a second over the runs of the last weeks, pauses and all: what a night really takes."""
    rows = Run.objects.filter(
        deployment__in=ids,
        kind=Kind.ACTIVE,
        state=RunState.FINISHED,
        tokens_spent__gt=0,
        started_at__isnull=False,
    )
    newest = list(rows.order_by("-id").values_list("pk", flat=True)[: LATELY * max(1, len(ids))])
    sums = (
        Run.objects.filter(pk__in=newest)
        .order_by()
        .values_list("deployment")
        .annotate(tokens=Sum("tokens_spent"), took=Sum(F("finished_at") - F("started_at")))
    )
    return {
        pk: tokens / took.total_seconds() for pk, tokens, took in sums if took and took.total_seconds() > 0
    }
