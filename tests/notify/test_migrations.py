"""Channels that were told of everything before an event was added are told of it too."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps

from kvaudit.notify.models import Channel
from tests.notify.test_services import a_channel

MIGRATION = import_module("kvaudit.notify.migrations.0003_too_fast")


@pytest.mark.django_db
def test_too_fast_is_for_who_heard_everything() -> None:
    everything = ["fail", "error", "overdue", "expiring"]
    all_of_it, some = a_channel(events=everything), a_channel(events=everything[:3])
    MIGRATION.tell_who_hears_everything(apps, None)
    assert Channel.objects.get(pk=all_of_it.pk).events == [*everything, "too_fast"]
    assert Channel.objects.get(pk=some.pk).events == everything[:3]
    MIGRATION.untell(apps, None)
    assert Channel.objects.get(pk=all_of_it.pk).events == everything
