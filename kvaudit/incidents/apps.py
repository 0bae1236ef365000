"""Incidents and postmortems."""

from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "kvaudit.incidents"
    label = "incidents"
    default_auto_field = "django.db.models.BigAutoField"
