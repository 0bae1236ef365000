"""Items with their evidence; attesting, asking, deciding, ending: by whom, and what is said to whom else."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from kvaudit.server.checklists.models import Attestation, OwnItem, Waiver
from kvaudit.server.fleet.models import Node
from tests.factories import a_user
from tests.server.checklists.claims import EVERYTHING, a_waiver, an_attestation
from tests.server.web import builders
from tests.server.web.pages import page_text

EVIL = "<script>alert(1)</script>\u202e=1+1"


@pytest.fixture
def approver(people):
    client = Client()
    client.force_login(a_user(team=people.team, role="approver"))
    return client


def day(days):
    return (timezone.now() + timedelta(days=days)).date().isoformat()


def text(client, path):
    answer = client.get(path)
    assert answer.status_code == 200, path
    return page_text(answer)


def test_an_item_shows_what_it_rests_on_and_what_to_do(people, pair):
    run = builders.a_state(pair, {"pool": "fail"})
    page = text(people.viewer, "/d/chat-large/items/1/")
    assert f'href="/runs/{run.pk}/#check-pool"' in page
    assert "Raise the pool above headroom" in page
    assert "Enlarge the pool or lower the context" in page
    assert "OWASP AISVS v1.0-C5.3.1" in page
    page = text(people.operator, "/d/chat-large/items/1/")
    assert "/items/1/attest/" not in page, "a check decides it"
    assert "/items/1/waive/" in page
    assert "never ran" in text(people.viewer, "/d/chat-large/items/4/")
    for odd in ("/d/chat-large/items/99/", "/d/nothing/items/1/"):
        assert people.viewer.get(odd).status_code == 404


@pytest.mark.parametrize(
    ("roles", "conditions", "said"),
    [
        (("unified", "unified"), {}, "not applicable"),
        (("prefill", "decode"), {}, "not exposed"),
        (("prefill", "decode"), {"kv_checksum": True}, ">on<"),
        (("prefill", "decode"), {"kv_checksum": False}, ">off<"),
    ],
)
def test_the_checksum_is_shown_and_never_decides(people, pair, roles, conditions, said):
    for node, role in zip(pair.nodes.order_by("-name"), roles, strict=True):
        Node.objects.filter(pk=node.pk).update(role=role)
        snapshot = node.snapshots.get()
        snapshot.facts = {**snapshot.facts, "conditions": conditions}
        snapshot.save()
    builders.a_state(pair, dict.fromkeys(EVERYTHING, "pass"))
    page = text(people.viewer, "/d/chat-large/items/3/")
    assert said in page
    assert "never required" in page
    assert 'class="headline headline-pass"' in page


def test_from_a_request_to_its_end_by_the_pages(people, pair, approver):
    asked = people.operator.post(
        "/d/chat-large/items/1/waive/", {"reason": EVIL, "until": day(30)}, follow=True
    )
    assert "waits for an approver" in page_text(asked)
    waiver = Waiver.objects.get()
    address = f"/waivers/{waiver.pk}/"
    page = text(people.operator, address)
    assert "Approve" not in page
    assert "second person" in page
    assert people.operator.post(address, {"act": "approve"}).status_code == 403
    assert people.viewer.post(address, {"act": "end", "note": "x"}).status_code == 403
    assert people.stranger.get(address).status_code == 404
    assert people.stranger.post(address, {"act": "approve"}).status_code == 404
    assert approver.post(address, {"act": "nonsense"}).status_code == 400
    assert "already" not in page_text(approver.post(address, {"act": "approve", "note": ""}, follow=True))
    assert "waived" in text(people.viewer, "/compliance/")
    again = page_text(approver.post(address, {"act": "refuse", "note": "x"}))
    assert "already decided" in again
    assert "Say why it ends" in page_text(people.operator.post(address, {"act": "end", "note": ""}))
    people.operator.post(address, {"act": "end", "note": EVIL})
    page = text(people.viewer, address)
    assert "<script>alert" not in page
    assert "U+202E" in page
    assert Waiver.objects.get().state() == "ended"
    assert "<script>alert" not in text(people.viewer, "/waivers/")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"reason": "x", "until": "soon"}, "valid date"),
        ({"reason": "x", "until": "2020-01-01"}, "in the future"),
        ({"reason": "x", "until": "9999-12-31"}, "sensible date"),
        ({"reason": "x", "until": "2199-12-31"}, "90 days"),
        ({"reason": "", "until": day(3)}, "required"),
        ({"reason": "x\x00y", "until": day(3)}, "Null characters"),
    ],
)
def test_a_request_that_cannot_be_says_why(people, pair, given, sentence):
    answer = people.operator.post("/d/chat-large/items/1/waive/", given)
    assert answer.status_code == 422
    assert sentence in page_text(answer)
    assert not Waiver.objects.exists()


def test_a_leak_has_no_button_and_no_form_that_works(people, pair):
    builders.a_state(pair, {"canary": "fail"})
    assert "Ask for a waiver" not in text(people.operator, "/d/chat-large/items/4/")
    answer = people.operator.post("/d/chat-large/items/4/waive/", {"reason": "x", "until": day(3)})
    assert "verified leak" in page_text(answer)


def test_an_attestation_with_a_file_that_only_auditors_read(people, pair):
    upload = SimpleUploadedFile("=cmd\u202e.html", b"<script>alert(1)</script>", content_type="text/html")
    people.operator.post(
        "/d/chat-large/items/D/attest/", {"statement": EVIL, "until": day(30), "link": "", "file": upload}
    )
    made = Attestation.objects.get()
    address = f"/attestations/{made.pk}/"
    page = text(people.viewer, address)
    assert "<script>alert" not in page
    assert "read by auditors" in page
    assert people.viewer.get(f"{address}evidence/").status_code == 403
    assert people.stranger.get(f"{address}evidence/").status_code == 404
    answer = people.auditor.get(f"{address}evidence/")
    assert answer.content == b"<script>alert(1)</script>"
    assert answer["Content-Type"] == "application/octet-stream"
    assert answer["Content-Disposition"].startswith("attachment")
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert "attested" in text(people.viewer, "/d/chat-large/items/D/")
    assert people.viewer.post(address, {"note": "x"}).status_code == 403
    people.operator.post(address, {"note": "The slots moved."})
    assert "The slots moved." in text(people.viewer, address)
    assert not made.__class__.objects.in_force().exists()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"statement": "x", "until": day(3), "link": ""}, "needs evidence"),
        ({"statement": "x", "until": day(3), "link": "javascript:alert(1)"}, "http or https"),
        ({"statement": "x", "until": day(900), "link": "https://example.org"}, "366 days"),
    ],
)
def test_a_statement_that_cannot_be_says_why(people, pair, given, sentence):
    assert sentence in page_text(people.operator.post("/d/chat-large/items/D/attest/", given))
    assert not Attestation.objects.exists()


@pytest.mark.parametrize("act", ["attest", "waive"])
def test_claims_of_a_team_and_who_may_make_them(people, pair, act):
    for where in ("d/chat-large", f"teams/{people.team.slug}"):
        address = f"/{where}/items/D/{act}/"
        assert people.operator.get(address).status_code == 200
        assert people.viewer.get(address).status_code == 403
        assert people.stranger.get(address).status_code == 404
    given = {"statement": "x", "reason": "x", "until": day(3), "link": "https://example.org"}
    people.operator.post(f"/teams/{people.team.slug}/items/D/{act}/", given)
    model = Attestation if act == "attest" else Waiver
    assert (model.objects.get().team, model.objects.get().deployment) == (people.team, None)


def test_own_items_by_the_pages(people, pair):
    address = f"/checklist/{people.team.slug}/new/"
    given = {"key": "K1", "title": EVIL, "rule": EVIL, "checks": ["pool"], "applies_to": ""}
    assert people.viewer.get(address).status_code == 403
    assert people.stranger.get(address).status_code == 404
    assert "shipped checklist" in page_text(people.operator.post(address, {**given, "key": "A"}))
    people.operator.post(address, given)
    item = OwnItem.objects.get()
    assert "<script>alert" not in text(people.viewer, "/checklist/")
    assert "K1" not in text(people.stranger, "/checklist/").replace("for instance K1", "")
    page = text(people.viewer, "/compliance/")
    assert "/d/chat-large/items/K1/" in page
    assert "<script>alert" not in page
    assert text(people.viewer, "/d/chat-large/items/K1/")
    change = f"/checklist/items/{item.series}/"
    assert people.viewer.get(change).status_code == 403
    assert people.stranger.get(change).status_code == 404
    people.operator.post(change, {**given, "key": "IGNORED", "title": "Better"})
    assert OwnItem.objects.current().get().title == "Better"
    assert OwnItem.objects.current().get().key == "K1"
    people.operator.post(f"{change}retire/")
    assert people.viewer.get("/d/chat-large/items/K1/").status_code == 404
    assert people.operator.get(change).status_code == 403


def test_waivers_that_waive_nothing_are_reported(people, pair):
    builders.a_state(pair, dict.fromkeys(EVERYTHING, "pass"))
    a_waiver(pair, "1")
    page = text(people.viewer, "/waivers/")
    assert "waiving nothing" in page
    assert "complies without it" in page
    assert "chat-large" not in text(people.stranger, "/waivers/")


def test_numbers_that_no_row_has_are_not_found(people):
    for path in (
        "/waivers/0/",
        f"/waivers/{2**63}/",
        f"/attestations/{2**70}/",
        f"/attestations/{2**63}/evidence/",
    ):
        assert people.operator.get(path).status_code == 404
    attestation = an_attestation(builders.a_pair("other", team=people.team), "D")
    assert people.auditor.get(f"/attestations/{attestation.pk}/evidence/").status_code == 404
