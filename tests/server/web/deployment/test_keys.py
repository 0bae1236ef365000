"""Keys go in and never come out."""

from __future__ import annotations

import pytest

from kvaudit.server.accounts.sealed_fields import place_of
from kvaudit.server.fleet.models import Deployment, Node, Tenant
from kvaudit.server.fleet.sealed_headers import open_headers
from kvaudit.server.fleet.services import set_tenant_key
from kvaudit.server.ledger.models import Entry
from tests.server.web.pages import page_text


def opened(row, column):
    return open_headers(getattr(row, column), place_of(row, column), sent_to=())


PATH = "/d/chat-large/keys/"
KEY = "sk-very-secret-1"


def test_a_tenants_key_is_stored_and_never_shown(people, pair):
    tenant = Tenant.objects.create(deployment=pair, name="audit-a")
    answer = people.operator.post(PATH, {"whose": "tenant:audit-a", "key": KEY}, follow=True)
    assert KEY not in page_text(answer)
    tenant.refresh_from_db()
    assert opened(tenant, "credential_sealed") == (("Authorization", f"Bearer {KEY}"),)
    assert KEY not in tenant.credential_sealed
    assert KEY not in "".join(map(str, Entry.objects.values_list()))


def test_a_nodes_key_in_a_header_of_its_own(people, pair):
    people.operator.post(PATH, {"whose": "node:prefill-0", "key": KEY, "header": "x-api-key"})
    node = Node.objects.current().get(name="prefill-0")
    assert opened(node, "headers_sealed") == (("x-api-key", KEY),)
    people.operator.post(PATH, {"whose": "node:prefill-0", "key": "", "remove": "on"})
    assert not Node.objects.current().get(name="prefill-0").has_headers


def test_a_mistake_is_named_without_repeating_the_key(people, pair):
    for form, sentence in (
        ({"whose": "node:prefill-0", "key": ""}, "Enter the key"),
        ({"whose": "node:prefill-0", "key": KEY, "remove": "on"}, "not both"),
        ({"whose": "node:prefill-0", "key": KEY, "header": "Host"}, "header name"),
        ({"whose": "node:nobody", "key": KEY}, "not one of the available choices"),
    ):
        page = page_text(people.operator.post(PATH, form))
        assert sentence in page
        assert KEY not in page
    assert not Node.objects.current().get(name="prefill-0").has_headers


def test_who_may(people, pair):
    assert people.stranger.get(PATH).status_code == 404
    assert people.viewer.get(PATH).status_code == 403
    assert people.viewer.post(PATH, {"whose": "node:prefill-0", "key": KEY}).status_code == 403
    assert people.operator.get(PATH).status_code == 200


def test_a_key_is_for_the_addresses_that_the_page_showed(people, pair):
    """Somebody changes the entry between the page and the answer to it."""
    tenant = Tenant.objects.create(deployment=pair, name="audit-a")
    Deployment.objects.update(entry="http://gateway.example")
    page = people.operator.get(PATH)
    assert "http://gateway.example:80" in page_text(page)
    posted = {"whose": "tenant:audit-a", "key": KEY, "addresses": page.context["addresses"]}
    Deployment.objects.update(entry="http://evil.example")
    answer = page_text(people.operator.post(PATH, posted))
    assert "The addresses changed since this page was shown" in answer
    assert "http://evil.example:80" in answer
    assert KEY not in answer
    tenant.refresh_from_db()
    assert not tenant.has_credential
    posted["addresses"] = people.operator.get(PATH).context["addresses"]
    assert people.operator.post(PATH, posted).status_code == 302


def test_the_page_says_which_key_must_be_entered_again(people, pair):
    tenant = Tenant.objects.create(deployment=pair, name="audit-a")
    Deployment.objects.update(entry="http://gateway.example")
    set_tenant_key(tenant=tenant, key=KEY, actor="system:tests")
    assert "enter it again" not in page_text(people.operator.get(PATH))
    Deployment.objects.update(entry="http://other.example")
    assert "enter it again" in page_text(people.operator.get(PATH))
    Tenant.objects.update(credential_sealed="gAAAAold")
    assert "Enter it again" in page_text(people.operator.get(PATH))


@pytest.mark.parametrize(
    "form", [{"key": KEY}, {"key": f" Bearer {KEY} "}, {"key": KEY, "header": "x-api-key"}]
)
def test_two_tenants_do_not_get_one_key(people, pair, form):
    first = Tenant.objects.create(deployment=pair, name="audit-a")
    second = Tenant.objects.create(deployment=pair, name="audit-b")
    set_tenant_key(tenant=first, key=KEY, actor="system:tests")
    answer = page_text(people.operator.post(PATH, {"whose": "tenant:audit-b", **form}))
    assert "have one and the same key" in answer
    assert KEY not in answer
    second.refresh_from_db()
    assert not second.has_credential
    assert people.operator.post(PATH, {"whose": "tenant:audit-a", **form}).status_code == 302, "its own again"
