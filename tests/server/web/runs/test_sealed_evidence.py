"""Sealed text on its page: length and digest for everybody who may read evidence, the text for a reason."""

import hashlib

import pytest
from nacl.encoding import URLSafeBase64Encoder
from nacl.public import PrivateKey

from kvaudit.auditor.verdict import Evidence as Seen
from kvaudit.server.audits.evidence import sealed_text
from kvaudit.server.audits.evidence import store as evidence
from kvaudit.server.audits.models import Evidence, Kind, Run, RunEvidence
from kvaudit.server.ledger.models import Entry
from tests.server.audits.builders import a_run
from tests.server.web.pages import page_text

SECRET = "<script>the customer's account number is 4711081599221177</script>"


@pytest.fixture
def path(pair, settings):
    private = PrivateKey.generate()
    settings.SEAL_PUBLIC_KEY = private.public_key.encode(URLSafeBase64Encoder).decode()
    settings.SEAL_PRIVATE_KEY = private.encode(URLSafeBase64Encoder).decode()
    run = a_run(pair, kind=Kind.ACTIVE, checks=["canary"])
    body = sealed_text.sealer()(SECRET.encode())
    name = hashlib.sha256(body).hexdigest()
    evidence.store_evidence(
        [evidence.EvidenceOfRun(run.pk, Seen("sealed", name, "POST /generate", body, "x/y"))]
    )
    return f"/runs/{run.pk}/evidence/{name}/"


def test_it_stays_closed_until_somebody_says_why(people, path):
    shown = people.auditor.get(path)
    assert shown.status_code == 200
    assert Evidence.objects.get().sha256 in page_text(shown)
    assert "Open sealed text" in page_text(shown)
    for closed in (
        shown,
        people.auditor.get(path + "?download=1"),
        people.auditor.post(path, {"reason": "  why   "}),
    ):
        assert "4711081599221177" not in page_text(closed)
    assert people.auditor.post(path, {}).status_code == 422
    assert not Entry.objects.filter(kind="evidence.opened").exists()


def test_the_record_comes_before_the_text_and_nothing_caches_it(people, path):
    opened = people.auditor.post(path, {"reason": "the leak of May"})
    said = page_text(opened)
    assert "account number is 4711081599221177" in said
    assert "<script>the" not in said
    assert opened.headers["Cache-Control"] == "private, no-store"
    entry = Entry.objects.get(kind="evidence.opened")
    assert entry.subject.startswith(f"run:{Run.objects.get().pk} ")
    assert entry.subject.endswith("reason: the leak of May")
    assert "4711081599221177" not in page_text(people.auditor.get(path)), "closed again"


@pytest.mark.parametrize(("who", "status"), [("viewer", 403), ("stranger", 404)])
def test_others_may_not(people, path, who, status):
    client = getattr(people, who)
    assert client.get(path).status_code == status
    assert client.post(path, {"reason": "the leak of May"}).status_code == status
    assert not Entry.objects.filter(kind="evidence.opened").exists()


def test_without_the_key_the_page_says_so(people, path, settings):
    settings.SEAL_PRIVATE_KEY = ""
    answer = people.auditor.post(path, {"reason": "the leak of May"})
    assert answer.status_code == 409
    assert "SEAL_PRIVATE_KEY" in page_text(answer)


@pytest.mark.parametrize(
    ("ended", "said"),
    [
        ("without nonce", "It was to repeat the nonce of its own prompt, and does not hold it."),
        ("cut", "in round 7 (cut).</bdi>"),
    ],
)
def test_it_says_what_was_asked_and_whose_text_it_may_be(people, path, ended, said):
    RunEvidence.objects.update(
        source=f"POST /v1/completions, N+1 (8,187 tokens), tenant <b>, round 7, {ended}"
    )
    closed = page_text(people.auditor.get(path))
    assert "The answer to N+1, a prompt of 8,187 tokens sent as tenant &lt;b&gt; in round 7" in closed
    assert said in closed
    assert "may be a customer’s: treat it so" in page_text(people.auditor.post(path, {"reason": "the leak"}))


def test_without_a_source_that_names_its_request_nothing_is_made_up(people, path):
    assert "The answer to" not in page_text(people.auditor.get(path))
