"""Writes by hand: who may, what is recorded, and that rows are closed instead of edited."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.exceptions import PermissionDenied

from kvaudit.auditor.transport import origin_of
from kvaudit.server.accounts.models import ApiToken
from kvaudit.server.fleet import services
from kvaudit.server.fleet.models import Consent, Deployment, Node, Pause, Pin, Tenant, with_nodes
from kvaudit.server.fleet.sealed_headers import BadHeaders
from kvaudit.server.ledger.models import Entry
from tests import factories

pytestmark = pytest.mark.django_db

ACTS: dict[str, tuple[str, Any]] = {
    "tenant key": (
        "operator",
        lambda d, a: services.set_tenant_key(
            tenant=Tenant.objects.get_or_create(deployment=d, name="t")[0], key="k", actor=a
        ),
    ),
    "node headers": (
        "operator",
        lambda d, a: services.set_node_headers(node=factories.a_node(d), headers=[("X", "y")], actor=a),
    ),
    "pin": (
        "operator",
        lambda d, a: services.set_pin(engine="vllm", specifier=">=0.30", deployment=d, actor=a),
    ),
    "consent": ("approver", lambda d, a: services.give_consent(deployment=d, actor=a)),
    "pause": ("operator", lambda d, a: services.pause_probes(deployment=d, actor=a)),
    "resume": ("operator", lambda d, a: services.resume_probes(deployment=d, actor=a)),
    "withdraw": ("operator", lambda d, a: services.withdraw_consent(deployment=d, actor=a)),
    "retire": ("operator", lambda d, a: services.retire_deployment(deployment=d, actor=a)),
}


@pytest.mark.parametrize("act", ACTS)
def test_owner_member_and_stranger(act: str) -> None:
    least, do = ACTS[act]
    deployment = factories.a_deployment()
    below = {"operator": "auditor", "approver": "operator"}[least]
    for user in (
        factories.a_user(team=deployment.team, role=below),
        factories.a_user(team=factories.a_team(), role="admin"),
        factories.a_user(),
    ):
        with pytest.raises(PermissionDenied):
            do(deployment, user)
    assert not Entry.objects.exclude(kind="role.granted").exists()
    do(deployment, factories.a_user(team=deployment.team, role=least))


def test_a_token_changes_nothing() -> None:
    with pytest.raises(PermissionDenied):
        services.pause_probes(actor=ApiToken(owner=factories.an_admin(), prefix="kva_x"))


@pytest.mark.parametrize(
    "do",
    [
        lambda a: services.pause_probes(actor=a),
        lambda a: services.resume_probes(actor=a),
        lambda a: services.set_pin(engine="vllm", specifier=">=1", actor=a),
    ],
)
def test_the_whole_fleet_needs_a_fleet_wide_role(do: Any) -> None:
    with pytest.raises(PermissionDenied):
        do(factories.a_user(team=factories.a_team(), role="admin"))
    do(factories.a_user(role="operator"))


def test_acts_are_recorded_once_and_without_secrets() -> None:
    deployment = factories.a_deployment("glm-prod")
    actor = "system:tests"
    tenant = Tenant.objects.create(deployment=deployment, name="a")
    services.set_tenant_key(tenant=tenant, key="very-secret", actor=actor)
    services.give_consent(deployment=deployment, actor=actor, reason="staging")
    services.give_consent(deployment=deployment, actor=actor)
    services.withdraw_consent(deployment=deployment, actor=actor)
    services.withdraw_consent(deployment=deployment, actor=actor)
    services.pause_probes(actor=actor)
    services.pause_probes(actor=actor)
    services.retire_deployment(deployment=deployment, actor=actor)
    services.retire_deployment(deployment=deployment, actor=actor)
    entries = list(Entry.objects.values_list("kind", "subject"))
    assert entries == [
        ("tenant.key_set", "deployment:glm-prod tenant a"),
        ("consent.given", "deployment:glm-prod"),
        ("consent.withdrawn", "deployment:glm-prod"),
        ("probes.paused", "fleet"),
        ("deployment.retired", "deployment:glm-prod"),
    ]
    assert (Consent.objects.count(), Pause.objects.count()) == (1, 1)
    assert "very-secret" not in repr(list(Tenant.objects.values()))


def test_a_pin_that_cannot_be_read_is_a_sentence_and_keeps_the_old_one() -> None:
    services.set_pin(engine="sglang", specifier=">=0.5.22", actor="system:tests")
    with pytest.raises(ValueError, match="sglang"):
        services.set_pin(engine="sglang", specifier=">=banana", actor="system:tests")
    assert [str(pin) for pin in Pin.objects.current()] == ["sglang>=0.5.22"]


def test_what_held_at_a_moment_can_be_asked_later() -> None:
    node = factories.a_node(factories.a_deployment(), "n", url="http://127.0.0.1:9/old")
    moment = node.valid_from
    changed = services.set_node_headers(node=node, headers=[("X", "y")], actor="system:tests")
    assert list(Node.objects.at(moment)) == [node]
    assert list(Node.objects.at(changed.valid_from)) == [changed]
    assert list(Node.objects.current()) == [changed]
    assert changed.has_headers and not node.has_headers  # noqa: PT018


@pytest.mark.parametrize(
    "headers",
    [
        [("X Y", "v")],
        [("Host", "evil")],
        [("X", "")],
        [("X", "a\r\nb")],
        [("X", "ä")],
        [("X", "v" * 8001)],
        [("", "v")],
    ],
)
def test_headers_that_cannot_be_sent_are_refused_without_showing_them(headers: Any) -> None:
    node = factories.a_node(factories.a_deployment())
    with pytest.raises(BadHeaders) as refused:
        services.set_node_headers(node=node, headers=headers, actor="system:tests")
    assert not headers[0][1] or headers[0][1] not in str(refused.value)
    assert Node.objects.count() == 1


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("https://a/x", "https://A:443/y", True),
        ("http://a", "http://a:80/", True),
        ("http://a", "https://a", False),
        ("https://a", "https://a.evil", False),
        ("https://a:8443", "https://a", False),
        ("", "https://a", False),
        ("http://BÜCHER.example/", "http://xn--bcher-kva.example:80", True),
        ("http://a:80@b/", "http://a", False),
    ],
)
def test_origins(first: str, second: str, same: bool) -> None:
    assert (origin_of(first) == origin_of(second)) is same


def test_lists_cost_the_same_for_one_and_many(django_assert_num_queries: Any) -> None:
    for _ in range(8):
        factories.a_node(factories.a_deployment())
    with django_assert_num_queries(3):
        for deployment in with_nodes(Deployment.objects.all()):
            assert deployment.team.slug
            assert len(deployment.current_nodes) == 1
            assert deployment.current_tenants == []
    with django_assert_num_queries(2):
        assert all(node.current_snapshots == [] for node in Node.objects.with_snapshot())
