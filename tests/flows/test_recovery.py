"""Killed workers, brokers and databases: nothing is lost, nothing runs twice at once, nothing floods."""

import pytest

from tests.servers import background, payload, sglang_node

pytestmark = pytest.mark.drill

GOOD = payload("sglang/server_info-single-0.5.22.json")


@pytest.fixture(autouse=True)
def tidy(house):
    yield
    house.quiet()
    for name, start in (("postgres", house.start_database), ("valkey", house.start_broker)):
        if name not in house.children:
            start()


def run_of(house, deployment, columns="id, state, attempt, verdict"):
    return house.rows(f"SELECT {columns} FROM audits_run WHERE deployment_id = %s ORDER BY id", deployment)[0]


def test_a_worker_killed_in_mid_run_is_retried_once_then_the_run_ends_as_error(house):
    with background(sglang_node(GOOD)) as node:
        house.kill("worker")
        house.start_beat()
        made = house.furnish(deployments={"killed-twice": [node.url]}, audit=True)["killed-twice"]
        for attempt in (1, 2):
            with house.no_run_ends():
                house.start_worker()
                house.until(
                    lambda wanted=("running", attempt): run_of(house, made)[1:3] == wanted,
                    f"attempt {attempt} runs",
                )
                house.kill("worker")
            house.lapse()
        house.start_worker()
        house.until(lambda: run_of(house, made)[1] == "finished", "the run ends")
    run_id, state, attempt, verdict = run_of(house, made)
    assert (state, attempt, verdict) == ("finished", 2, "error")
    assert (
        house.one(
            "SELECT count(*) FROM ledger_entry WHERE subject = %s AND kind = 'run.finished'", f"run:{run_id}"
        )
        == 1
    )
    assert house.rows(
        "SELECT check_id, verdict FROM audits_checkstate WHERE deployment_id = %s ORDER BY check_id", made
    ) == [("pool", "error"), ("version", "error")]


def test_a_killed_pool_child_is_retried_and_the_retry_counts(house):
    with background(sglang_node(GOOD)) as node:
        house.start_worker()
        house.start_beat()
        with house.no_run_ends():
            made = house.furnish(deployments={"killed-once": [node.url]}, audit=True)["killed-once"]
            house.until(lambda: run_of(house, made)[1] == "running", "the run begins")
            assert house.kill_pool_child() >= 1
        house.lapse()
        house.until(lambda: run_of(house, made)[1] == "finished", "the retry ends")
    _, _, attempt, verdict = run_of(house, made)
    assert (attempt, verdict) == (2, "pass")
    assert house.one("SELECT count(*) FROM audits_result WHERE deployment_id = %s", made) == 2


def test_a_broker_killed_with_runs_in_its_queue_loses_none(house):
    with background(sglang_node(GOOD)) as node:
        house.kill("worker")
        house.start_beat()  # beat alone: its messages wait in the broker
        made = house.furnish(deployments={f"broker-{number}": [node.url] for number in range(10)}, audit=True)
        house.kill("valkey")
        house.do("UPDATE audits_run SET expires_at = now() + interval '1 hour' WHERE state = 'queued'")
        house.start_broker()
        house.do("UPDATE audits_run SET rung_at = now() WHERE state = 'queued'")
        house.start_worker()
        house.until(
            lambda: (
                house.one(
                    "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'finished'",
                    list(made.values()),
                )
                == 10
            ),
            "all ten runs end",
        )
    assert house.rows(
        "SELECT DISTINCT attempt, verdict FROM audits_run WHERE deployment_id = ANY(%s)", list(made.values())
    ) == [(1, "pass")]


def test_a_database_killed_in_mid_run_costs_no_result(house):
    with background(sglang_node(GOOD)) as node:
        house.start_worker()
        house.start_beat()
        with house.no_run_ends():
            made = house.furnish(deployments={"database": [node.url]}, audit=True)["database"]
            house.until(lambda: run_of(house, made)[1] == "running", "the run begins")
            house.kill("postgres")
        house.until(
            lambda: house.logged("worker", "the database does not answer, trying again"), "the worker notices"
        )
        house.start_database()
        house.until(lambda: run_of(house, made)[1] == "finished", "the run ends")
    assert run_of(house, made)[3] == "pass"
    assert house.one("SELECT count(DISTINCT check_id) FROM audits_result WHERE deployment_id = %s", made) == 2


def test_sixty_hours_without_a_worker_bring_one_audit_each_not_sixty(house):
    """Hourly plans, so that no further slot falls due however long this takes."""
    with background(sglang_node(GOOD)) as node:
        house.kill("worker")
        names = [f"hour-{number}" for number in range(5)]
        made = list(house.furnish(deployments={name: [node.url] for name in names}, interval=3600).values())
        house.do(
            "UPDATE audits_plan SET anchor = anchor - interval '60 hours', next_due = next_due - interval '60 hours'"
            " WHERE enabled"
        )
        house.do("UPDATE fleet_deployment SET created_at = created_at - interval '90 hours'")
        asked = len(node.requests)
        house.start_beat()
        # Beat sends its messages while nobody works: the first worker finds them all.
        house.until(lambda: house.queued("desk") >= 10, "beat rings while nobody works")
        house.start_worker()
        house.until(
            lambda: (
                house.one(
                    "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'finished'",
                    made,
                )
                >= 5
            ),
            "each deployment is audited",
        )
        house.until(
            lambda: (
                house.one(
                    "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'missed'", made
                )
                == 5 * 60
            ),
            "what was missed is written",
        )
        house.drain()
        requests = len(node.requests) - asked
    finished = house.one(
        "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'finished'", made
    )
    assert finished == 5
    assert requests <= finished * 8
    assert house.one("SELECT count(*) FROM audits_overdue WHERE deployment_id = ANY(%s)", made) == 5


def test_two_beats_and_two_workers_give_each_slot_one_run(house):
    with background(sglang_node(GOOD)) as node:
        for name in ("worker", "worker-2"):
            house.start_worker(name=name)
        for name in ("beat", "beat-2"):
            house.start_beat(name)
        names = [f"twice-{number}" for number in range(6)]
        made = list(house.furnish(deployments={name: [node.url] for name in names}, interval=2).values())
        ended = "SELECT count(*) FROM audits_run WHERE deployment_id = ANY(%s) AND state = 'finished'"
        house.until(lambda: house.one(ended, made) >= 18, "three rounds end")
        house.drain()
        for name in ("beat-2", "worker-2"):
            house.stop(name)
    assert not house.rows(
        "SELECT deployment_id, slot FROM audits_run WHERE deployment_id = ANY(%s) AND slot IS NOT NULL"
        " GROUP BY deployment_id, slot HAVING count(*) > 1",
        made,
    )
    assert not house.rows(  # no check of an attempt was written twice, none is missing
        "SELECT run.id FROM audits_run run LEFT JOIN audits_result result ON result.run_id = run.id"
        " AND result.attempt = run.attempt WHERE run.deployment_id = ANY(%s) AND run.state = 'finished'"
        " GROUP BY run.id, run.checks HAVING count(result.id) <> cardinality(run.checks)",
        made,
    )
    assert house.one(
        "SELECT count(*) = count(DISTINCT subject) FROM ledger_entry WHERE kind = 'run.finished'"
    )
