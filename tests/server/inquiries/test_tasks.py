"""The doors that messages and beat name are there."""

from __future__ import annotations

from django.conf import settings

from kvaudit.celery import app


def test_workers_know_the_tasks_by_the_names_that_are_sent():
    app.loader.import_default_modules()
    assert {"kvaudit.inquiries.tasks.import_log", "kvaudit.inquiries.tasks.recover"} <= set(app.tasks)
    assert "kvaudit.inquiries.tasks.recover" in {e["task"] for e in settings.CELERY_BEAT_SCHEDULE.values()}
