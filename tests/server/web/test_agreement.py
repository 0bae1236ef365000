"""However a deployment came to where it is, everything that says how it stands says the same: the roll-up in one
pass and what it is made of, the fleet's headline and row, the deployment's page, the compliance cells, API and gate."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.test import Client
from django.utils import timezone
from django.utils.html import escape
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from kvaudit.auditor import checks
from kvaudit.auditor.verdict import Verdict, roll_up
from kvaudit.server.accounts.tokens import create_token
from kvaudit.server.audits.models import CheckState, Result
from kvaudit.server.audits.state import intervals as states
from kvaudit.server.audits.state.deployment_status import ALWAYS_REQUIRED, DeploymentStatus
from kvaudit.server.audits.state.status import status_of
from kvaudit.server.audits.state.tiers import Tier, assessment_of, tier_of
from kvaudit.server.checklists.models import Assessed
from kvaudit.server.fleet.models import Deployment, FingerprintChange
from kvaudit.server.incidents import traffic_gate
from kvaudit.server.incidents.assessments import assessment
from kvaudit.server.web.fleet import page as fleet
from kvaudit.server.web.fleet.headline import headline
from kvaudit.server.web.kit import badges
from tests.drawn import cases
from tests.factories import a_deployment, a_node, an_admin
from tests.recorded import recorded
from tests.server.web import builders
from tests.server.web.pages import page_text

OPTIONAL = tuple(check for check in checks.MODULES if check not in ALWAYS_REQUIRED)
EVERY = "every check passes"
CAPACITY = "capacity"

events = st.lists(
    st.tuples(
        st.integers(1, 120),  # hours until the next event
        st.sampled_from([EVERY, EVERY, CAPACITY, *checks.MODULES, *OPTIONAL, *OPTIONAL]),
        st.sampled_from(list(Verdict)),
        st.booleans(),  # critical, or warned
    ),
    max_size=12,
)
F, I, E, P = Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.ERROR, Verdict.PASS  # noqa: E741


class Agreement(TestCase):
    @hypothesis_settings(max_examples=cases(20), deadline=None)
    @given(events, st.sets(st.sampled_from(OPTIONAL), max_size=2), st.booleans())
    @example([(1, EVERY, P, True), (1, "prefix", F, True), (1, "prefix", I, False)], set(), False)
    @example([(1, "prefix", F, False), (1, "prefix", E, False), (1, EVERY, P, True)], set(), False)
    @example([(1, EVERY, P, True), (1, "prefill", F, False), (1, "prefill", E, False)], set(), False)
    @example([(1, EVERY, P, True), (1, "session", F, True), (110, "session", E, False)], {"session"}, False)
    @example([(1, EVERY, P, True), (1, "exposure", F, True), (1, "exposure", I, False)], set(), False)
    @example([(1, EVERY, P, True), (1, "exposure", F, True)], {"exposure"}, False)
    @example(
        [(120, "concurrency", F, True), (120, "concurrency", I, True), (1, EVERY, P, True)], set(), False
    )
    @example([(1, EVERY, P, True)], set(), True)
    def test_everything_says_the_same(
        self, events: list[tuple[int, str, Verdict, bool]], planned: set[str], failing_node: bool
    ) -> None:
        end = timezone.now()
        start = end - timedelta(hours=sum(event[0] for event in events))
        deployment = a_deployment("chat-large", created_at=start)
        node = a_node(deployment, role="unified", valid_from=start)
        run = builders.a_run(deployment, at=start)
        if planned:
            plan = builders.a_plan(deployment, checks=sorted(planned))
            type(plan).objects.filter(pk=plan.pk).update(valid_from=start)
        at, moments = start, []
        for number, (hours, what, verdict, flag) in enumerate(events):
            happen(deployment, node, run, number * 100, at, what, verdict, flag)
            at += timedelta(hours=hours)
            moments.append(at - timedelta(hours=hours) / 2)
        if failing_node and (whole := CheckState.objects.filter(check_id="pool", closed_at=None).first()):
            names = ("deployment", "check_id", "since", "last_confirmed", "expires_at", "run", "result")
            fields = {name: getattr(whole, name) for name in names}
            CheckState.objects.create(**fields, node=node, verdict="fail", severity="high")
        for moment in (*moments, None):
            agree(deployment, planned, moment)
        recorded(run)
        agree_now(deployment)


def happen(
    deployment: Deployment, node: Any, run: Any, number: int, at: datetime, what: str, verdict: Verdict, flag: bool
) -> None:  # fmt: skip
    if what == CAPACITY:
        change = FingerprintChange.objects.create(
            deployment=deployment, node=node, at=at, significant=True, summary="pool"
        )
        states.expire_for([change])
        return
    seen = []
    for each, says in [(check, P) for check in checks.MODULES] if what == EVERY else [(what, verdict)]:
        severity = "critical" if flag and says is F else ""
        result = Result.objects.create(
            run=run, deployment=deployment, attempt=number + len(seen) + 1, check_id=each, verdict=says.value,
            severity=severity, summary=f"{each} says {says.value}.", observed_at=at, warn=flag and says is P,
        )  # fmt: skip
        seen.append(
            states.Observation(
                deployment.pk, each, says, at, run.pk, result.pk, severity=severity, summary=result.summary,
                warn=flag and says is P,
            )
        )  # fmt: skip
    states.apply(seen)


def counted(deployment: Deployment, planned: set[str], moment: datetime) -> tuple[list[Verdict], bool]:
    """The rule, by the letter: what each interval that counts comes to, and whether something required is missing."""
    intervals = list(
        CheckState.objects.filter(deployment=deployment, since__lte=moment).order_by("since", "pk")
    )
    found, missing = [], False
    for check in checks.MODULES:
        mine = [interval for interval in intervals if interval.check_id == check and interval.node_id is None]
        held = [each for each in mine if each.closed_at is None or each.closed_at > moment]
        required = check in ALWAYS_REQUIRED or check in planned
        if not held:
            missing = missing or required
            continue
        (now,) = held
        learnt = [each.verdict for each in mine if each.verdict in ("pass", "fail")]
        if required or (check != "exposure" and learnt and learnt[-1] == "fail"):
            found.append(I if now.expires_at <= moment else Verdict(now.verdict))
    for interval in intervals:
        if interval.node_id is not None and interval.closed_at is None:
            found.append(I if interval.expires_at <= moment else Verdict(interval.verdict))
    return found, missing


def agree(deployment: Deployment, planned: set[str], moment: datetime | None) -> DeploymentStatus:
    """The roll-up, what it is made of, the row's marks and the compliance cells."""
    status = status_of(deployment, moment=moment)
    when = moment or status.moment
    verdicts, missing = counted(deployment, planned, when)
    assert status.verdict == roll_up(verdicts, missing=missing), moment
    looked_at = [now.verdict for now in (*status.checks.values(), *status.nodes) if now.counts]
    assert status.verdict == roll_up(looked_at, missing=bool(status.missing)), moment
    assert bool(status.failing) == (status.verdict is F)
    assert not set(status.missing) & {now.check for now in status.failing}
    assert set(status.unrefuted_checks) <= {name for name, now in status.checks.items() if now.counts}

    cells = Assessed.objects.filter(pk=deployment.pk).standings(moment=moment).rows[0].cells
    said = assessment_of(deployment.slug, status)
    assert said.tier is tier_of(status), moment
    assert (said.tier is Tier.OK) == (status.verdict is P), moment
    assert (said.tier in (Tier.LEAK, Tier.UNSAFE)) == (status.verdict is F), moment
    assert (said.next_step is None) == (said.tier is Tier.OK), moment
    required = {*status.required, *(now.check for now in status.failing)}
    for key, cell in cells.items():
        asked = [check for check in cell.item.checks if check in required]
        if cell.verdict is F and asked == list(cell.item.checks):
            assert status.verdict is F, (key, moment)
        if cell.verdict is not P and asked == list(cell.item.checks):
            assert status.verdict is not P, (key, moment)
        if status.verdict is P and cell.verdict is not P:
            # What nobody requires may be missing or expired, but nothing may speak against it.
            assert key == "C" or not cell.failing, (key, moment)
            assert key == "C" or not cell.leak or "rejection" in cell.item.checks, (key, moment)
    if status.verdict is F:
        in_items = {check for cell in cells.values() for check in cell.item.checks}
        for now in status.failing:
            cell_verdicts = [c.verdict for c in cells.values() if now.check in c.item.checks]
            assert set(cell_verdicts) <= {F}, (now.check, moment)
            assert cell_verdicts or now.check not in in_items
    return status


