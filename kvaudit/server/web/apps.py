from django.apps import AppConfig


class WebConfig(AppConfig):
    name = "kvaudit.server.web"
    label = "web"
    verbose_name = "Pages"
