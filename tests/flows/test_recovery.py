"""Killed workers, brokers and databases: nothing is lost, nothing runs twice at once, nothing floods."""

import pytest

from tests.servers import background, payload, sglang_node

pytestmark = pytest.mark.drill

GOOD = payload("sglang/server_info-single-0.5.22.json")


@pytest.fixture(autouse=True)
def tidy(product):
    yield
    product.quiet()
    for name, start in (("postgres", product.start_database), ("valkey", product.start_broker)):
        if name not in product.children:
            start()


def run_of(product, deployment, columns="id, state, attempt, verdict"):
    return product.rows(f"SELECT {columns} FROM audits_run WHERE deployment_id = %s ORDER BY id", deployment)[
        0
    ]


def test_a_worker_killed_in_mid_run_is_retried_once_then_the_run_ends_as_error(product):
    with background(sglang_node(GOOD)) as node:
        product.kill("worker")
        product.start_beat()
        made = product.build(deployments={"killed-twice": [node.url]}, audit=True)["killed-twice"]
        for attempt in (1, 2):
            with product.no_run_ends():
                product.start_worker()
                product.until(
                    lambda wanted=("running", attempt): run_of(product, made)[1:3] == wanted,
                    f"attempt {attempt} runs",
                )
                product.kill("worker")
            product.lapse()
        product.start_worker()
        product.until(lambda: run_of(product, made)[1] == "finished", "the run ends")
    run_id, state, attempt, verdict = run_of(product, made)
    assert (state, attempt, verdict) == ("finished", 2, "error")
    assert (
        product.one(
            "SELECT count(*) FROM ledger_entry WHERE subject = %s AND kind = 'run.finished'", f"run:{run_id}"
        )
        == 1
    )
    assert product.rows(
        "SELECT check_id, verdict FROM audits_checkstate WHERE deployment_id = %s ORDER BY check_id", made
    ) == [("pool", "error"), ("version", "error")]


def test_a_killed_pool_child_is_retried_and_the_retry_counts(product):
    with background(sglang_node(GOOD)) as node:
        product.start_worker()
        product.start_beat()
        with product.no_run_ends():
            made = product.build(deployments={"killed-once": [node.url]}, audit=True)["killed-once"]
            product.until(lambda: run_of(product, made)[1] == "running", "the run begins")
            assert product.kill_pool_child() >= 1
        product.lapse()
        product.until(lambda: run_of(product, made)[1] == "finished", "the retry ends")
    _, _, attempt, verdict = run_of(product, made)
    assert (attempt, verdict) == (2, "pass")
    assert product.one("SELECT count(*) FROM audits_result WHERE deployment_id = %s", made) == 2


def test_a_broker_killed_with_runs_in_its_queue_loses_none(product):
    with background(sglang_node(GOOD)) as node:
        product.kill("worker")
        product.start_beat()  # beat alone: its messages wait in the broker
        made = product.build(deployments={f"broker-{number}": [node.url] for number in range(10)}, audit=True)
        product.kill("valkey")
        product.do("UPDATE audits_run SET expires_at = now() + interval '1 hour' WHERE state = 'queued'")
        product.start_broker()
        product.do("UPDATE audits_run SET rung_at = now() WHERE state = 'queued'")
        product.start_worker()
        product.until(
            lambda: (
                product.one(
                    "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'finished'",
                    list(made.values()),
                )
                == 10
            ),
            "all ten runs end",
        )
    assert product.rows(
        "SELECT DISTINCT attempt, verdict FROM audits_run WHERE deployment_id = ANY(%s)", list(made.values())
    ) == [(1, "pass")]


def test_a_database_killed_in_mid_run_costs_no_result(product):
    with background(sglang_node(GOOD)) as node:
        product.start_worker()
        product.start_beat()
        with product.no_run_ends():
            made = product.build(deployments={"database": [node.url]}, audit=True)["database"]
            product.until(lambda: run_of(product, made)[1] == "running", "the run begins")
            product.kill("postgres")
        product.until(
            lambda: product.logged("worker", "the database does not answer, trying again"),
            "the worker notices",
        )
        product.start_database()
        product.until(lambda: run_of(product, made)[1] == "finished", "the run ends")
    assert run_of(product, made)[3] == "pass"
    assert (
        product.one("SELECT count(DISTINCT check_id) FROM audits_result WHERE deployment_id = %s", made) == 2
    )


def test_sixty_hours_without_a_worker_bring_one_audit_each_not_sixty(product):
    """Hourly plans, so that no further slot falls due however long this takes."""
    with background(sglang_node(GOOD)) as node:
        product.kill("worker")
        names = [f"hour-{number}" for number in range(5)]
        made = list(product.build(deployments={name: [node.url] for name in names}, interval=3600).values())
        product.do(
            "UPDATE audits_plan SET anchor = anchor - interval '60 hours', next_due = next_due - interval '60 hours'"
            " WHERE enabled"
        )
        product.do("UPDATE fleet_deployment SET created_at = created_at - interval '90 hours'")
        asked = len(node.requests)
        product.start_beat()
        # Beat sends its messages while nobody works: the first worker finds them all.
        product.until(lambda: product.queued("maintenance") >= 10, "beat rings while nobody works")
        product.start_worker()
        product.until(
            lambda: (
                product.one(
                    "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'finished'",
                    made,
                )
                >= 5
            ),
            "each deployment is audited",
        )
        product.until(
            lambda: (
                product.one(
                    "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'missed'", made
                )
                == 5 * 60
            ),
            "what was missed is written",
        )
        product.drain()
        requests = len(node.requests) - asked
    finished = product.one(
        "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'finished'", made
    )
    assert finished == 5
    assert requests <= finished * 16, "each audit reads a node twice"
    assert product.one("SELECT count(*) FROM audits_overdue WHERE deployment_id = ANY(%s)", made) == 5


def test_two_beats_and_two_workers_give_each_slot_one_run(product):
    with background(sglang_node(GOOD)) as node:
        for name in ("worker", "worker-2"):
            product.start_worker(name=name)
        for name in ("beat", "beat-2"):
            product.start_beat(name)
        names = [f"twice-{number}" for number in range(6)]
        made = list(product.build(deployments={name: [node.url] for name in names}, interval=2).values())
        ended = "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'finished'"
        product.until(lambda: product.one(ended, made) >= 18, "three rounds end")
        product.drain()
        for name in ("beat-2", "worker-2"):
            product.stop(name)
    assert not product.rows(
        "SELECT deployment_id, slot FROM audits_run WHERE deployment_id = ANY(%s) AND slot IS NOT NULL"
        " GROUP BY deployment_id, slot HAVING count(*) > 1",
        made,
    )
    assert not product.rows(  # no check of an attempt was written twice, none is missing
        "SELECT run.id FROM audits_run run LEFT JOIN audits_result result ON result.run_id = run.id"
        " AND result.attempt = run.attempt WHERE run.deployment_id = ANY(%s) AND run.state = 'finished'"
        " GROUP BY run.id, run.checks HAVING count(result.id) <> cardinality(run.checks)",
        made,
    )
    assert product.one(
        "SELECT count(*) = count(DISTINCT subject) FROM ledger_entry WHERE kind = 'run.finished'"
    )
