"""Addresses of settings."""

from django.urls import path

from kvaudit.server.web.settings import views as settings
from kvaudit.server.web.settings.channels import views as channels
from kvaudit.server.web.settings.keys import views as settings_keys
from kvaudit.server.web.settings.ledger import views as ledger
from kvaudit.server.web.settings.pins import views as pins
from kvaudit.server.web.settings.teams import views as settings_teams
from kvaudit.server.web.settings.tokens import views as settings_tokens
from kvaudit.server.web.settings.users import views as settings_users

urlpatterns = [
    path("settings/", settings.settings, name="settings"),
    path("settings/users/", settings_users.users, name="settings-users"),
    path("settings/users/new/", settings_users.create, name="settings-user-create"),
    path("settings/users/<int:pk>/", settings_users.user, name="settings-user"),
    path("settings/teams/", settings_teams.teams, name="settings-teams"),
    path("settings/teams/<slug:slug>/", settings_teams.team, name="settings-team"),
    path("settings/tokens/", settings_tokens.tokens, name="settings-tokens"),
    path("settings/tokens/<int:pk>/revoke/", settings_tokens.revoke, name="settings-token-revoke"),
    path("settings/keys/", settings_keys.keys, name="settings-keys"),
    path("settings/channels/", channels.channels, name="settings-channels"),
    path("settings/channels/new/", channels.create, name="settings-channel-create"),
    path("settings/channels/<int:pk>/", channels.channel, name="settings-channel"),
    path("settings/channels/<int:pk>/test/", channels.test, name="settings-channel-test"),
    path("settings/channels/<int:pk>/switch/", channels.switch, name="settings-channel-switch"),
    path("settings/channels/<int:pk>/remove/", channels.remove, name="settings-channel-remove"),
    path(
        "settings/channels/<int:pk>/messages/<uuid:key>/", channels.message, name="settings-channel-message"
    ),
    path(
        "settings/channels/<int:pk>/messages/<uuid:key>/again/", channels.again, name="settings-channel-again"
    ),
    path("settings/pins/", pins.pins, name="settings-pins"),
    path("settings/pins/<slug:slug>/", pins.pin, name="settings-pin"),
    path("settings/ledger/", ledger.ledger, name="settings-ledger"),
    path("settings/ledger/state/", ledger.state, name="settings-ledger-state"),
    path("settings/ledger/verify/", ledger.verify, name="settings-ledger-verify"),
    path("settings/ledger/entries/", ledger.export, name="settings-ledger-export"),
]
