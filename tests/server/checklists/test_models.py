"""One method says how items stand: now and at any past moment, for pages, API and exports alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.extra.django import TestCase

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import CheckState, Result
from kvaudit.server.audits.state import intervals
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.matrix import Matrix
from kvaudit.server.checklists.models import Assessed, Attestation, OwnItem, Waiver
from kvaudit.server.fleet.models import Deployment, FingerprintChange
from tests.drawn import cases
from tests.factories import a_deployment, a_node, a_team
from tests.server.checklists.claims import EVERYTHING, a_waiver, an_attestation
from tests.server.web import builders

pytestmark = pytest.mark.django_db


def standings(*deployments: Deployment, moment: datetime | None = None) -> Matrix:
    return Assessed.objects.filter(pk__in=[deployment.pk for deployment in deployments]).standings(
        moment=moment
    )


def statuses(deployment: Deployment, moment: datetime | None = None) -> dict[str, str]:
    return {
        key: cell.status.value for key, cell in standings(deployment, moment=moment).rows[0].cells.items()
    }


def test_nothing_known_is_inconclusive_everywhere() -> None:
    deployment = a_deployment()
    assert set(statuses(deployment).values()) == {"inconclusive"}
    row = standings(deployment).rows[0]
    assert row.status is Status.INCONCLUSIVE
    assert row.since == deployment.created_at


def test_everything_passed_is_a_pass() -> None:
    deployment = a_deployment()
    builders.a_state(deployment, dict.fromkeys(EVERYTHING, "pass"))
    assert set(statuses(deployment).values()) == {"pass"}
    assert list(statuses(deployment)) == ["1", "2", "3", "4", "5", "A", "B", "C", "D"]


@pytest.mark.parametrize("expired", [False, True])
@pytest.mark.parametrize(
    ("check", "items"),
    [
        ("pool", "1"), ("version", "23"), ("rejection", "24"), ("coherence", "34"), ("accounting", "3"),
        ("canary", "4"), ("drift", "5"), ("prefix", "A"), ("concurrency", "B"), ("exposure", "C"),
        ("session", "D"),
    ],
)  # fmt: skip
def test_each_check_decides_its_items(check: str, items: str, expired: bool) -> None:
    deployment = a_deployment()
    builders.a_state(deployment, {**dict.fromkeys(EVERYTHING, "pass"), check: "fail"})
    if expired:
        CheckState.objects.filter(check_id=check).update(expires_at=timezone.now())
    wanted = "inconclusive" if expired else "fail"
    assert "".join(key for key, status in statuses(deployment).items() if status == wanted) == items
    assert standings(deployment).rows[0].status == wanted


def test_a_single_failing_node_fails_the_item() -> None:
    deployment = a_deployment()
    builders.a_state(deployment, dict.fromkeys(EVERYTHING, "pass"))
    whole = CheckState.objects.get(deployment=deployment, check_id="pool")
    names = ("deployment", "check_id", "since", "last_confirmed", "expires_at", "run", "result")
    CheckState.objects.create(
        **{name: getattr(whole, name) for name in names}, node=a_node(deployment), verdict="fail"
    )
    assert statuses(deployment)["1"] == "fail"


def test_an_attestation_stands_in_for_missing_checks_of_an_attestable_item_only() -> None:
    deployment = a_deployment()
    an_attestation(deployment, "D")
    an_attestation(deployment, "3")  # of its checksum: shown, never deciding
    assert statuses(deployment) == {**dict.fromkeys("12345ABC", "inconclusive"), "D": "attested"}


@pytest.mark.parametrize("expired", [False, True])
def test_a_statement_does_not_outweigh_a_fail(expired: bool) -> None:
    deployment = a_deployment()
    an_attestation(deployment, "D")
    builders.a_state(deployment, {"session": "fail"}, expired=expired)
    assert statuses(deployment)["D"] == ("inconclusive" if expired else "fail")


@pytest.mark.parametrize(
    ("item", "check", "severity", "waived"),
    [
        ("1", "pool", "critical", True),
        ("2", "version", "critical", True),
        ("2", "rejection", "medium", True),
        ("2", "rejection", "critical", False),
        ("4", "canary", "critical", False),
        ("4", "canary", "", False),
        ("3", "coherence", "critical", False),
        ("3", "accounting", "high", True),
        ("B", "concurrency", "critical", False),
        ("B", "concurrency", "high", True),
        ("D", "session", "critical", False),
        ("D", "session", "high", True),
        ("A", "prefix", "high", True),
    ],
)
@pytest.mark.parametrize("by_team", [False, True])
def test_a_waiver_hides_anything_but_a_leak(
    item: str, check: str, severity: str, waived: bool, by_team: bool
) -> None:
    deployment = a_deployment()
    builders.a_state(deployment, {**dict.fromkeys(EVERYTHING, "pass"), check: "fail"})
    CheckState.objects.filter(check_id=check).update(severity=severity)
    a_waiver(None if by_team else deployment, item, team=deployment.team if by_team else None)
    row = standings(deployment).rows[0]
    assert row.cells[item].status == ("waived" if waived else "fail")
    assert row.cells[item].verdict is Verdict.FAIL, "a view, not a change"
    assert row.cells[item].waiver is not None, "and it is shown that somebody tried"
    # Once expired it is still the last thing that was learnt.
    CheckState.objects.filter(check_id=check).update(expires_at=timezone.now())
    assert statuses(deployment)[item] == ("waived" if waived else "inconclusive")


@pytest.mark.parametrize("then", ["inconclusive", "error"])
@pytest.mark.parametrize(
    ("item", "check", "severity", "claim", "status"),
    [
        ("4", "canary", "critical", "waiver", "as it says"),
        ("3", "accounting", "high", "waiver", "waived"),
        ("D", "session", "high", "attestation", "as it says"),
    ],
)
def test_a_test_that_could_not_be_done_takes_no_fail_back(
    item: str, check: str, severity: str, claim: str, status: str, then: str
) -> None:
    """Otherwise an endpoint that does not answer would turn a leak into something that can be waived."""
    deployment, now = a_deployment(), timezone.now()
    a_claim = an_attestation if claim == "attestation" else a_waiver
    a_claim(deployment, item)
    before = now - timedelta(days=3)
    builders.a_state(deployment, {check: "fail"}, since=before)
    CheckState.objects.update(severity=severity, last_confirmed=before, closed_at=now - timedelta(days=2))
    builders.a_state(deployment, {check: then})
    expected = then if status == "as it says" else status
    assert statuses(deployment)[item] == expected
    assert statuses(deployment, before)[item] == "fail", "before anybody claimed anything"
    CheckState.objects.filter(verdict="fail").update(verdict="pass", severity="")
    assert statuses(deployment)[item] == ("attested" if claim == "attestation" else "waived")


def test_a_waiver_of_what_complies_changes_nothing() -> None:
    deployment = a_deployment()
    builders.a_state(deployment, {"pool": "pass"})
    a_waiver(deployment, "1")
    cell = standings(deployment).rows[0].cells["1"]
    assert (cell.status, cell.waiver is not None) == (Status.PASS, True)


def test_claims_begin_end_and_expire_by_the_clock() -> None:
    deployment = a_deployment()
    start = timezone.now() - timedelta(days=10)
    Deployment.objects.filter(pk=deployment.pk).update(created_at=start - timedelta(days=1))
    day = timedelta(days=1)
    a_waiver(deployment, "1", valid_from=start + 2 * day, expires_at=start + 4 * day)
    an_attestation(deployment, "D", valid_from=start + 2 * day, expires_at=start + 9 * day,
                   valid_to=start + 4 * day)  # fmt: skip
    instant = timedelta(microseconds=1)
    for moment, holds in (
        (start + 2 * day - instant, False),
        (start + 2 * day, True),
        (start + 4 * day - instant, True),
        (start + 4 * day, False),
    ):
        found = statuses(deployment, moment)
        assert found["1"] == ("waived" if holds else "inconclusive")
        assert found["D"] == ("attested" if holds else "inconclusive")


def test_a_request_waives_nothing() -> None:
    deployment = a_deployment()
    a_waiver(deployment, "1", decision="pending")
    assert statuses(deployment)["1"] == "inconclusive"


def an_item(team: Any, key: str = "K1", **fields: Any) -> OwnItem:
    return OwnItem.objects.create(team=team, key=key, title="Ours", rule="As we say.", **fields)


def test_a_teams_own_items_are_for_its_deployments_alone() -> None:
    ours, theirs = a_deployment(), a_deployment()
    an_item(ours.team, checks=["pool"])
    matrix = standings(ours, theirs)
    assert [("K1" in row.cells) for row in matrix.rows] == [True, False]
    assert [item.key for item in matrix.items][-1] == "K1"
    builders.a_state(ours, {"pool": "pass"})
    assert statuses(ours)["K1"] == "pass"


@pytest.mark.parametrize(
    ("roles", "read", "expected"),
    [
        (("unified",), "", "not applicable"),
        (("prefill", "decode"), "", "inconclusive"),
        (("", ""), "", "inconclusive"),  # unknown never clears
        (("unified", ""), "", "inconclusive"),
        (("",), "unified", "not applicable"),
        (("",), "decode", "inconclusive"),
        ((), "", "inconclusive"),
    ],
)
def test_what_is_for_one_mode_of_serving_is_not_applicable_to_the_other(
    roles: tuple[str, ...], read: str, expected: str
) -> None:
    deployment = a_deployment()
    an_item(deployment.team, checks=["pool"], applies_to="disaggregated")
    for role in roles:
        node = a_node(deployment, role=role)
        if read:
            builders.a_snapshot(node)
            node.snapshots.update(role=read)
    assert statuses(deployment)["K1"] == expected
    assert statuses(deployment, timezone.now())["K1"] == expected


def test_items_are_judged_by_the_version_of_their_time() -> None:
    deployment = a_deployment()
    now = timezone.now()
    Deployment.objects.update(created_at=now - timedelta(days=5))
    builders.a_state(deployment, {"pool": "pass"})
    first = an_item(deployment.team, checks=["pool"], valid_from=now - timedelta(days=3))
    first.valid_to = now - timedelta(days=1)
    first.save()
    an_item(deployment.team, checks=["canary"], valid_from=now - timedelta(days=1), series=first.series)
    assert "K1" not in statuses(deployment, now - timedelta(days=4))
    assert statuses(deployment, now - timedelta(hours=30))["K1"] == "pass"
    assert statuses(deployment)["K1"] == "inconclusive"


def test_who_existed_is_asked_of_the_moment_too() -> None:
    now = timezone.now()
    ids = []
    for created, retired in ((9, None), (9, 3), (1, None)):
        deployment = a_deployment(
            retired_at=None if retired is None else now - timedelta(days=retired),
            created_at=now - timedelta(days=created),
        )
        ids.append(deployment.pk)
    seen = Assessed.objects.filter(pk__in=ids)
    assert list(seen.existing().values_list("pk", flat=True).order_by("pk")) == [ids[0], ids[2]]
    past = seen.existing(now - timedelta(days=5))
    assert list(past.values_list("pk", flat=True).order_by("pk")) == [ids[0], ids[1]]
    both = seen.order_by("pk").standings_between(now - timedelta(days=5), now)
    assert [[row.deployment.pk for row in each.rows] for each in both] == [ids[:2], [ids[0], ids[2]]]


@pytest.mark.parametrize("moment", [None, timedelta(days=1)])
def test_queries_do_not_grow_with_the_fleet(moment: timedelta | None) -> None:
    team = a_team()
    an_item(team, applies_to="unified", valid_from=timezone.now() - timedelta(days=9))

    def asked(count: int) -> int:
        builders.a_fleet(team, count) if count else None
        when = None if moment is None else timezone.now() - moment
        with CaptureQueriesContext(
            connection,
        ) as queries:
            Assessed.objects.standings(moment=when)
        return len(queries)

    few = asked(1)
    Deployment.objects.filter(slug__startswith="chat-").update(slug="first")
    assert asked(8) == few == 8


class Story(TestCase):
    """Whatever happens in whatever order, a past moment is computed later as it was computed then."""

    MONDAY = datetime(2026, 6, 1, tzinfo=UTC)

    @hypothesis_settings(max_examples=cases(15), deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.integers(1, 120),  # hours since the event before
                st.sampled_from(["pool", "canary", "session", "attest", "waive", "end", "capacity", "item"]),
                st.sampled_from(list(Verdict)),
                st.booleans(),
            ),
            min_size=1,
            max_size=14,
        )
    )
    def test_as_of_a_moment_is_what_was_shown_then(self, events: list[Any]) -> None:
        deployment = a_deployment(created_at=self.MONDAY)
        node = a_node(deployment, role="unified", valid_from=self.MONDAY)
        run = builders.a_run(deployment, at=self.MONDAY)
        now, shown = self.MONDAY, []
        for number, (hours, what, verdict, flag) in enumerate(events):
            # Looked at halfway, just before, and at the very instant of what happens next.
            for moment in (now + timedelta(hours=hours) / 2, now + timedelta(hours=hours, microseconds=-1)):
                shown.append((moment, self.look(moment)))
            now += timedelta(hours=hours)
            self.happen(deployment, node, run, number, now, what, verdict, flag)
            shown.append((now, self.look(now)))
        for moment, seen in shown:
            with mock.patch("kvaudit.server.clock.now", return_value=now + timedelta(days=400)):
                assert self.plain(Assessed.objects.existing(moment).standings(moment=moment)) == seen, moment
        for (earlier, first), (later, second) in zip(shown, shown[2:], strict=False):
            both = Assessed.objects.standings_between(earlier, later)
            assert [self.plain(each) for each in both] == [first, second], (earlier, later)
        with mock.patch("kvaudit.server.clock.now", return_value=now):
            assert self.plain(Assessed.objects.existing(now).standings(moment=now)) == self.plain(
                Assessed.objects.existing().standings()
            )

    def look(self, moment: datetime) -> Any:
        with mock.patch("kvaudit.server.clock.now", return_value=moment):
            return self.plain(Assessed.objects.existing().standings())

    def plain(self, matrix: Matrix) -> Any:
        """Without the end of a pass by checks: later confirmations move that, and are meant to."""
        for row in matrix.rows:  # what is counted at once is what each cell comes to
            assert row.statuses == {key: cell.status for key, cell in row.cells.items()}
        return [
            (
                row.deployment.pk,
                row.status,
                row.since,
                key,
                cell.status,
                cell.since,
                cell.reason,
                None if cell.status is Status.PASS else cell.until,
            )
            for row in matrix.rows
            for key, cell in row.cells.items()
        ]

    def happen(self, deployment, node, run, number, now, what, verdict, flag) -> None:  # type: ignore[no-untyped-def]
        if what in ("pool", "canary", "session"):
            result = Result.objects.create(
                run=run, deployment=deployment, attempt=number + 1, check_id=what, verdict=verdict.value,
                summary="", observed_at=now,
            )  # fmt: skip
            severity = "critical" if flag and verdict is Verdict.FAIL else ""
            intervals.apply(
                [
                    intervals.Observation(
                        deployment.pk, what, verdict, now, run.pk, result.pk, severity=severity
                    )
                ]
            )
        elif what == "capacity":
            change = FingerprintChange.objects.create(
                deployment=deployment, node=node, at=now, significant=True, summary="moved"
            )
            intervals.expire_for([change])
        elif what == "item":
            OwnItem.objects.current().update(valid_to=now)
            if flag:
                an_item(
                    deployment.team, checks=["pool"], valid_from=now,
                    applies_to="disaggregated" if verdict is Verdict.PASS else "",
                )  # fmt: skip
        elif what == "end":
            Waiver.objects.filter(valid_to=None).update(valid_to=now)
            Attestation.objects.filter(valid_to=None).update(valid_to=now)
        else:
            place = {"deployment": None, "team": deployment.team} if flag else {"deployment": deployment}
            item = {"attest": "D", "waive": "1" if verdict is Verdict.PASS else "4"}[what]
            make = an_attestation if what == "attest" else a_waiver
            held = (Attestation if what == "attest" else Waiver).objects.filter(valid_to=None, item=item)
            held.update(valid_to=now)
            make(item=item, valid_from=now, expires_at=now + timedelta(days=3), **place)
