"""Checklists, attestations, waivers and what they come to."""

from django.apps import AppConfig


class ChecklistsConfig(AppConfig):
    name = "kvaudit.server.checklists"
    label = "checklists"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from kvaudit.server.checklists import record_check

        record_check.register()
