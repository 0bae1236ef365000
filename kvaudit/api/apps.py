from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "kvaudit.api"
    label = "api"
