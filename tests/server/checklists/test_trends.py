"""Daily counts are exactly what was computed for the end of their day, and can be made again."""

from __future__ import annotations

from datetime import UTC, timedelta
from typing import Any

import pytest
from django.utils import timezone

from kvaudit.server.checklists import tasks, trends
from kvaudit.server.checklists.evaluation import Status
from kvaudit.server.checklists.models import Assessed, DailyCount
from tests.factories import a_deployment
from tests.server.checklists.claims import EVERYTHING, a_waiver, an_attestation
from tests.server.web import builders

pytestmark = pytest.mark.django_db

DAY = timedelta(days=1)


def stored() -> dict[Any, int]:
    rows = DailyCount.objects.values_list("day", "team", "item", "status", "count")
    return {tuple(key): count for *key, count in rows}


def test_counts_equal_as_of_and_are_rebuilt_the_same() -> None:
    now = timezone.now()
    first = a_deployment(created_at=now - 6 * DAY)
    second = a_deployment(created_at=now - 3 * DAY, retired_at=now - 1.5 * DAY)
    builders.a_state(first, dict.fromkeys(EVERYTHING, "pass"), since=now - 4 * DAY)
    a_waiver(first, "1", valid_from=now - 6 * DAY, expires_at=now - 5 * DAY)
    an_attestation(second, "D", valid_from=now - 3 * DAY, expires_at=now + DAY)
    assert trends.take() == 6
    seen = stored()
    expected = {}
    for back in range(1, 7):
        day = (now - back * DAY).astimezone(UTC).date()
        moment = trends.end_of(day)
        matrix = Assessed.objects.existing(moment).standings(moment=moment)
        for (team, item, status), count in matrix.counts().items():
            expected[(day, team, item, status.value)] = count
    assert seen == expected
    assert {key[3] for key in seen} >= {"pass", "inconclusive", "waived", "attested"}
    DailyCount.objects.filter(status="pass").update(count=99)
    DailyCount.objects.filter(status="waived").delete()
    assert trends.rebuild((now - 30 * DAY).date(), (now + 30 * DAY).date()) == 30, "today is not over"
    assert stored() == seen


def test_taking_again_adds_nothing_and_keeps_what_is_there() -> None:
    assert trends.take() == 0
    a_deployment(created_at=timezone.now() - 3 * DAY)
    tasks.count_days()
    before = stored()
    assert before
    assert trends.take() == 0
    assert stored() == before


def test_a_long_past_is_not_counted_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trends, "MOST_DAYS", 5)
    a_deployment(created_at=timezone.now() - 50 * DAY)
    assert trends.take() == 5


def test_what_is_not_applicable_is_counted_as_that() -> None:
    assert Status("not applicable") in {
        Status(value) for value, _ in DailyCount._meta.get_field("status").choices
    }