def agree_now(deployment: Deployment) -> None:
    """What pages, API and gate say, of the same moment."""
    status = status_of(deployment)
    admin = an_admin()
    (row,) = fleet.all_rows(admin)
    assert row.status.verdict == status.verdict
    first = headline([row])
    assert [each.slug for each in first.named] == [deployment.slug] * (status.verdict is F)
    assert first.tier is row.tier
    assert bool(row.failing) == (status.verdict is F)
    said = assessment(deployment, status)
    assert "No check has concluded anything" not in said.reason or not status.states

    client = Client()
    client.force_login(admin)
    shown = f'class="verdict verdict-{badges.KIND_OF_TIER[said.tier]} tier-{said.tier}"'
    for path in ("/", "/compliance/", f"/d/{deployment.slug}/", f"/d/{deployment.slug}/gate/"):
        page = page_text(client.get(path))
        about = page.partition("<tbody>")[2] if path in ("/", "/compliance/") else page
        assert shown in about, path
        assert (path == "/compliance/" and said.tier is Tier.OK) or escape(said.reason) in about, path
    _, secret = create_token(owner=admin, name="x", scopes=["read", "gate"], actor=admin)
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {secret}"}
    (line,) = client.get("/api/v1/deployments", **bearer).json()
    detail = client.get(f"/api/v1/deployments/{deployment.slug}", **bearer).json()
    assert line["verdict"] == detail["verdict"] == status.verdict
    of_compliance = client.get("/api/v1/compliance", **bearer).json()["deployments"][0]
    question = {"schema": "kvaudit.report/1", "verdict": "pass"}
    of_gate = client.post(
        f"/api/v1/deployments/{deployment.slug}/gate", question, content_type="application/json", **bearer
    ).json()
    step = dict(said.next_step._asdict()) if said.next_step else None
    for each in (line, detail, of_compliance, of_gate):
        assert (each["tier"], each["reason"], each["next_step"]) == (said.tier, said.reason, step)
    assert {check["check"]: check["verdict"] for check in detail["checks"]} == {
        name: now.verdict.value for name, now in status.checks.items()
    }
    listed = client.get("/api/v1/compliance", **bearer).json()["deployments"][0]["items"]
    cells = Assessed.objects.filter(pk=deployment.pk).standings().rows[0].cells
    assert {item["item"]: item["checks_say"] for item in listed} == {
        key: cell.verdict for key, cell in cells.items()
    }

    answer = traffic_gate.answer(deployment)
    if any(now.check not in traffic_gate.NOT_ASKED for now in status.failing):
        assert answer.verdict is F
    held_against = [
        now
        for now in (*status.checks.values(), *status.nodes)
        if now.check not in traffic_gate.NOT_ASKED and (now.said is F or now.check in status.unrefuted)
    ]
    if held_against:
        assert answer.verdict is not P
    if answer.verdict is not P:
        assert status.verdict is not P, answer.summary
