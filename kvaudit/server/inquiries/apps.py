"""What people keep: saved views of fleet, compliance and history, and what imported request logs came to."""

from django.apps import AppConfig


class InquiriesConfig(AppConfig):
    name = "kvaudit.server.inquiries"
    label = "inquiries"
    default_auto_field = "django.db.models.BigAutoField"
