"""However a deployment came to where it is, everything that says how it stands says the same: the roll-up in one
pass and what it is made of, the fleet's headline and row, the deployment's page, the compliance cells, API and gate."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from django.test import Client
from django.utils import timezone
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
from kvaudit.server.checklists.models import Assessed
from kvaudit.server.fleet.models import Deployment, FingerprintChange
from kvaudit.server.incidents import traffic_gate
from kvaudit.server.web.deployment import page
from kvaudit.server.web.fleet import page as fleet
from kvaudit.server.web.fleet.headline import headline
from kvaudit.server.web.fleet.items import item_standings
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
    assert {standing.item.number: standing.verdict for standing in item_standings(status)} == {
        key: cell.verdict for key, cell in cells.items() if key in "12345"
    }, moment
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
    assert [each.slug for each in first.at_risk] == [deployment.slug] * (status.verdict is F)
    assert first.verdict == status.verdict
    assert bool(row.failing) == (status.verdict is F)
    said = page.sentence(status)
    opening = {F: "At risk: ", E: "Not known: ", I: "Not known: ", P: "Nothing was found against it"}
    assert said.startswith(opening[status.verdict])
    assert "no check has concluded anything" not in said or not status.states

    client = Client()
    client.force_login(admin)
    assert f'class="headline headline-{status.verdict}"' in page_text(client.get("/"))
    _, secret = create_token(owner=admin, name="x", scopes=["read", "gate"], actor=admin)
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {secret}"}
    (line,) = client.get("/api/v1/deployments", **bearer).json()
    detail = client.get(f"/api/v1/deployments/{deployment.slug}", **bearer).json()
    assert line["verdict"] == detail["verdict"] == status.verdict
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
