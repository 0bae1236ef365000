"""Somebody is told in good time, once; a waiver that waives nothing is found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kvaudit.server.checklists import tasks
from kvaudit.server.checklists.expiry_warnings import idle_waivers, warn_of_expiry
from kvaudit.server.checklists.models import Assessed, Waiver
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.notify.models import OutboxMessage
from kvaudit.server.notify.services import create_channel
from tests.factories import a_deployment
from tests.server.checklists.claims import EVERYTHING, a_waiver, an_attestation
from tests.server.web import builders

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def test_ends_are_told_once_and_only_when_they_are_near() -> None:
    deployment = a_deployment()
    now = timezone.now()
    create_channel(
        kind="email", name="x", address="a@example.org", actor="system:tests", team=deployment.team
    )
    a_waiver(deployment, "1", expires_at=now + 13 * DAY)
    a_waiver(None, "2", team=deployment.team, expires_at=now + 5 * DAY)
    an_attestation(deployment, "D", expires_at=now + 2 * DAY)
    a_waiver(deployment, "3", expires_at=now + 20 * DAY)
    a_waiver(deployment, "4", expires_at=now + 5 * DAY, decision="pending")
    a_waiver(a_deployment(), "5", expires_at=now + 5 * DAY)
    tasks.warn_of_expiry()
    tasks.warn_of_expiry()
    told = list(OutboxMessage.objects.order_by("subject"))
    assert [message.payload["item"] for message in told] == ["D", "1", "2"]
    assert {message.event for message in told} == {"expiring"}
    assert told[0].payload["url"].startswith("http://testserver/attestations/")
    assert "every deployment of" in told[2].subject
    assert warn_of_expiry() == 0


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        ({}, None),
        ({"verdicts": dict.fromkeys(EVERYTHING, "pass")}, "complies without it"),
        ({"verdicts": {"canary": "fail"}}, "verified leak"),
        ({"retired": True}, "no such deployment"),
        ({"item": "K9"}, "no item K9"),
        ({"narrower": True, "by_team": True}, "narrower"),
    ],
)
def test_waivers_that_waive_nothing_are_named(prepare: Any, why: str | None) -> None:
    deployment = a_deployment()
    if "verdicts" in prepare:
        builders.a_state(deployment, prepare["verdicts"])
    item = prepare.get("item", "4")
    waiver = (
        a_waiver(None, item, team=deployment.team) if prepare.get("by_team") else a_waiver(deployment, item)
    )
    if prepare.get("narrower"):
        a_waiver(deployment, item)
    if prepare.get("retired"):
        Deployment.objects.filter(pk=deployment.pk).update(retired_at=timezone.now())
    matrix = Assessed.objects.existing().standings()
    found = idle_waivers([Waiver.objects.get(pk=waiver.pk)], matrix)
    assert [each.why for each in found if why and why in each.why] == [each.why for each in found]
    assert len(found) == (0 if why is None else 1)
