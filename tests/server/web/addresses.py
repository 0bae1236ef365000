"""Every address of the web, out of its slices: what tests walk over."""

from __future__ import annotations

from django.urls import URLPattern

from kvaudit.server.web.urls import urlpatterns as _slices

PATTERNS: list[URLPattern] = [pattern for each in _slices for pattern in each.url_patterns]
