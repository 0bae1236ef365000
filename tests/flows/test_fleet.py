"""A fleet audited every few seconds while worker, broker and database are each killed.

Every slot of every deployment must be exactly one run or one *missed* row, and none a false pass: the
nodes whose pool is too small, and those that are away, never pass. Short with ``make drill``; ten
minutes of one-minute plans with ``make soak``.
"""

import json
import os
from collections import Counter
from contextlib import ExitStack
from itertools import pairwise

import pytest

from tests.flows.product import Product
from tests.servers import background, hanging, payload, sglang_node
from tests.waiting import PATIENCE

GOOD = json.loads(payload("sglang/server_info-single-0.5.22.json"))


RUNNING = "SELECT count(*) FROM audits_run WHERE state = 'running'"
SLOTS = """SELECT min(slots) FROM (SELECT count(run.slot) AS slots FROM fleet_deployment d LEFT JOIN audits_run run
    ON run.deployment_id = d.id AND run.state IN ('finished', 'missed') GROUP BY d.id) AS each"""
"""How many slots of every deployment have come to their end."""
PASSED_SINCE = """SELECT count(*) FROM audits_run WHERE verdict = 'pass' AND started_at > %s"""


def small_pool():
    """The same node with a pool below its context: it must fail."""
    return json.loads(json.dumps(GOOD).replace(str(GOOD["max_total_num_tokens"]), "1000"))


@pytest.fixture
def fleet():
    """20 deployments: 14 sound, 4 with a small pool, 1 that never answers, 1 where nobody listens."""
    with ExitStack() as stack:
        sound = stack.enter_context(background(sglang_node(GOOD)))
        small = stack.enter_context(background(sglang_node(small_pool())))
        mute = stack.enter_context(background(hanging()))
        deployments = {f"sound-{number}": [sound.url] for number in range(14)}
        deployments |= {f"small-{number}": [small.url] for number in range(4)}
        deployments |= {"mute": [mute.url], "nobody": ["http://127.0.0.1:9"]}
        yield deployments


def audited_while_killing(product, deployments, *, interval, slots, kills):
    """Let beat audit until ``slots`` of every deployment have ended; ``kills`` are (after so many slots, what),
    each while runs are under way. After each death audits pass again. Returns {slug: deployment id}."""
    patience = interval * slots + PATIENCE
    product.start_worker()
    product.start_beat()
    made = product.build(deployments=deployments, interval=interval, budget_seconds=3)
    back = {
        "worker": product.start_worker,
        "postgres": product.start_database,
        "valkey": product.start_broker,
    }
    for after, what in kills:
        product.until(lambda after=after: product.one(SLOTS) >= after, f"{after} slots have ended", patience)
        product.until(lambda: product.one(RUNNING), "a run is under way", patience)
        product.kill(what)
        back[what]()
        since = product.one("SELECT now()")
        product.until(
            lambda since=since: product.one(PASSED_SINCE, since),
            f"a pass after the death of {what}",
            patience,
        )
    product.until(lambda: product.one(SLOTS) >= slots, f"{slots} slots have ended", patience)
    product.drain()
    return made


def check(product, made, interval):
    """The invariants; returns how the slots were spent."""
    rows = product.rows(
        "SELECT deployment_id, slot, state, verdict, attempt, id FROM audits_run WHERE slot IS NOT NULL ORDER BY slot"
    )
    by_deployment = {pk: [] for pk in made.values()}
    for row in rows:
        by_deployment[row[0]].append(row)
    for slug, pk in made.items():
        slots = [row[1] for row in by_deployment[pk]]
        assert len(slots) == len(set(slots)), f"{slug}: a slot has two rows"
        gaps = {(later - earlier).total_seconds() for earlier, later in pairwise(slots)}
        assert gaps <= {interval}, f"{slug}: slots are missing ({gaps})"
    states = Counter(row[2] for row in rows)
    assert set(states) <= {"finished", "missed"}
    assert all((row[3] is None) == (row[2] == "missed") for row in rows)
    verdicts = {slug: Counter(row[3] for row in by_deployment[pk] if row[3]) for slug, pk in made.items()}
    for slug, seen in verdicts.items():
        if not slug.startswith("sound"):
            assert not seen["pass"], f"{slug} passed"
    # A pass has every result behind it, of its last attempt, and all of them pass.
    assert not product.rows(
        "SELECT run.id FROM audits_run run WHERE verdict = 'pass' AND (SELECT count(DISTINCT check_id) FROM"
        " audits_result WHERE run_id = run.id AND verdict = 'pass') <> cardinality(run.checks)"
    )
    assert not product.rows(
        "SELECT run.id FROM audits_run run WHERE verdict = 'pass' AND EXISTS (SELECT 1 FROM audits_result"
        " WHERE run_id = run.id AND verdict = 'fail')"
    )
    # One ledger entry per run that ended, and the chain holds.
    assert product.one("SELECT count(*) FROM ledger_entry WHERE kind = 'run.finished'") == product.one(
        "SELECT count(*) FROM audits_run WHERE state = 'finished'"
    )
    # Never two open intervals of one check, none that overlap.
    assert not product.rows(
        "SELECT a.id FROM audits_checkstate a JOIN audits_checkstate b ON a.deployment_id = b.deployment_id"
        " AND a.check_id = b.check_id AND a.id < b.id AND a.since < COALESCE(b.closed_at, 'infinity')"
        " AND b.since < COALESCE(a.closed_at, 'infinity')"
    )
    passed = sum(seen["pass"] for slug, seen in verdicts.items() if slug.startswith("sound"))
    failed = sum(seen["fail"] for slug, seen in verdicts.items() if slug.startswith("small"))
    assert passed, "nothing sound ever passed"
    assert failed, "nothing small ever failed"
    return {
        "rows": len(rows),
        **states,
        "passed": passed,
        "failed": failed,
        "retried": sum(row[4] > 1 for row in rows),
    }


@pytest.mark.drill
def test_every_slot_once_through_a_death_of_each(fleet):
    product = Product(concurrency=3, LEASE_SECONDS=10, SHORTEST_EXPIRY_SECONDS=6)
    try:
        product.open()
        made = audited_while_killing(
            product, fleet, interval=2, slots=8, kills=[(2, "worker"), (4, "valkey"), (6, "postgres")]
        )
        spent = check(product, made, 2)
    finally:
        product.close()
    print(spent)
    assert spent["rows"] >= 20 * 8


@pytest.mark.soak
@pytest.mark.skipif("KVAUDIT_SOAK" not in os.environ, reason="ten minutes; make soak")
def test_ten_minutes_of_every_minute(fleet):
    product = Product(
        beat_seconds=5, concurrency=3, LEASE_SECONDS=20, HEARTBEAT_SECONDS=2, SHORTEST_EXPIRY_SECONDS=60
    )
    try:
        product.open()
        made = audited_while_killing(
            product,
            fleet,
            interval=60,
            slots=10,
            kills=[(2, "worker"), (4, "valkey"), (6, "postgres")],
        )
        spent = check(product, made, 60)
        print(f"\nten minutes: {spent}")
    finally:
        product.close()
    assert spent["rows"] >= 20 * 10
