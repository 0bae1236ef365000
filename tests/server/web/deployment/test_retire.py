"""A deployment is retired after a question, by operators of its team; what was found stays."""

from __future__ import annotations

from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.accounts.sealing import seal
from kvaudit.server.audits.models import Run
from kvaudit.server.fleet.models import Deployment, Tenant
from kvaudit.server.ledger.models import Entry
from tests.server.web import builders

HERE = "/d/chat-large/"
PATH = f"{HERE}retire/"


def test_it_asks_and_then_ends_audits_and_drops_keys(people, pair):
    builders.a_state(pair, {"pool": "pass"})
    tenant = Tenant.objects.create(deployment=pair, name="audit-a")
    tenant.credential_sealed = seal("k", place_of(tenant, "credential_sealed"), frozenset())
    tenant.save()
    assert f'href="{PATH}"' in people.operator.get(f"{HERE}settings/").content.decode()
    asked = people.operator.get(PATH).content.decode()
    assert "The keys of its tenants and nodes are deleted" in asked
    assert Deployment.objects.get(pk=pair.pk).retired_at is None

    answer = people.operator.post(PATH, follow=True)
    assert answer.redirect_chain == [(HERE, 302)]
    assert "nothing is audited any more" in answer.content.decode()
    assert PATH not in answer.content.decode()
    assert Deployment.objects.get(pk=pair.pk).retired_at is not None
    assert Tenant.objects.get(pk=tenant.pk).credential_sealed == ""
    assert Run.objects.exists()
    entry = Entry.objects.get(kind="deployment.retired")
    assert (entry.actor, entry.subject) == (f"user:{people.operating_user.username}", "deployment:chat-large")
    assert HERE not in people.operator.get("/").content.decode()


def test_what_is_retired_is_not_retired_again(people, pair):
    people.operator.post(PATH)
    for answer in (people.operator.get(PATH), people.operator.post(PATH)):
        assert (answer.status_code, answer.url) == (302, HERE)
    assert Entry.objects.filter(kind="deployment.retired").count() == 1


def test_who_may(people, pair):
    for method in ("get", "post"):
        assert getattr(people.stranger, method)(PATH).status_code == 404
        assert getattr(people.viewer, method)(PATH).status_code == 403
    assert PATH not in people.viewer.get(HERE).content.decode()
    assert Deployment.objects.get(pk=pair.pk).retired_at is None
