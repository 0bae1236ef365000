from django.apps import AppConfig


class ApiConfig(AppConfig):
    name = "kvaudit.server.api"
    label = "api"
