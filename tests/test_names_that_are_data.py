"""Names that others hold: files, databases, queues and scripts of an installation that is upgraded. A module may
move and a function may be renamed; none of these may follow it silently. Every value is written out here."""

from __future__ import annotations

import hmac
from importlib.metadata import entry_points

import pytest
from django.apps import apps
from django.conf import settings
from django.db import connection

from kvaudit.auditor.advisories import command as advisories_command
from kvaudit.auditor.fleetfile import schema
from kvaudit.auditor.verdict import REPORT_SCHEMA
from kvaudit.celery import app
from kvaudit.server.accounts import throttle
from kvaudit.server.inquiries.request_logs.importer import keyed
from tests.factories import a_deployment

TASKS = {
    "kvaudit.audits.tasks.dispatch",
    "kvaudit.audits.tasks.execute_active",
    "kvaudit.audits.tasks.execute_passive",
    "kvaudit.audits.tasks.expire_evidence",
    "kvaudit.audits.tasks.recover",
    "kvaudit.checklists.tasks.count_days",
    "kvaudit.checklists.tasks.warn_of_expiry",
    "kvaudit.incidents.tasks.consume",
    "kvaudit.inquiries.tasks.import_log",
    "kvaudit.inquiries.tasks.recover",
    "kvaudit.ledger.tasks.verify",
    "kvaudit.ledger.tasks.verify_when_due",
    "kvaudit.notify.tasks.deliver",
    "kvaudit.notify.tasks.notify_of_ledger",
    "kvaudit.notify.tasks.tell_of_ledger",  # of the release before
}
LABELS = {
    "accounts",
    "api",
    "audits",
    "checklists",
    "fleet",
    "incidents",
    "inquiries",
    "ledger",
    "notify",
    "ops",
    "web",
}


def test_schemas_of_files():
    assert schema.SCHEMA == "kvaudit.fleet/1"
    assert REPORT_SCHEMA == "kvaudit.report/1"
    assert advisories_command.SCHEMA == "kvaudit.advisories/1"


def test_queued_messages_of_the_release_before_find_their_tasks():
    app.loader.import_default_modules()
    assert set(app.tasks) >= TASKS


def test_beat_and_queues():
    app.loader.import_default_modules()
    assert {entry["task"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} <= set(app.tasks)
    assert {entry["options"]["queue"] for entry in settings.CELERY_BEAT_SCHEDULE.values()} == {"maintenance"}
    assert settings.CELERY_TASK_DEFAULT_QUEUE == "passive"


def test_labels_of_apps_and_their_tables():
    ours = [each for each in apps.get_app_configs() if each.name.startswith("kvaudit.")]
    assert {each.label for each in ours} == LABELS
    for config in ours:
        for model in config.get_models():
            if not model._meta.proxy:
                assert model._meta.db_table == f"{config.label}_{model._meta.model_name}"


@pytest.mark.django_db
def test_the_migrations_that_an_installation_has_had_are_there():
    from django.db.migrations.loader import MigrationLoader

    known = set(MigrationLoader(connection).disk_migrations)
    assert known >= {
        ("accounts", "0003_failed_logins"), ("audits", "0008_result_not_passed"), ("checklists", "0001_initial"),
        ("fleet", "0005_where_keys_come_from"), ("incidents", "0002_library"), ("inquiries", "0007_standing"),
        ("ledger", "0004_told"), ("notify", "0004_ledger"),
    }  # fmt: skip


def test_labels_of_keyed_hashes(settings):
    """A tenant's hash in the log of last month and of this month have to be the same."""
    settings.SECRET_KEY = "k" * 50
    assert throttle._key("alice") == ("940fbf8fb3c8b499cfd17578c8963bc0bfe6d4659e455a6f5ae0ef4d154b7896")


@pytest.mark.django_db
def test_a_tenants_hash_in_an_imported_log(settings):
    settings.SECRET_KEY = "k" * 50
    deployment = a_deployment()
    key = hmac.digest(b"k" * 50, b"kvaudit.inquiries.request-log", "sha256")
    expected = hmac.new(key, f"tenant\0{deployment.pk}\0acme".encode(), "sha256").hexdigest()
    assert keyed("tenant", deployment, "acme") == expected


def test_entry_points():
    found = {entry.name for entry in entry_points(group="kvaudit.commands")}
    assert {"lab-story", "ledger", "up"} <= found
    (kvaudit,) = (entry for entry in entry_points(group="console_scripts") if entry.name == "kvaudit")
    assert kvaudit.value == "kvaudit.cli:main"
    assert settings.WSGI_APPLICATION == "kvaudit.wsgi.application"
