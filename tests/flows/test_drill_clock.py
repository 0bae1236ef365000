"""Real workers, beat and dispatcher on machines whose clocks are wrong (libfaketime)."""

from __future__ import annotations

import json

import pytest

from tests.drills import shifted
from tests.servers import background, payload, sglang_node

pytestmark = pytest.mark.drill

GOOD = payload("sglang/server_info-single-0.5.22.json")


@pytest.fixture(autouse=True)
def tidy(product):
    yield
    for name in ("worker", "worker-2", "beat"):
        if name in product.children:
            product.kill(name)
    product.do("UPDATE audits_run SET state = 'missed' WHERE state = 'queued'")
    product.quiet()


def state_of(product, deployment):
    rows = product.rows(
        "SELECT verdict, abs(extract(epoch FROM last_confirmed - now())) < 120 FROM audits_checkstate"
        " WHERE deployment_id = %s AND check_id = 'pool' AND closed_at IS NULL",
        deployment,
    )
    return rows[0] if rows else None


def skew_of(product, name):
    rows = product.rows("SELECT skew FROM audits_workerclock WHERE name LIKE %s", f"flow-{name}@%")
    return rows[0][0] if rows else None


def named(what, offset):
    return f"{what}-{'ahead' if offset.startswith('+') else 'behind'}"


@pytest.mark.parametrize("offset", ["+2h", "-2h"])
def test_a_worker_two_hours_off_takes_nothing_says_so_and_hides_nothing(product, offset):
    product.do("DELETE FROM audits_workerclock")
    product.start_beat()
    product.start_worker(env=shifted(offset))
    with background(sglang_node(GOOD)) as node:
        slug = named("alone", offset)
        made = product.build(deployments={slug: [node.url]}, audit=True)[slug]
        off = product.until(lambda: skew_of(product, "worker"), "the worker notes how far it is off")
        assert abs(off - (7200 if offset == "+2h" else -7200)) < 60
        product.until(lambda: "takes no work until it is put right" in product.log("worker"), "it says so")
        assert state_of(product, made) is None
        product.start_worker(name="worker-2")
        product.until(lambda: state_of(product, made) == ("pass", True), "another takes the run")


@pytest.mark.parametrize("offset", ["+2h", "-2h"])
def test_a_beat_two_hours_off_rings_all_the_same(product, offset):
    product.start_beat(env=shifted(offset))
    product.start_worker()
    with background(sglang_node(GOOD)) as node:
        slug = named("beat", offset)
        made = product.build(deployments={slug: [node.url]}, interval=3600, plan=slug)[slug]
        product.until(lambda: state_of(product, made) == ("pass", True), "its plan is kept")
    assert "evoked" not in product.log("worker")


AUDIT = """
import django; django.setup()
from kvaudit.server.audits.services import audit_now
from kvaudit.server.fleet.models import Deployment
audit_now(deployment=Deployment.objects.get(slug="in-turn"), actor="system:flows", checks=["pool"])
"""


def with_pool(tokens):
    """The recorded answer of an engine whose context is 131,072, with another pool."""
    document = json.loads(GOOD)
    document["max_total_num_tokens"] = tokens
    document["internal_states"][0]["memory_usage"]["token_capacity"] = tokens
    return document


def test_what_fails_is_seen_between_two_workers_half_a_minute_off(product):
    """As far off as a worker may be: its clock is in nothing that is kept."""
    node_now = [sglang_node(GOOD)]

    async def node(request, writer):
        await node_now[0](request, writer)

    with background(node) as server:
        made = product.build(deployments={"in-turn": [server.url]})["in-turn"]
        product.start_beat()
        for offset, pool, verdict in (
            ("+30s", 412_672, "pass"),
            ("+0", 100_000, "fail"),
            ("-30s", 412_672, "pass"),
        ):
            node_now[0] = sglang_node(with_pool(pool))
            product.start_worker(env=shifted(offset))
            asked = product.one("SELECT now()")
            product._python("-c", AUDIT)
            product.until(
                lambda said=verdict: state_of(product, made) == (said, True), f"{verdict} at {offset}"
            )
            # Milliseconds of a round trip are forgiven; a clock 30 s off lies outside.
            within = (
                "SELECT max(observed_at) BETWEEN %s - interval '2 s' AND now() + interval '2 s'"
                " FROM audits_result"
            )
            assert product.one(within, asked), "by the database's time, not 30 s off"
            product.stop("worker")
    told = product.rows(
        "SELECT after FROM audits_statechange WHERE deployment_id = %s AND check_id = 'pool'"
        " AND what = 'verdict' ORDER BY at, id",
        made,
    )
    assert [after for (after,) in told] == ["pass", "fail", "pass"]
