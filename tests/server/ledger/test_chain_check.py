"""``kvaudit ledger verify``: intact, or the first bad entry named."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.db import connection

from kvaudit.server.ledger import services
from kvaudit.server.ledger.chain_check import verify_chain
from kvaudit.server.ledger.models import Entry
from kvaudit.server.ops.ledger import verify
from tests.waiting import PATIENCE


def tamper(statement: str) -> None:
    """As somebody with the owner's rights would."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE ledger_entry DISABLE TRIGGER USER")
        cursor.execute(statement)
        cursor.execute("ALTER TABLE ledger_entry ENABLE TRIGGER USER")


@pytest.fixture
def _five(db: None) -> None:
    for number in range(1, 6):
        services.record(actor="system:x", kind="run.finished", subject=f"run:{number}")


@pytest.mark.django_db
def test_an_empty_ledger_is_intact(capsys: pytest.CaptureFixture[str]) -> None:
    assert verify(["verify"]) == 0
    assert "0 entries" in capsys.readouterr().out


@pytest.mark.usefixtures("_five")
def test_an_untouched_ledger_is_intact(capsys: pytest.CaptureFixture[str]) -> None:
    last = Entry.objects.get(sequence=5).hash
    assert verify(["verify", "--last-hash", Entry.objects.get(sequence=3).hash]) == 0
    assert capsys.readouterr().out == f"Ledger intact: 5 entries, last hash {last}.\n"


@pytest.mark.usefixtures("_five")
@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("UPDATE ledger_entry SET subject = 'run:99' WHERE sequence = 3", "Entry 3 was altered"),
        ("UPDATE ledger_entry SET at = at + interval '1 s' WHERE sequence = 1", "Entry 1 was altered"),
        ("UPDATE ledger_entry SET hash = repeat('0', 64) WHERE sequence = 2", "Entry 2 was altered"),
        ("UPDATE ledger_entry SET previous = repeat('0', 64) WHERE sequence = 4", "Entry 4 does not follow"),
        ("DELETE FROM ledger_entry WHERE sequence = 2", "Entry 2 is missing"),
        ("DELETE FROM ledger_entry WHERE sequence = 1", "Entry 1 is missing"),
    ],
)
def test_the_first_bad_entry_is_named(
    statement: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    tamper(statement)
    assert verify(["verify"]) == 1
    assert sentence in capsys.readouterr().out


@pytest.mark.usefixtures("_five")
def test_an_entry_replaced_with_a_matching_hash_breaks_the_next_one() -> None:
    forged = Entry.objects.get(sequence=3)
    forged.subject = "run:99"
    forged.hash = services.hash_of(forged)
    tamper(f"UPDATE ledger_entry SET subject = 'run:99', hash = '{forged.hash}' WHERE sequence = 3")
    found = verify_chain(Entry.objects.order_by("sequence"))
    assert "Entry 4 does not follow" in found.problem


@pytest.mark.usefixtures("_five")
def test_a_cut_off_end_shows_against_a_hash_noted_earlier(capsys: pytest.CaptureFixture[str]) -> None:
    noted = Entry.objects.get(sequence=5).hash
    tamper("DELETE FROM ledger_entry WHERE sequence = 5")
    assert verify(["verify"]) == 0
    assert verify(["verify", "--last-hash", noted]) == 1
    assert "cut off" in capsys.readouterr().out


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["verify", "--nonsense"]])
def test_a_usage_error_is_three_never_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        verify(argv)
    assert stopped.value.code == 3
    assert "usage" in capsys.readouterr().err


def test_missing_settings_are_three_never_one() -> None:
    """One means "broken" to whoever scripts this."""
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parents[3])}
    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from kvaudit.server.ops.ledger import verify; sys.exit(verify(['verify']))",
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert run.returncode == 3
    assert "SECRET_KEY is not set" in run.stderr
    assert "Traceback" not in run.stderr
