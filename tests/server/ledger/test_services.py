"""Recording: the chain, its lock, and what the database refuses."""

from __future__ import annotations

import threading

import psycopg
import pytest
from django.db import DatabaseError, connection, transaction

from kvaudit.server.ledger import services
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.chain_check import verify_chain
from kvaudit.server.ledger.grants import grant_statements
from kvaudit.server.ledger.models import Entry
from tests import factories

CHAIN_LOCK = 0x6B76_6C64
"""One advisory lock for the end of the chain, taken by the trigger of the migrations."""


@pytest.mark.django_db
def test_entries_are_chained_and_numbered_from_one() -> None:
    first = services.record(actor="system:beat", kind="run.finished", subject="run:1", digest=digest_of([1]))
    second = services.record(actor="system:beat", kind="run.finished", subject="run:2")

    assert (first.sequence, first.previous) == (1, "")
    assert (second.sequence, second.previous) == (2, first.hash)
    assert services.hash_of(Entry.objects.get(sequence=1)) == first.hash  # survives the database's round trip


@pytest.mark.django_db
def test_several_acts_share_one_lock_and_one_insert(django_assert_num_queries) -> None:
    acts = [services.Act("run.finished", f"run:{number}") for number in range(50)]
    with django_assert_num_queries(1):  # the database locks, numbers, dates and chains
        entries = services.record_all(actor="system:beat", acts=acts)
    assert [entry.sequence for entry in entries] == list(range(1, 51))
    assert services.record_all(actor="system:beat", acts=[]) == []


@pytest.mark.django_db
def test_the_actor_is_named() -> None:
    user = factories.a_user("ada")
    assert services.record(actor=user, kind="k", subject="s").actor == "user:ada"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"actor": ""}, "actor"),
        ({"kind": ""}, "kind"),
        ({"subject": "x" * 301}, "subject"),
        ({"subject": "a\x00b"}, "subject"),
        ({"digest": "abc"}, "digest"),
        ({"digest": "A" * 64}, "digest"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        services.record(**{"actor": "system:x", "kind": "k", "subject": "s", **fields})
    assert not Entry.objects.exists()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "statement",
    ["UPDATE ledger_entry SET actor = 'x'", "DELETE FROM ledger_entry", "TRUNCATE ledger_entry"],
)
def test_even_the_owner_cannot_rewrite_an_entry(statement: str) -> None:
    services.record(actor="system:x", kind="k", subject="s")
    with (
        pytest.raises(DatabaseError, match="append-only"),
        transaction.atomic(),
        connection.cursor() as cursor,
    ):
        cursor.execute(statement)
    assert Entry.objects.get().actor == "system:x"


@pytest.mark.django_db
def test_the_application_role_may_append_and_read_but_not_rewrite() -> None:
    role = "ledger_test_app"
    services.record(actor="system:x", kind="k", subject="s")
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE ROLE {role}")
        for statement in grant_statements(role):
            cursor.execute(statement)
        for trigger in ("no_change", "no_truncate"):  # privileges alone must suffice
            cursor.execute(f"ALTER TABLE ledger_entry DISABLE TRIGGER ledger_entry_{trigger}")
        cursor.execute(f"SET LOCAL ROLE {role}")
    services.record(actor="system:x", kind="k", subject="appended")
    assert Entry.objects.count() == 2
    for statement in (
        "UPDATE ledger_entry SET actor = 'x'",
        "DELETE FROM ledger_entry",
        "TRUNCATE ledger_entry",
        "ALTER TABLE ledger_entry ENABLE TRIGGER USER",
        "DROP TABLE ledger_entry",
        "DELETE FROM django_migrations",
        "CREATE TABLE public.mine (x int)",
    ):
        with pytest.raises(DatabaseError, match=r"permission denied|must be owner"), transaction.atomic():
            connection.cursor().execute(statement)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE fleet_deployment SET owner = ''")  # everything else is the application's


@pytest.mark.parametrize("role", ["", "Robert", "a b", "x; DROP TABLE y", '"q"', "ä"])
def test_a_role_name_that_needs_quoting_is_refused(role: str) -> None:
    with pytest.raises(ValueError, match="role name"):
        grant_statements(role)


@pytest.mark.django_db
def test_two_writers_at_once_do_not_fork_the_chain() -> None:
    """Another connection holds the end of the chain: a writer waits instead of reading a stale end."""
    order: list[str] = []
    database = connection.settings_dict
    with psycopg.connect(host=database["HOST"], user=database["USER"], dbname=database["NAME"]) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", [CHAIN_LOCK])
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL lock_timeout = '50ms'")
            with pytest.raises(DatabaseError, match="lock timeout"), transaction.atomic():
                services.record(actor="system:x", kind="k", subject="s")
            order.append("waited")
        other.rollback()
    services.record(actor="system:x", kind="k", subject="s")
    assert order == ["waited"]
    assert Entry.objects.count() == 1


@pytest.mark.django_db
def test_only_a_fleet_wide_auditor_reads_the_ledger() -> None:
    services.record(actor="system:x", kind="k", subject="s")
    team = factories.a_team()
    auditor, member, stranger = (
        factories.a_user(role="auditor"),
        factories.a_user(team=team, role="operator"),
        factories.a_user(),
    )
    assert [Entry.objects.visible_to(user).count() > 0 for user in (auditor, member, stranger)] == [
        True,
        False,
        False,
    ]


@pytest.mark.django_db(transaction=True)
def test_many_writers_make_one_unbroken_chain() -> None:
    def write(worker: int) -> None:
        try:
            for number in range(10):
                services.record(actor=f"system:{worker}", kind="k", subject=str(number))
        finally:
            connection.close()

    threads = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = verify_chain(Entry.objects.order_by("sequence"))
    assert (found.entries, found.problem) == (40, "")
