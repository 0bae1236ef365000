"""Keys go in and never come out."""

from __future__ import annotations

from kvaudit.accounts.sealed_fields import place_of
from kvaudit.fleet.credentials import open_headers
from kvaudit.fleet.models import Node, Tenant
from kvaudit.ledger.models import Entry


def opened(row, column):
    return open_headers(getattr(row, column), place_of(row, column), sent_to=())


PATH = "/d/chat-large/keys/"
KEY = "sk-very-secret-1"


def test_a_tenants_key_is_stored_and_never_shown(people, pair):
    tenant = Tenant.objects.create(deployment=pair, name="audit-a")
    answer = people.operator.post(PATH, {"whose": "tenant:audit-a", "key": KEY}, follow=True)
    assert KEY not in answer.content.decode()
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
        page = people.operator.post(PATH, form).content.decode()
        assert sentence in page
        assert KEY not in page
    assert not Node.objects.current().get(name="prefill-0").has_headers


def test_who_may(people, pair):
    assert people.stranger.get(PATH).status_code == 404
    assert people.viewer.get(PATH).status_code == 403
    assert people.viewer.post(PATH, {"whose": "node:prefill-0", "key": KEY}).status_code == 403
    assert people.operator.get(PATH).status_code == 200
