"""Addresses of the library."""

from django.urls import path

from kvaudit.server.web.library import views as library

urlpatterns = [
    path("library/", library.library, name="library"),
    path("library/import/", library.import_incident, name="library-import"),
    path("library/<str:name>/", library.published, name="library-incident"),
    path("library/<str:name>/export/<slug:kind>/", library.export, name="library-export"),
]
