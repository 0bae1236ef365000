"""Snapshots: one row per difference, and changes that are real."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kvaudit.auditor.checks.contract import NodeSeen
from kvaudit.auditor.readings import EngineFacts, read, unknown
from kvaudit.server.fleet.models import Deployment, FingerprintChange, Node, NodeSnapshot
from kvaudit.server.fleet.services import close, replace_node
from kvaudit.server.fleet.snapshot_writer import note_removal, record_readings
from tests import factories

pytestmark = pytest.mark.django_db

START = datetime(2026, 11, 1, tzinfo=UTC)


def at(minutes: float) -> datetime:
    return START + timedelta(minutes=minutes)


def seen(
    pool: int | None = 1_000_000, *, version: str = "0.5.22", process: str = "pid 1", **fields: Any
) -> NodeSeen:
    facts = EngineFacts(
        engine=fields.pop("engine", "sglang"),
        version=read(version, "GET /server_info version"),
        pool=read(pool, "GET /v1/loads") if pool else unknown("GET /v1/loads did not answer"),
        context=read(fields.pop("context", 800_000), "GET /v1/models"),
        process=read(process, "GET /metrics") if process else unknown("not exposed"),
        **fields,
    )
    return NodeSeen("n", "http://n", facts=facts)


@pytest.fixture
def deployment(db: None) -> Deployment:
    return factories.a_deployment(headroom=1.0)


@pytest.fixture
def node(deployment: Deployment) -> Node:
    return factories.a_node(deployment, "n", valid_from=at(-60))


def record_reading(
    *, deployment: Deployment, node: Node, seen: NodeSeen, at: datetime
) -> FingerprintChange | None:
    changes = record_readings(deployment=deployment, readings=[(node, seen)], at=at)
    return changes[0] if changes else None


def test_unchanged_readings_share_one_row(deployment: Deployment, node: Node) -> None:
    for minute in range(5):
        assert record_reading(deployment=deployment, node=node, seen=seen(), at=at(minute)) is None
    snapshot = NodeSnapshot.objects.get()
    assert (snapshot.first_seen, snapshot.last_confirmed) == (at(0), at(4))
    assert (snapshot.pool, snapshot.context, snapshot.version, snapshot.process) == (
        1_000_000,
        800_000,
        "0.5.22",
        "pid 1",
    )
    assert snapshot.facts["pool"] == {"value": 1_000_000, "source": "GET /v1/loads", "state": "read"}
    assert not FingerprintChange.objects.exists()


def test_confirming_many_nodes_costs_as_many_queries_as_one(
    deployment: Deployment, django_assert_num_queries: Any
) -> None:
    nodes = [factories.a_node(deployment, f"n{number}", valid_from=at(-60)) for number in range(20)]
    readings = [(each, seen()) for each in nodes]
    record_readings(deployment=deployment, readings=readings, at=at(0))
    with django_assert_num_queries(5):  # savepoint, lock nodes, snapshots, one update, release
        record_readings(deployment=deployment, readings=readings, at=at(1))


def test_a_significant_change_is_recorded_with_its_difference(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(0))
    change = record_reading(
        deployment=deployment, node=node, seen=seen(2_000_000, version="0.5.23", process="pid 2"), at=at(1)
    )
    assert change is not None
    assert change.significant
    assert change.at == at(1)
    assert change.summary == "n: version 0.5.22 -> 0.5.23, pool 1000000 -> 2000000"
    assert [each["name"] for each in change.diff] == ["version", "pool"]
    assert NodeSnapshot.objects.filter(current=True).get().pool == 2_000_000
    assert NodeSnapshot.objects.count() == 2


def test_a_restart_that_moves_the_pool_by_one_percent_expires_nothing(
    deployment: Deployment, node: Node
) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(0))
    assert (
        record_reading(deployment=deployment, node=node, seen=seen(990_000, process="pid 2"), at=at(1))
        is None
    )
    kept = FingerprintChange.objects.get()
    assert (kept.significant, kept.summary) == (False, "n: pool 1000000 -> 990000")
    assert not FingerprintChange.objects.significant().exists()
    # told once, although it still differs from the reference
    record_reading(deployment=deployment, node=node, seen=seen(990_000, process="pid 3"), at=at(2))
    assert FingerprintChange.objects.count() == 1


def test_creep_over_restarts_adds_up(deployment: Deployment, node: Node) -> None:
    pools = [1_000_000, 992_000, 985_000, 979_000]
    changes = [
        record_reading(
            deployment=deployment, node=node, seen=seen(pool, process=f"pid {pool}"), at=at(minute)
        )
        for minute, pool in enumerate(pools)
    ]
    assert [change is not None for change in changes] == [False, False, False, True]
    assert changes[-1] is not None
    assert changes[-1].diff[0]["before"] == 1_000_000


def test_crossing_the_context_counts_however_small(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(1_000_000, context=995_000), at=at(0))
    assert record_reading(deployment=deployment, node=node, seen=seen(994_000, context=995_000), at=at(1))


def test_a_node_that_could_not_be_read_stays_as_it_was(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(0))
    before = NodeSnapshot.objects.values().get()
    silent = NodeSeen("n", "http://n", problem="n did not answer within 10 s.")
    assert record_reading(deployment=deployment, node=node, seen=silent, at=at(1)) is None
    assert NodeSnapshot.objects.values().get() == before


def test_a_partly_unknown_reading_is_no_change_but_is_shown(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(0))
    assert record_reading(deployment=deployment, node=node, seen=seen(None), at=at(1)) is None
    assert NodeSnapshot.objects.get(current=True).pool is None
    assert record_reading(deployment=deployment, node=node, seen=seen(), at=at(2)) is None
    assert not FingerprintChange.objects.significant().exists()
    assert record_reading(deployment=deployment, node=node, seen=seen(500_000, process="pid 9"), at=at(3))


def test_a_pool_read_for_the_first_time_is_learnt(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(None), at=at(0))
    assert record_reading(deployment=deployment, node=node, seen=seen(), at=at(1)) is None
    assert FingerprintChange.objects.get().summary == "n: pool unknown -> 1000000"
    assert NodeSnapshot.objects.get(current=True).reference_fingerprint.pools == {"pool": 1_000_000}


def test_an_older_reading_that_arrives_late_is_ignored(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(5))
    assert record_reading(deployment=deployment, node=node, seen=seen(1), at=at(4)) is None
    assert NodeSnapshot.objects.get().pool == 1_000_000


def test_a_closed_node_is_not_read_any_more(deployment: Deployment, node: Node) -> None:
    close(node, at(1))
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(2))
    assert not NodeSnapshot.objects.exists()


def test_a_new_url_does_not_forget_what_the_node_was(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(0))
    moved = replace_node(node=node, at=at(1), url="http://127.0.0.1:9/elsewhere")
    assert record_reading(deployment=deployment, node=moved, seen=seen(process="pid 2"), at=at(2)) is None
    other = replace_node(node=moved, at=at(3), url="http://127.0.0.1:9/again")
    assert record_reading(deployment=deployment, node=other, seen=seen(600_000), at=at(4))


# The set of a deployment's nodes


def test_nodes_there_from_the_start_are_a_baseline_even_if_one_answers_later(deployment: Deployment) -> None:
    first, second = (factories.a_node(deployment, name, valid_from=at(-60)) for name in ("a", "b"))
    record_reading(deployment=deployment, node=first, seen=seen(), at=at(0))
    assert record_reading(deployment=deployment, node=second, seen=seen(10_000), at=at(9)) is None


@pytest.mark.parametrize(("pool", "changed"), [(1_005_000, False), (500_000, True)])
def test_a_replica_changes_nothing_but_a_different_node_does(
    deployment: Deployment, node: Node, pool: int, changed: bool
) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(0))
    joined = factories.a_node(deployment, "joined", valid_from=at(5))
    change = record_reading(deployment=deployment, node=joined, seen=seen(pool, process="pid 7"), at=at(6))
    assert (change is not None) is changed


def test_a_node_that_replaces_a_like_one_changes_nothing(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(0))
    close(node, at(5))
    successor = factories.a_node(deployment, "successor", valid_from=at(5))
    assert record_reading(deployment=deployment, node=successor, seen=seen(process="pid 7"), at=at(6)) is None


def test_a_node_like_one_that_was_gone_before_is_a_change(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(0))
    close(node, at(5))
    late = factories.a_node(deployment, "late", valid_from=at(50))
    assert record_reading(deployment=deployment, node=late, seen=seen(process="pid 7"), at=at(51))


@pytest.mark.parametrize(("pool", "changed"), [(1_000_000, False), (500_000, True)])
def test_removing_a_node_is_a_change_when_none_is_like_it(
    deployment: Deployment, node: Node, pool: int, changed: bool
) -> None:
    gone = factories.a_node(deployment, "gone", valid_from=at(-60))
    record_readings(deployment=deployment, readings=[(node, seen()), (gone, seen(pool))], at=at(0))
    close(gone, at(5))
    assert (note_removal(deployment=deployment, node=gone, at=at(5)) is not None) is changed


def test_rows_are_seen_by_the_team_alone(deployment: Deployment, node: Node) -> None:
    record_reading(deployment=deployment, node=node, seen=seen(), at=at(0))
    record_reading(deployment=deployment, node=node, seen=seen(5), at=at(1))
    member, stranger = factories.a_user(team=deployment.team), factories.a_user(team=factories.a_team())
    for model in (NodeSnapshot, FingerprintChange, Node):
        assert model.objects.visible_to(member).exists()  # type: ignore[attr-defined]
        assert not model.objects.visible_to(stranger).exists()  # type: ignore[attr-defined]
