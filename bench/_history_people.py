"""What people did in the fleet of `_history_rows`: claims, incidents, imported logs, saved views, and a year of
daily counts. The same at every stage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

WAIVERS = ATTESTATIONS = 100
INCIDENTS, LASTING = 60, 5
IMPORTS = 20
CHANGES = 6  # of capacity or version, to each deployment in the four hundred days

ADMINISTRATOR = "admin"


def furnish() -> None:
    """Once to each database."""
    from kvaudit.server.accounts.models import User
    from kvaudit.server.checklists.models import Waiver
    from kvaudit.server.fleet.models import Deployment, Pin
    from kvaudit.server.inquiries.models import Export

    now = datetime.now(UTC)
    deployments = list(Deployment.objects.order_by("pk").select_related("team"))
    admin = User.objects.get(username=ADMINISTRATOR)
    if not Pin.objects.exists():
        _policies(deployments, now)
    if not Export.objects.exists():
        Export.objects.create(user=admin, kind="csv", state="finished", rows=1_000_000, ended_at=now)
    if Waiver.objects.exists():
        return
    _claims(deployments, admin, now)
    _incidents(deployments, admin, now)
    _imports(deployments, admin, now)
    _views(admin)
    _daily_counts(now)
    _changes(deployments, now)


def _policies(deployments: list, now: datetime) -> None:
    """Pins, channels, and what the channels were told."""
    from kvaudit.server.fleet.models import Pin
    from kvaudit.server.notify.models import Channel, OutboxMessage

    for deployment in (None, *deployments[::25]):
        Pin.objects.create(
            deployment=deployment, engine="sglang", specifier=">=0.5.22", set_by=f"user:{ADMINISTRATOR}"
        )
    for number in range(20):
        channel = Channel.objects.create(
            name=f"on call {number}",
            kind="email",
            team=deployments[number].team,
            address_shown="a@example.org",
        )
        OutboxMessage.objects.bulk_create(
            OutboxMessage(
                channel=channel,
                event="fail",
                subject="chat-000: pool failed",
                payload={"summary": "Prompts are accepted that do not fit."},
                state="sent",
                sent_at=now,
                created_at=now - timedelta(hours=hours),
            )
            for hours in range(500)
        )


def _claims(deployments: list, admin: object, now: datetime) -> None:
    from kvaudit.server.checklists.models import Attestation, OwnItem
    from tests.factories import a_user
    from tests.server.checklists.claims import a_waiver, an_attestation
    from tests.server.web import builders

    other = a_user("approver")
    body = builders.keep(deployments[0].runs.latest("pk"), b'{"max_total_num_tokens": 2040000}')
    for number in range(WAIVERS):
        a_waiver(
            deployments[number * 5],
            requester=admin,
            decided_by=other if number % 10 else None,
            decided_at=now if number % 10 else None,
            decision="approved" if number % 10 else "pending",
            valid_from=now - timedelta(days=20 + number),
            expires_at=now + timedelta(days=1 + number),
        )
    for number in range(ATTESTATIONS):
        an_attestation(
            deployments[number * 5 + 1],
            author=admin,
            valid_from=now - timedelta(days=20 + number),
            expires_at=now + timedelta(days=1 + number),
        )
    Attestation.objects.update(evidence_id=body["sha256"], evidence_name="slots.json")
    for number, team in enumerate(
        {deployment.team_id: deployment.team for deployment in deployments}.values()
    ):
        if number < 4:
            OwnItem.objects.create(
                team=team, key=f"K{number}", title="Ours", rule="As we say.", checks=["pool"]
            )


def _incidents(deployments: list, admin: object, now: datetime) -> None:
    from kvaudit.server.incidents import postmortem
    from kvaudit.server.incidents.models import Incident

    for number in range(INCIDENTS):
        opened = now - timedelta(days=6 * (INCIDENTS - number))
        incident = Incident.objects.create(
            deployment=deployments[number * 7],
            kind="leak",
            title="rejection: prompts of 681,274 tokens were answered out of another tenant's pages",
            severity="critical",
            opened_at=opened,
            opened_by=f"user:{ADMINISTRATOR}",
            affected_from=681_274,
            affected_to=1_048_570,
            first_evidence_at=opened,
            last_evidence_at=opened,
            window_from=opened - timedelta(days=2),
            window_to=opened,
            window_check="rejection",
            summary="What was seen, and what it means for tenants.\n\n" * 5,
        )
        for step in range(10):
            postmortem.put_event(
                incident=incident,
                actor=admin,
                at=opened + timedelta(hours=step),
                text="The router was told to refuse long prompts.",
            )
        postmortem.add_cause(incident=incident, actor=admin, text="The pool was smaller than the context.")
        postmortem.put_impact(
            incident=incident, actor=admin, measure="other", certainty="unknown", statement="Not known."
        )
        if number < INCIDENTS - LASTING:
            over = opened + timedelta(days=2)
            Incident.objects.filter(pk=incident.pk).update(
                state="closed", mitigated_at=over, restored_at=over, closed_at=over
            )


def _imports(deployments: list, admin: object, now: datetime) -> None:
    from kvaudit.server.inquiries.models import LogImport, RequestHit, RequestLog, TenantCount

    for deployment in deployments[:IMPORTS]:
        since = now - timedelta(days=1)
        log = RequestLog.objects.create(
            deployment=deployment, name="requests.csv", sha256="0" * 64, size=80_000_000, imported_by=admin,
            since=since, until=now, zones=[], lines=1_000_000, requests=1_000_000, in_window=1_000_000, inside=5_000,
        )  # fmt: skip
        LogImport.objects.create(
            deployment=deployment, name=log.name, size=log.size, since=since, until=now, requested_by=admin,
            state="finished", finished_at=now, rows_read=1_000_000, bytes_read=log.size, log=log,
        )  # fmt: skip
        TenantCount.objects.bulk_create(
            TenantCount(log=log, tenant=f"{number:064x}", requests=5_000, inside=25) for number in range(200)
        )
        RequestHit.objects.bulk_create(
            RequestHit(log=log, line=number, at=now, tokens=700_000, tenant=f"{number % 200:064x}")
            for number in range(5_000)
        )


def _views(admin: object) -> None:
    from kvaudit.server.inquiries.models import SavedView

    for page, query in (
        ("history", "verdict=fail"),
        ("fleet", "verdict=fail"),
        ("compliance", "status=fail"),
    ):
        SavedView.objects.bulk_create(
            SavedView(user=admin, page=page, name=f"view {number}", query=query) for number in range(20)
        )


def _daily_counts(now: datetime) -> None:
    """As the nightly count would have left them, without computing four hundred nights."""
    from kvaudit.server.accounts.models import Team
    from kvaudit.server.checklists.items import shipped
    from kvaudit.server.checklists.models import DailyCount

    teams = list(Team.objects.values_list("pk", flat=True))
    DailyCount.objects.bulk_create(
        (
            DailyCount(
                day=now.date() - timedelta(days=back), team_id=team, item=item.key, status=status, count=count
            )
            for back in range(1, 401)
            for team in teams
            for item in shipped().items
            for status, count in (("pass", 22), ("fail", 3))
        ),
        batch_size=10_000,
    )


def _changes(deployments: list, now: datetime) -> None:
    from kvaudit.server.fleet.models import FingerprintChange, Node

    first = {
        deployment: (pk, name)
        for deployment, pk, name in Node.objects.order_by("-pk").values_list("deployment_id", "pk", "name")
    }
    FingerprintChange.objects.bulk_create(
        FingerprintChange(
            deployment=deployment,
            node_id=first[deployment.pk][0],
            at=now - timedelta(days=65 * number + 3),
            significant=number % 2 == 0,
            summary=f"{first[deployment.pk][1]}: pool moved",
            before={},
            after={},
            diff=[{"name": "pool", "before": 2_040_000, "after": 2_038_000, "significant": number % 2 == 0}],
        )
        for deployment in deployments
        for number in range(CHANGES)
    )
