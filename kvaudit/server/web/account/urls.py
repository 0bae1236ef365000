"""Addresses of login, password, zone, and one's own account."""

from django.urls import path

from kvaudit.server.web.account import views

urlpatterns = [
    path("login/", views.login, name="login"),
    path("logout/", views.logout, name="logout"),
    path("password/", views.change_password, name="password-change"),
    path("zone/", views.zone, name="zone"),
    path("settings/account/", views.account, name="settings-account"),
    path("settings/account/sessions/", views.end_sessions, name="settings-sessions-end"),
]
