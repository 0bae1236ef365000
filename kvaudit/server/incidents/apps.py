"""Incidents and postmortems."""

from django.apps import AppConfig


class IncidentsConfig(AppConfig):
    name = "kvaudit.server.incidents"
    label = "incidents"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from kvaudit.server.audits.evidence.retention import keep_for
        from kvaudit.server.incidents import record_check
        from kvaudit.server.incidents.retention import cited_runs

        keep_for(cited_runs)
        record_check.register()
