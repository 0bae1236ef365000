"""Addresses of login, password, sessions."""

from django.urls import path

from kvaudit.server.web.account import views as session

urlpatterns = [
    path("login/", session.login, name="login"),
    path("logout/", session.logout, name="logout"),
    path("password/", session.change_password, name="password-change"),
    path("zone/", session.zone, name="zone"),
]
