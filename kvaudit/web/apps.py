from django.apps import AppConfig


class WebConfig(AppConfig):
    name = "kvaudit.web"
    label = "web"
    verbose_name = "Pages"
