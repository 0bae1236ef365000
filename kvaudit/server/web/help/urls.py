"""Addresses of help."""

from django.urls import path

from kvaudit.server.web.help import views as help

urlpatterns = [
    path("help/", help.help_page, name="help"),
]
