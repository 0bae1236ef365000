"""Addresses of saved views."""

from django.urls import path

from kvaudit.server.web.saved_views import views as saved_views

urlpatterns = [
    path("views/", saved_views.save, name="saved-view-save"),
    path("views/<uuid:key>/", saved_views.saved, name="saved-view"),
    path("views/<uuid:key>/remove/", saved_views.remove, name="saved-view-remove"),
]
