"""A stored key is sent to no origin that whoever gave it did not name, whichever way an address is changed.

Two loopback servers look like engines: the keys are given for ``home``; whatever happens then, no
Authorization arrives at ``away``.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as live

from kvaudit.auditor import runner
from kvaudit.server.fleet import services
from kvaudit.server.fleet.import_file import import_fleet
from kvaudit.server.fleet.models import Deployment, Node, Tenant
from kvaudit.server.fleet.target_loader import load_targets
from tests import factories, servers
from tests.factories import loaded_target

pytestmark = pytest.mark.django_db

KEYS = {
    "NODE_KEY": "node-key-4711",
    "KEY_A": "tenant-key-aaa",
    "KEY_B": "tenant-key-bbb",
    "SALT": "salt-of-a",
}
CHECKS = ("pool", "canary", "session")


@dataclass
class Two:
    """``home`` was named by whoever gave the keys; ``away`` by nobody who has them."""

    home: servers.Server
    away: servers.Server

    def text(self, entry: bool = True, session: bool = False, two_nodes: bool = False) -> str:
        url = self.home.url
        lines = [
            "schema: kvaudit.fleet/1",
            "deployments:",
            "  - slug: glm",
            "    team: serving",
            "    engine: sglang",
            "    model: glm",
            *([f"    entry: {url}"] if entry else []),
            "    nodes:",
            f"      - {{name: n0, url: '{url}', key_env: NODE_KEY}}",
            *([f"      - {{name: n1, url: '{url}/second', key_env: NODE_KEY}}"] if two_nodes else []),
            "    tenants:",
            "      - {name: a, key_env: KEY_A, salt_env: SALT}",
            "      - {name: b, key_env: KEY_B}",
        ]
        if session:
            lines += [
                "    session:",
                f"      url: {url}",
                "      steps:",
                "        claim: {method: POST, path: /s, capture: {id: /id}}",
                "        seed: {method: POST, path: '/s/{{id}}', body: {text: '{{marker}}'}}",
                "        write: {method: POST, path: '/s/{{id}}', body: {text: '{{marker}}'}}",
                "        read: {method: GET, path: '/s/{{id}}'}",
                "        end: {method: DELETE, path: '/s/{{id}}'}",
            ]
        return "\n".join(lines) + "\n"


@pytest.fixture
def two() -> Iterator[Two]:
    info = json.loads(servers.payload("sglang/server_info-single-0.5.22.json"))
    with (
        servers.background(servers.sglang_node(info)) as home,
        servers.background(servers.sglang_node(info)) as away,
    ):
        yield Two(home, away)


def given(text: str) -> Deployment:
    outcome = import_fleet(text, "yaml", "command:fleet", False, environment=KEYS)
    assert outcome.done, outcome.problems
    return Deployment.objects.get(slug="glm")


def from_a_page(text: str, format: Any = "yaml") -> tuple[str, ...]:
    outcome = import_fleet(text, format, "system:operator", False)
    assert outcome.done, outcome.problems
    return outcome.notes


def audited(deployment: Deployment) -> list[Any]:
    """Results of a run as a worker makes it; [] where the keys keep it from being made."""
    targets, unable = load_targets([Deployment.objects.get(pk=deployment.pk)])
    if unable:
        assert "again" in unable[deployment.pk]
        return []
    [target] = targets.values()

    async def run() -> list[Any]:
        budget = runner.Budget(seconds=20)
        return (await runner.results(target, CHECKS, budget=budget))[1]

    return asyncio.run(run())


def keys_at(server: servers.Server) -> list[str]:
    sent = [value for request in server.requests for value in request.headers.values()]
    bodies = [request.body.decode() for request in server.requests]
    return [text for text in sent + bodies if any(key in text for key in KEYS.values())]


def test_keys_arrive_where_they_were_given_for(two: Two) -> None:
    """Without this, the others would pass by silence."""
    audited(given(two.text()))
    arrived = " ".join(keys_at(two.home))
    assert "node-key-4711" in arrived
    assert "tenant-key-aaa" in arrived


def swap(text: str, two: Two, start: str) -> str:
    """``away`` for ``home`` on the lines that begin with ``start``."""
    lines = [
        line.replace(two.home.url, two.away.url) if line.strip().startswith(start) else line
        for line in text.splitlines()
    ]
    return "\n".join(lines) + "\n"


IMPORTS: dict[str, Callable[[Two], tuple[str, str]]] = {
    "the only node's URL, where there is no entry": lambda two: (
        two.text(entry=False),
        swap(two.text(entry=False), two, "- {name: n0"),
    ),
    "the entry": lambda two: (two.text(), swap(two.text(), two, "entry:")),
    "entry and node": lambda two: (two.text(), two.text().replace(two.home.url, two.away.url)),
    "an entry beside the only node": lambda two: (
        two.text(entry=False),
        two.text().replace(f"entry: {two.home.url}", f"entry: {two.away.url}"),
    ),
    "no entry any more, and another node": lambda two: (
        two.text(),
        swap(two.text(entry=False), two, "- {name: n0"),
    ),
    "one of two nodes": lambda two: (
        two.text(two_nodes=True),
        swap(two.text(two_nodes=True), two, "- {name: n1"),
    ),
    "a node renamed to the other's name": lambda two: (
        two.text(two_nodes=True),
        swap(two.text(two_nodes=True), two, "- {name: n0").replace("name: n0", "name: x").replace("n1", "n0"),
    ),
    "several nodes, then one": lambda two: (
        two.text(entry=False, two_nodes=True),
        swap(two.text(entry=False), two, "- {name: n0"),
    ),
    "the session API's": lambda two: (
        two.text(session=True),
        swap(two.text(session=True), two, "url:"),
    ),
    "a session API that was not there": lambda two: (two.text(), swap(two.text(session=True), two, "url:")),
    "user info before the host": lambda two: (
        two.text(),
        two.text().replace(two.home.url, f"{two.away.url}/{two.home.url.removeprefix('http://')}"),
    ),
}


@pytest.mark.parametrize("way", list(IMPORTS))
def test_an_address_changed_by_an_import_of_a_page(two: Two, way: str) -> None:
    first, second = IMPORTS[way](two)
    deployment = given(first)
    notes = from_a_page(second)
    audited(deployment)
    assert keys_at(two.away) == []
    if "renamed" not in way:  # there the row at the new address is a new one, and has no key
        assert any("enter it again" in note for note in notes), notes


def test_an_address_changed_there_and_back(two: Two) -> None:
    """The key is gone in between, whoever restores the address."""
    deployment = given(two.text())
    from_a_page(swap(two.text(), two, "entry:"))
    from_a_page(two.text())
    audited(deployment)
    assert not Tenant.objects.current().exclude(credential_sealed="").exists()


def test_a_tenant_and_a_node_removed_and_listed_again_elsewhere(two: Two) -> None:
    deployment = given(two.text(two_nodes=True))
    lines = [line for line in two.text(two_nodes=True).splitlines() if "name: n0" not in line]
    from_a_page("\n".join(line for line in lines if "name: a" not in line) + "\n")
    assert not Node.objects.exclude(valid_to=None).exclude(headers_sealed="").exists()
    assert not Tenant.objects.exclude(valid_to=None).exclude(credential_sealed="").exists()
    from_a_page(two.text(two_nodes=True).replace(two.home.url, two.away.url))
    audited(deployment)
    assert keys_at(two.away) == []


def test_a_csv_of_a_page(two: Two) -> None:
    deployment = given(two.text(entry=False))
    from_a_page(f"slug,url,name\nglm,{two.away.url},n0\n", "csv")
    audited(deployment)
    assert keys_at(two.away) == []


def test_a_csv_that_does_not_name_the_entry_gives_no_key_to_it(two: Two) -> None:
    """Somebody changed the entry; whoever then imports keys with a CSV sees nothing of it."""
    deployment = given(two.text())
    from_a_page(swap(two.text(), two, "entry:"))
    table = f"slug,url,name,tenants\nglm,{two.home.url},n0,a=KEY_A;b=KEY_B\n"
    outcome = import_fleet(table, "csv", "command:fleet", False, environment=KEYS)
    assert any("does not name" in note for note in outcome.notes)
    audited(deployment)
    assert keys_at(two.away) == []


SQL: dict[str, Callable[[Two, Deployment], object]] = {
    "entry": lambda two, deployment: Deployment.objects.update(entry=two.away.url),
    "no entry and the node": lambda two, deployment: (
        Deployment.objects.update(entry=""),
        Node.objects.update(url=two.away.url),
    ),
    "a node": lambda two, deployment: Node.objects.update(url=two.away.url),
    "session": lambda two, deployment: Deployment.objects.update(
        session={**deployment.session, "url": two.away.url}
    ),
    "a node added in place of the listed one": lambda two, deployment: (
        Deployment.objects.update(entry=""),
        Node.objects.all().delete(),
        factories.a_node(deployment, "router-worker", url=two.away.url),
    ),
    "another deployment's rows": lambda two, deployment: (
        Tenant.objects.update(deployment=factories.a_deployment("evil", entry=two.away.url)),
        Node.objects.update(deployment=Deployment.objects.get(slug="evil"), url=two.away.url),
    ),
}


@pytest.mark.parametrize("way", list(SQL))
def test_an_address_changed_in_the_database(two: Two, way: str) -> None:
    deployment = given(two.text(session=True))
    SQL[way](two, deployment)
    for each in Deployment.objects.all():
        results = audited(each)
        assert not [result for result in results if result.check != "pool" and result.verdict == "pass"]
    assert keys_at(two.away) == []


@pytest.mark.parametrize(
    ("column", "model"),
    [("credential_sealed", Tenant), ("salt_sealed", Tenant), ("headers_sealed", Node)],
)
def test_a_secret_copied_into_another_row_is_not_sent(two: Two, column: str, model: Any) -> None:
    """Not even where that row is asked at the same address: it was given for another deployment."""
    deployment = given(two.text())
    stolen = model.objects.exclude(**{column: ""}).values_list(column, flat=True).first()
    for entry in (two.away.url, two.home.url):
        evil = factories.a_deployment(entry=entry, engine="sglang", model="glm")
        node = factories.a_node(evil, "n0", url=entry)
        tenant = Tenant.objects.create(deployment=evil, name="a")
        services.set_tenant_key(tenant=tenant, key="mine", actor="system:tests")
        row = tenant if model is Tenant else node
        model.objects.filter(pk=row.pk).update(**{column: stolen})
        before = len(two.home.requests)
        audited(evil)
        assert keys_at(two.away) == []
        later = servers.Server("", 0, two.home.requests[before:])
        assert keys_at(later) == []
    assert deployment.slug == "glm"


def test_a_secret_of_the_first_release_put_back_is_not_sent(two: Two) -> None:
    deployment = given(two.text())
    old = Fernet(live.ENCRYPTION_KEYS[0]).encrypt(b'[["Authorization", "Bearer tenant-key-aaa"]]').decode()
    Deployment.objects.update(entry=two.away.url)
    Tenant.objects.update(credential_sealed=old)
    results = {result.check: result for result in audited(deployment)}
    assert results["canary"].verdict == "error"
    assert "Enter it again" in results["canary"].summary
    assert keys_at(two.away) == []


def test_a_redirect_is_not_followed(two: Two) -> None:
    with servers.background(servers.redirecting(f"{two.away.url}/v1/completions", 307)) as crossing:
        given(two.text().replace(f"entry: {two.home.url}", f"entry: {crossing.url}"))
        audited(Deployment.objects.get())
        assert keys_at(crossing), "the entry itself was asked"
    assert two.away.requests == []


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [
        ("http://gw.example", "http://GW.example:80/", True),
        ("http://gw.example/v1", "http://gw.example/v2", True),
        ("https://bücher.example", "https://xn--bcher-kva.example:443", True),
        ("http://gw.example", "https://gw.example", False),
        ("https://gw.example", "http://gw.example", False),
        ("http://gw.example:80", "http://gw.example:8080", False),
        ("http://gw.example", "http://gw.example.evil.example", False),
        ("http://gw.example", "http://gw-example", False),
        ("http://gw.example", "http://evil.example/gw.example", False),
        ("http://gw.example", "http://xn--gw-example.example", False),
        ("http://gw.example", "http://gw\u0435.example", False),  # a Cyrillic letter
        ("http://[::1]:8000", "http://[::2]:8000", False),
        ("http://127.0.0.1", "http://127.0.0.2", False),
    ],
)
def test_spellings_of_one_origin_and_other_origins(first: str, second: str, kept: bool) -> None:
    deployment = factories.a_deployment("d", entry=first)
    factories.a_node(deployment, "n", url="http://10.0.0.1:1")
    tenant = Tenant.objects.create(deployment=deployment, name="a")
    services.set_tenant_key(tenant=tenant, key="k", actor="system:tests")
    Deployment.objects.update(entry=second)
    target = loaded_target(Deployment.objects.get())
    assert bool(target.tenants) is kept
    assert ("enter it again" in target.tenants_problem) is not kept


def test_the_same_holds_for_https_and_a_closed_session_of_a_key(two: Two) -> None:
    """Two accounts of a session API: one key for elsewhere ends the check in error, with the sentence."""
    deployment = given(two.text(session=True))
    SQL["session"](two, deployment)
    results = {result.check: result for result in audited(deployment)}
    for check in ("session", "canary"):
        assert results[check].verdict == "error"
        assert "enter it again" in results[check].summary
    assert results["pool"].verdict != "error", "what asks with the nodes' keys goes on"
