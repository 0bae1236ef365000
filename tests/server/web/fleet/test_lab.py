"""The lab from the empty page: asked for by who may, where there is one to start."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.test import Client

from tests.factories import a_user
from tests.server.web.pages import page_text

pytestmark = pytest.mark.django_db


@pytest.fixture
def wish(tmp_path: Path, settings) -> Path:
    settings.LAB_WISH_FILE = str(tmp_path / "lab.wish")
    return tmp_path / "lab.wish"


@pytest.fixture
def admin() -> Client:
    client = Client()
    client.force_login(a_user(role="admin"))
    return client


def test_a_click_leaves_the_wish_and_says_what_comes(wish, admin):
    assert "Start the lab" in page_text(admin.get("/"))
    answer = admin.post("/import/lab/", follow=True)
    assert "The lab starts: three deployments" in page_text(answer)
    assert wish.exists()


def test_without_one_to_start_nobody_is_offered_it(admin):
    page = page_text(admin.get("/"))
    assert "Start from the sample" in page
    assert "Start the lab" not in page
    assert admin.post("/import/lab/").status_code == 403


def test_an_operator_of_one_team_may_not(wish, people):
    assert "Start the lab" not in page_text(people.operator.get("/"))
    assert people.operator.post("/import/lab/").status_code == 403
    assert not wish.exists()


def test_a_fleet_that_is_there_offers_none(wish, admin, pair):
    assert "Start the lab" not in page_text(admin.get("/"))


def test_a_folder_that_cannot_be_written_is_a_sentence(settings, tmp_path, admin):
    settings.LAB_WISH_FILE = str(tmp_path / "gone" / "lab.wish")
    assert "The lab cannot be asked for: No such file" in page_text(admin.post("/import/lab/", follow=True))
