"""Checklists, attestations, waivers and what they come to."""

from django.apps import AppConfig


class ChecklistsConfig(AppConfig):
    name = "kvaudit.checklists"
    label = "checklists"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from kvaudit.checklists import rederived

        rederived.register()
