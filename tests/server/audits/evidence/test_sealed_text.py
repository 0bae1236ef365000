"""Generated text: sealed without the key that opens it, opened for somebody who says why."""

import hashlib

import pytest
from django.core.exceptions import PermissionDenied
from nacl.encoding import URLSafeBase64Encoder
from nacl.public import PrivateKey

from kvaudit.auditor.verdict import Evidence as Seen
from kvaudit.server.audits.evidence import sealed_text
from kvaudit.server.audits.evidence import store as evidence
from kvaudit.server.audits.models import Evidence, Kind
from kvaudit.server.ledger.models import Entry
from tests.factories import a_user
from tests.server.audits.builders import a_run, a_target

SECRET = "the customer's account number is 4711081599221177"


@pytest.fixture
def pair(settings):
    private = PrivateKey.generate()
    settings.SEAL_PUBLIC_KEY = private.public_key.encode(URLSafeBase64Encoder).decode()
    settings.SEAL_PRIVATE_KEY = private.encode(URLSafeBase64Encoder).decode()


def stored(run, text=SECRET):
    body = sealed_text.sealer()(text.encode())
    evidence.store_evidence(
        [
            evidence.EvidenceOfRun(
                run.pk, Seen("sealed", hashlib.sha256(body).hexdigest(), "POST /generate", body, "x/y")
            )
        ]
    )
    return Evidence.objects.get()


def test_without_a_public_key_nothing_is_kept(settings):
    settings.SEAL_PUBLIC_KEY = ""
    assert sealed_text.sealer() is None


def test_the_same_text_never_looks_the_same(pair):
    seal = sealed_text.sealer()
    assert seal(SECRET.encode()) != seal(SECRET.encode())
    assert b"4711081599221177" not in seal(SECRET.encode())


@pytest.mark.django_db
class TestOpening:
    def test_is_recorded_with_its_reason(self, pair):
        run = a_run(a_target(), kind=Kind.ACTIVE, checks=["canary"])
        held = stored(run)
        assert b"4711081599221177" not in bytes(held.body)
        reader = a_user(team=run.deployment.team, role="auditor")
        assert sealed_text.open_for(run=run, evidence=held, reason="the leak of May", actor=reader) == SECRET
        entry = Entry.objects.get(kind="evidence.opened")
        assert entry.actor == f"user:{reader.username}"
        assert entry.subject == f"run:{run.pk} evidence:{held.pk} reason: the leak of May"

    def test_is_for_auditors(self, pair):
        run = a_run(a_target(), kind=Kind.ACTIVE, checks=["canary"])
        held = stored(run)
        with pytest.raises(PermissionDenied):
            sealed_text.open_for(
                run=run,
                evidence=held,
                reason="the leak of May",
                actor=a_user(team=run.deployment.team, role="viewer"),
            )
        assert not Entry.objects.filter(kind="evidence.opened").exists()

    @pytest.mark.parametrize(
        ("key", "why"),
        [
            ("", "holds no private key"),
            (PrivateKey.generate().encode(URLSafeBase64Encoder).decode(), "does not fit"),
        ],
        ids=["no key", "another key"],
    )
    def test_says_why_it_cannot(self, pair, settings, key, why):
        run = a_run(a_target(), kind=Kind.ACTIVE, checks=["canary"])
        held = stored(run)
        settings.SEAL_PRIVATE_KEY = key
        with pytest.raises(sealed_text.CannotOpen, match=why):
            sealed_text.open_for(run=run, evidence=held, reason="the leak of May", actor="command:test")
        assert Entry.objects.filter(kind="evidence.opened").count() == 1, "the attempt is known"
