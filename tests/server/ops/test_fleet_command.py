"""``manage.py fleet import``."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from kvaudit.server.audits.models import Plan
from kvaudit.server.fleet.models import Deployment
from kvaudit.server.ledger.models import Entry
from tests.factories import loaded_target

pytestmark = pytest.mark.django_db

FLEET = """\
schema: kvaudit.fleet/1
deployments:
  - slug: glm-prod
    team: serving
    context: 1_048_576
    nodes:
      - {name: prefill-0, role: prefill, url: "http://10.0.0.1:30000", key_env: FLEET_TEST_KEY}
    plans:
      - {name: minutely, checks: [pool, version], every: 60s}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLEET_TEST_KEY", "the-key-of-prefill")
    path = tmp_path / "fleet.yaml"
    path.write_text(FLEET)
    return path


def run(*arguments: Any) -> str:
    out = io.StringIO()
    call_command("fleet", "import", *map(str, arguments), stdout=out)
    return out.getvalue()


def test_an_import_makes_the_deployment_its_plans_and_its_key(file: Path) -> None:
    said = run(file)
    assert said.endswith("Imported: 1 team added, 1 deployment added, 1 node added.\n")
    assert "the-key-of-prefill" not in said
    deployment = Deployment.objects.get()
    assert loaded_target(deployment).nodes[0].credentials.headers == (
        ("Authorization", "Bearer the-key-of-prefill"),
    )
    plans = Plan.objects.filter(deployments=deployment)
    assert "glm-prod minutely" in {plan.name for plan in plans}
    assert plans.count() > 1  # the default plans beside the file's own
    assert Entry.objects.filter(actor="command:fleet", kind="fleet.imported").exists()


def test_a_dry_run_changes_nothing(file: Path) -> None:
    said = run(file, "--dry-run")
    assert "Dry run, nothing was changed: 1 team added, 1 deployment added, 1 node added." in said
    assert not Deployment.objects.exists()
    assert not Plan.objects.exists()


def test_again_is_nothing_to_change(file: Path) -> None:
    run(file)
    plans = Plan.objects.count()
    assert run(file) == "Imported: nothing to change.\n"
    assert Plan.objects.count() == plans


def test_problems_have_lines_and_the_command_fails(file: Path) -> None:
    file.write_text(FLEET.replace("http://10", "ftp://10"))
    with pytest.raises(CommandError, match=r"(?s)Nothing was imported\.\nline 7: ") as refused:
        run(file)
    assert refused.value.returncode == 3
    assert not Deployment.objects.exists()


def test_a_file_that_cannot_be_read_is_a_sentence(tmp_path: Path) -> None:
    for path in (tmp_path / "absent.yaml", tmp_path):
        with pytest.raises(CommandError, match="cannot be read"):
            run(path)


def test_json_for_scripts(file: Path) -> None:
    document = json.loads(run(file, "--json"))
    assert document["imported"] is True
    assert [difference["what"] for difference in document["differences"]] == ["team", "deployment", "node"]


def test_csv_is_told_by_the_name(tmp_path: Path) -> None:
    path = tmp_path / "fleet.csv"
    path.write_text("slug,team,url\nglm-prod,serving,http://10.0.0.1:30000\n")
    assert "1 deployment added" in run(path)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("key_env: FLEET_TEST_KEY", "key_env: {key}"),
        ("role: prefill", "role: {key}"),
        ("prefill-0", "'{key}', name: '{key}'"),
        ("team: serving", "{key}: serving"),
        ("every: 60s", "cron: '{key} * * * *'"),
        ("checks: [pool, version]", "checks: [{key}]"),
        ("glm-prod", "{key}!"),
    ],
)
def test_no_message_repeats_a_key(file: Path, old: str, new: str, capsys: pytest.CaptureFixture[str]) -> None:
    key = "sk-live-4f9a8b7c6d5e4f3a"
    file.write_text(FLEET.replace(old, new.format(key=key)))
    with pytest.raises(CommandError) as refused:
        run(file, "--json")
    assert key not in str(refused.value) + "".join(capsys.readouterr())


def test_a_key_in_the_place_of_a_variables_name_is_not_repeated_by_a_note(file: Path) -> None:
    """In capitals it passes for a name."""
    file.write_text(FLEET.replace("FLEET_TEST_KEY", "AKIAIOSFODNN7EXAMPLE"))
    assert "AKIAIOSFODNN7EXAMPLE" not in run(file)
