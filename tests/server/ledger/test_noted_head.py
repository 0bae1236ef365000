"""The ledger's head outside the database: a rollback, which is intact in itself, is noticed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvaudit.server.ledger import noted_head, services, tasks, verify_job
from kvaudit.server.ops.ledger import EXIT_BROKEN, EXIT_ERROR, EXIT_INTACT, verify

pytestmark = pytest.mark.django_db


@pytest.fixture
def head_file(tmp_path: Path, settings: Any) -> Path:
    path = tmp_path / "ledger_head.json"
    settings.LEDGER_HEAD_FILE = str(path)
    for number in range(1, 4):
        services.record(actor="system:x", kind="plan.changed", subject=f"plan:{number}")
    return path


def test_the_head_follows_the_ledger(head_file: Path) -> None:
    assert noted_head.read() is None
    assert noted_head.problem(None) == ""
    tasks.note_head()
    assert noted_head.read() == noted_head.current()
    services.record(actor="system:x", kind="plan.changed", subject="plan:4")
    assert noted_head.differs() == "", "entries after it are no rollback"
    tasks.note_head()
    assert json.loads(head_file.read_text())["sequence"] == 4
    assert [path.name for path in head_file.parent.iterdir()] == [head_file.name]
    assert verify(["verify"]) == EXIT_INTACT


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [({"sequence": 9}, "The database was rolled back"), ({"hash": "0" * 64}, "it holds another entry 3")],
)
def test_what_is_lost_is_said_and_never_noted_over(
    head_file: Path, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], sentence: str
) -> None:
    lost = replace(noted_head.current(), **changed)
    noted_head.write(lost)
    tasks.note_head()
    assert noted_head.read() == lost
    assert sentence in noted_head.differs()
    assert verify(["verify"]) == EXIT_BROKEN
    assert sentence in capsys.readouterr().out
    work = verify_job.begin(actor="system:tests")
    tasks.verify(work.pk)
    work.refresh_from_db()
    assert work.outcome == "broken"
    assert sentence in work.sentence


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"sequence": "x", "hash": "", "at": ""}', '{"sequence": 3}']
)
def test_a_head_that_cannot_be_read_is_neither_intact_nor_noted_over(
    head_file: Path, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    head_file.write_text(text)
    tasks.note_head()
    assert head_file.read_text() == text
    assert verify(["verify"]) == EXIT_ERROR
    assert "nobody knows whether the database was rolled back" in capsys.readouterr().out
    work = verify_job.begin(actor="system:tests")
    tasks.verify(work.pk)
    work.refresh_from_db()
    assert work.outcome == "error"


def test_a_folder_that_is_not_there_stops_nothing(settings: Any, tmp_path: Path, caplog: Any) -> None:
    settings.LEDGER_HEAD_FILE = str(tmp_path / "nowhere" / "head.json")
    tasks.note_head()
    assert "was not noted" in caplog.text


def test_without_a_file_nothing_is_kept(settings: Any) -> None:
    settings.LEDGER_HEAD_FILE = ""
    tasks.note_head()
    assert noted_head.read() is None
