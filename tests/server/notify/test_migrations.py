"""Channels that were told of everything before an event was added are told of it too."""

from __future__ import annotations

from importlib import import_module

import pytest
from django.apps import apps

from kvaudit.server.notify.models import Channel
from tests.server.notify.test_services import a_channel


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["0003_too_fast", "0004_ledger"])
def test_a_new_event_is_for_who_heard_everything(name: str) -> None:
    migration = import_module(f"kvaudit.server.notify.migrations.{name}")
    everything = migration.EVERYTHING
    all_of_it, some = a_channel(events=everything), a_channel(events=everything[:3])
    migration.tell_who_hears_everything(apps, None)
    assert Channel.objects.get(pk=all_of_it.pk).events == [*everything, name[5:]]
    assert Channel.objects.get(pk=some.pk).events == everything[:3]
    migration.untell(apps, None)
    assert Channel.objects.get(pk=all_of_it.pk).events == everything
