"""Thin doors for beat. Both may come twice and late: they do what is still to be done."""

from __future__ import annotations

from celery import shared_task

from kvaudit.server.checklists import expiry_warnings, trends


@shared_task(name="kvaudit.checklists.tasks.warn_of_expiry")
def warn_of_expiry() -> None:
    """Hourly: tell of waivers and attestations that end soon."""
    expiry_warnings.warn_of_expiry()


@shared_task(name="kvaudit.checklists.tasks.count_days")
def count_days() -> None:
    """Hourly: count the days that are over for the trend."""
    trends.take()
