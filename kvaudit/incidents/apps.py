"""Incidents and postmortems."""

from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "kvaudit.incidents"
    label = "incidents"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from kvaudit.audits.retention import keep_for
        from kvaudit.incidents import rederived
        from kvaudit.incidents.resting import cited_runs

        keep_for(cited_runs)
        rederived.register()
