"""Plans, runs, results, evidence and state."""

from django.apps import AppConfig


class AuditsConfig(AppConfig):
    name = "kvaudit.server.audits"
    label = "audits"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from kvaudit.server.audits.state import record_check

        record_check.register()
