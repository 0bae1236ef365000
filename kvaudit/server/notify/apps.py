from django.apps import AppConfig


class NotifyConfig(AppConfig):
    name = "kvaudit.server.notify"
    label = "notify"
    default_auto_field = "django.db.models.BigAutoField"
