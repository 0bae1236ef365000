"""What every page tells the browser."""

from __future__ import annotations

import pytest
from django.test import Client

CSP = (
    "default-src 'none'; script-src 'self'; "
    # plotly's two style elements, by hash: tests/server/web/test_plotly_assets.py computes them
    "style-src 'self' 'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=' "
    "'sha256-ji27qzEtxXZW+7dun6UwjHXJ18e6WAin1VvNtkzIE/o='; "
    "img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/login/", "/no-such-page/", "/api/v1/openapi.json"])
def test_the_policy_is_strict_and_complete(path: str) -> None:
    headers = Client().get(path).headers
    assert sorted(headers["Content-Security-Policy"].split("; ")) == sorted(CSP.split("; "))
    assert headers["X-Frame-Options"] == "DENY"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"


@pytest.mark.django_db
def test_a_host_that_is_not_ours_is_refused() -> None:
    assert Client(headers={"host": "evil.example"}).get("/login/").status_code == 400
