"""Rows become a target: pins in their order of precedence, keys opened here alone."""

from __future__ import annotations

from typing import Any

import pytest

from kvaudit.server.accounts.sealing import SealBroken
from kvaudit.server.fleet import services
from kvaudit.server.fleet.models import Deployment, Node, Tenant
from kvaudit.server.fleet.target_loader import load_targets, probes_paused, rules_of
from tests import factories
from tests.factories import loaded_target

pytestmark = pytest.mark.django_db


@pytest.fixture
def deployment(db: None) -> Deployment:
    return factories.a_deployment(
        "glm-prod", engine="sglang", conditions={"pd": True}, components={"lmcache": "0.4.1"}, edge_limit=5
    )


def test_a_deployments_pin_wins_over_the_fleets_and_that_over_the_shipped_one(deployment: Deployment) -> None:
    assert rules_of(deployment).pins == ("sglang>=0.5.22",)
    services.set_pin(engine="sglang", specifier=">=0.5.23", actor="system:tests")
    services.set_pin(engine="vllm", specifier=">=0.31", actor="system:tests")
    assert rules_of(deployment).pins == ("sglang>=0.5.23", "vllm>=0.31")
    services.set_pin(engine="sglang", specifier=">=0.5.24", actor="system:tests", deployment=deployment)
    assert rules_of(deployment).pins == ("sglang>=0.5.24", "vllm>=0.31")
    assert rules_of(factories.a_deployment()).pins == ("sglang>=0.5.23", "vllm>=0.31")
    assert loaded_target(deployment).rules == rules_of(deployment)
    services.set_pin(engine="sglang", specifier="", actor="system:tests", deployment=deployment)
    assert rules_of(deployment).pins == ("sglang>=0.5.23", "vllm>=0.31")


def test_declared_limits_and_conditions_travel(deployment: Deployment) -> None:
    rules = loaded_target(deployment).rules
    assert (rules.edge_limit, rules.headroom, rules.conditions) == (5, 1.25, {"pd": True})
    assert rules.components == {"lmcache": "0.4.1"}


def test_a_component_stored_under_its_packages_name_is_matched_all_the_same(deployment: Deployment) -> None:
    Deployment.objects.update(components={"mooncake-transfer-engine": "0.3.10", "nobody": "1"})
    components = loaded_target(Deployment.objects.get()).rules.components
    assert components == {"mooncake": "0.3.10", "nobody": "1"}


def test_a_node_takes_the_deployments_engine_unless_it_has_its_own(deployment: Deployment) -> None:
    factories.a_node(deployment, "a")
    factories.a_node(deployment, "b", engine="generic", pointers={"capacity": "/pool/size"})
    nodes = loaded_target(deployment).nodes
    assert [(node.name, node.engine, node.pointers) for node in nodes] == [
        ("a", "sglang", ()),
        ("b", "generic", (("capacity", "/pool/size"),)),
    ]


def test_tenants_without_a_key_are_left_out(deployment: Deployment) -> None:
    with_key, without = (Tenant.objects.create(deployment=deployment, name=name) for name in ("a", "b"))
    services.set_tenant_key(tenant=with_key, key=" secret-of-a ", actor="system:tests")
    services.set_tenant_key(tenant=without, key="x", actor="system:tests")
    services.set_tenant_key(tenant=without, key="", actor="system:tests")
    [tenant] = loaded_target(deployment).tenants
    assert tenant.credentials.headers == (("Authorization", "Bearer secret-of-a"),)
    services.set_tenant_key(tenant=with_key, key="raw", header="X-API-Key", actor="system:tests")
    assert loaded_target(deployment).tenants[0].credentials.headers == (("X-API-Key", "raw"),)


def test_a_key_that_cannot_be_opened_names_its_deployment_alone(
    deployment: Deployment, settings: Any
) -> None:
    services.set_node_headers(
        node=factories.a_node(deployment), headers=[("X-Key", "secret")], actor="system:tests"
    )
    fine = factories.a_deployment("fine")
    settings.ENCRYPTION_KEYS = ["AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="]
    targets, broken = load_targets([deployment, fine])
    assert set(targets) == {fine.pk}
    assert "ENCRYPTION_KEYS" in broken[deployment.pk]
    with pytest.raises(SealBroken):
        loaded_target(deployment)


def test_many_targets_cost_as_many_queries_as_one(django_assert_num_queries: Any) -> None:
    deployments = [factories.a_deployment() for _ in range(10)]
    for each in deployments:
        factories.a_node(each)
    with django_assert_num_queries(4):
        targets, broken = load_targets(deployments)
    assert len(targets) == 10
    assert not broken


def test_closed_rows_are_no_part_of_the_target(deployment: Deployment) -> None:
    node = factories.a_node(deployment, "n")
    services.set_node_headers(node=node, headers=[("X-Key", "1")], actor="system:tests")
    assert Node.objects.count() == 2
    [loaded] = loaded_target(deployment).nodes
    assert loaded.credentials.headers == (("X-Key", "1"),)


def test_pauses_of_the_deployment_and_of_the_fleet(deployment: Deployment) -> None:
    other = factories.a_deployment()
    services.pause_probes(actor="system:tests", deployment=deployment)
    assert [probes_paused(each) for each in (deployment, other)] == [True, False]
    services.pause_probes(actor="system:tests")
    services.resume_probes(actor="system:tests", deployment=deployment)
    assert [probes_paused(each) for each in (deployment, other)] == [True, True]
    services.resume_probes(actor="system:tests")
    assert [probes_paused(each) for each in (deployment, other)] == [False, False]
