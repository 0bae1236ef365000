"""One method says how items stand: now and at any past moment, for pages, API and exports alike."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st

from kvaudit.audits.models import CheckState
from kvaudit.audits.states import Observation, apply
from kvaudit.checklists.models import Assessed, Attestation, OwnItem, Waiver
from kvaudit.checklists.standing import Matrix, Status
from kvaudit.fleet.models import Deployment
from kvaudit.verdict import Verdict
from tests.factories import a_deployment, a_node, a_team, a_user
from tests.web import scene

pytestmark = pytest.mark.django_db

EVERYTHING = (
    "pool", "version", "drift", "exposure", "rejection", "coherence", "accounting", "canary", "prefix",
    "concurrency", "session",
)  # fmt: skip


def standings(*deployments: Deployment, moment: datetime | None = None) -> Matrix:
    return Assessed.objects.filter(pk__in=[each.pk for each in deployments]).standings(moment=moment)


def statuses(deployment: Deployment, moment: datetime | None = None) -> dict[str, str]:
    return {
        key: cell.status.value for key, cell in standings(deployment, moment=moment).rows[0].cells.items()
    }


def test_nothing_known_is_inconclusive_everywhere() -> None:
    deployment = a_deployment()
    assert set(statuses(deployment).values()) == {"inconclusive"}
    assert standings(deployment).rows[0].status is Status.INCONCLUSIVE


def test_everything_passed_is_a_pass() -> None:
    deployment = a_deployment()
    scene.stands(deployment, dict.fromkeys(EVERYTHING, "pass"))
    assert set(statuses(deployment).values()) == {"pass"}
    assert list(statuses(deployment)) == ["1", "2", "3", "4", "5", "A", "B", "C", "D"]


@pytest.mark.parametrize(
    ("check", "items"),
    [
        ("pool", "1"), ("version", "23"), ("rejection", "24"), ("coherence", "34"), ("accounting", "3"),
        ("canary", "4"), ("drift", "5"), ("prefix", "A"), ("concurrency", "B"), ("exposure", "C"),
        ("session", "D"),
    ],
)  # fmt: skip
def test_each_check_decides_its_items(check: str, items: str) -> None:
    deployment = a_deployment()
    scene.stands(deployment, {**dict.fromkeys(EVERYTHING, "pass"), check: "fail"})
    assert "".join(key for key, status in statuses(deployment).items() if status == "fail") == items


def test_a_single_failing_node_fails_the_item() -> None:
    deployment = a_deployment()
    scene.stands(deployment, dict.fromkeys(EVERYTHING, "pass"))
    whole = CheckState.objects.get(deployment=deployment, check_id="pool")
    CheckState.objects.create(
        **{
            name: getattr(whole, name)
            for name in ("deployment", "check_id", "since", "last_confirmed", "expires_at", "run", "result")
        },
        node=a_node(deployment),
        verdict="fail",
    )
    assert statuses(deployment)["1"] == "fail"
