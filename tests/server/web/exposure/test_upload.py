"""How much a page takes, and where files go: nothing is spooled before it is allowed."""

from __future__ import annotations

import io
import tempfile

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import resolve

from kvaudit.server.accounts.models import Membership
from kvaudit.server.inquiries.models import LogImport, LogPart
from kvaudit.server.inquiries.request_logs import upload as receiving
from kvaudit.server.web.kit import largest_body
from tests.factories import a_user
from tests.server.web.pages import page_text

IMPORT = "/d/chat-large/exposure/import/"
HEAD = b"time,prompt_tokens,tenant,id\n"
LOG = HEAD + b"2026-09-03T00:00:00Z,700000,acme,r-1\n" * 200_000  # 7 MB


class Body(io.BytesIO):
    """A body that must not be read."""

    def read(self, *args: object) -> bytes:
        raise AssertionError("the body was read")


def sent(client: Client, path: str, length: object) -> object:
    return client.generic(
        "POST", path, b"", content_type="multipart/form-data; boundary=x",
        **{"CONTENT_LENGTH": str(length), "wsgi.input": Body()},
    )  # fmt: skip


@pytest.fixture
def no_temporary_files(monkeypatch):
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a temporary file was made")

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", refuse)
    monkeypatch.setattr("django.core.files.uploadedfile.tempfile.NamedTemporaryFile", refuse)


@pytest.mark.parametrize("path", ["/login/", "/import/", "/library/import/", "/views/"])
def test_a_body_above_the_limit_is_refused_unread(people, path):
    for client in (Client(), people.operator):
        answer = sent(client, path, largest_body.LARGEST + 1)
        assert answer.status_code == 413
        page = page_text(answer)
        assert "That is too large for this page." in page
        assert "16,777,217 bytes" in page
        assert "nothing was changed" in page


def test_a_log_above_its_own_limit_is_refused_unread_with_the_way_to_go(people, pair):
    answer = sent(people.auditor, IMPORT, 2 * 1024**3 + 2 * 1024**2)
    assert answer.status_code == 413
    assert "manage.py request_log" in page_text(answer)


@pytest.mark.parametrize("length", ["", "-1", "many", "\u00b2"])
def test_odd_lengths_are_nobodys_failure(people, length):
    client = people.operator
    client.raise_request_exception = False
    answer = client.generic("POST", "/views/", b"", CONTENT_LENGTH=length)
    assert answer.status_code in (400, 404)


def test_every_other_page_keeps_the_small_limit():
    assert resolve(IMPORT).func.largest_body > largest_body.LARGEST
    assert not hasattr(resolve("/import/").func, "largest_body")


def test_a_log_goes_into_sealed_parts_without_a_temporary_file(people, pair, no_temporary_files):
    upload = SimpleUploadedFile("gateway.csv", LOG)
    answer = people.auditor.post(IMPORT, {"file": upload, "low": "1", "high": "1000000"})
    work = LogImport.objects.get()
    assert answer["Location"] == f"/d/chat-large/exposure/imports/{work.pk}/"
    assert (work.state, work.size, work.name) == ("queued", len(LOG), "gateway.csv")
    assert work.zones[0]["high"] == 1_000_000
    parts = list(LogPart.objects.values_list("sealed", flat=True))
    assert len(parts) == -(-len(LOG) // receiving.PART)
    assert not any("700000,acme" in part for part in parts)


@pytest.mark.parametrize("who", ["viewer", "stranger", "nobody"])
def test_who_may_not_import_sends_in_vain(people, pair, who, no_temporary_files):
    client = Client() if who == "nobody" else getattr(people, who)
    answer = sent(client, IMPORT, 500_000_000)
    assert answer.status_code == {"viewer": 403, "stranger": 404, "nobody": 302}[who]
    assert not LogImport.objects.exists()


def test_a_form_from_elsewhere_leaves_nothing(people, pair):
    client = Client(enforce_csrf_checks=True)
    user = a_user(team=people.team, role="auditor")
    assert Membership.objects.filter(user=user).exists()
    client.force_login(user)
    answer = client.post(IMPORT, {"file": SimpleUploadedFile("gateway.csv", LOG[:3_000_017])})
    assert answer.status_code == 403
    assert b"form had expired" in answer.content
    assert not LogImport.objects.exists()
    assert not LogPart.objects.exists()


def test_what_came_only_in_part_leaves_nothing(people, pair):
    """The connection ended in the middle of the file: no closing boundary."""
    start = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="gateway.csv"\r\n'
        b"Content-Type: text/csv\r\n\r\n"
    )
    body = start + LOG[:2_500_000]
    answer = people.auditor.generic("POST", IMPORT, body, content_type="multipart/form-data; boundary=x")
    assert answer.status_code == 422
    assert "The file did not come whole" in page_text(answer)
    assert not LogImport.objects.exists()
    assert not LogPart.objects.exists()


@pytest.mark.parametrize(
    ("body", "fields", "said"),
    [
        (b"[\n" * 1_500_000, {}, "one JSON list"),
        (LOG, {"from": "soon"}, ""),
        (LOG, {"low": "seven"}, ""),
        (b"", {}, "The file is empty."),
    ],
)
def test_a_refusal_keeps_the_form_and_nothing_else(people, pair, body, fields, said):
    answer = people.auditor.post(IMPORT, {"file": SimpleUploadedFile("a.csv", body), **fields})
    page = page_text(answer)
    assert answer.status_code == 422
    assert "Nothing was imported." in page
    assert said in page
    for value in fields.values():
        assert f'value="{value}"' in page
    assert not LogImport.objects.exists()
    assert not LogPart.objects.exists()


def test_a_second_file_and_files_of_other_fields_are_left_out(people, pair):
    files = [SimpleUploadedFile("a.csv", LOG[:1_000_000]), SimpleUploadedFile("b.csv", b"[" * 10)]
    answer = people.auditor.post(IMPORT, {"file": files, "other": SimpleUploadedFile("c", b"x" * 10)})
    assert answer.status_code == 302
    assert LogImport.objects.get().name == "a.csv"
