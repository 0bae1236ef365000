"""The five names that a program may count on."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kvaudit.auditor import api
from kvaudit.auditor.api import Verdict, load_fleet, run
from kvaudit.auditor.targets import TargetError
from tests import servers

FILE = """schema: kvaudit.fleet/1
deployments:
  - slug: glm
    nodes:
      - {{name: prefill-0, role: prefill, url: "{url}"}}
"""


def test_the_front_door_has_five_names():
    assert set(api.__all__) == {"Target", "run", "Verdict", "Result", "load_fleet"}


def test_a_fleet_file_is_loaded_and_audited(tmp_path):
    path = tmp_path / "fleet.yaml"
    with servers.background(
        servers.sglang_node(servers.payload("sglang/server_info-prefill-0.5.19.json"))
    ) as server:
        path.write_text(FILE.format(url=server.url))
        (target,) = load_fleet(path)
        results = run(target, ["pool", "version"], seconds=30)
    assert [result.check for result in results] == ["pool", "version"]
    assert all(result.summary and result.verdict in Verdict for result in results)


def test_a_target_that_is_silent_is_no_pass(tmp_path):
    path = tmp_path / "fleet.yaml"
    path.write_text(FILE.format(url="http://127.0.0.1:9"))
    results = run(load_fleet(path)[0])
    assert {result.verdict for result in results} == {Verdict.ERROR}


def test_mistakes_are_sentences(tmp_path):
    with pytest.raises(TargetError, match="cannot be read"):
        load_fleet(tmp_path / "nothing.yaml")
    path = tmp_path / "fleet.yaml"
    path.write_text(FILE.format(url="http://127.0.0.1:9"))
    with pytest.raises(ValueError, match="no check called 'poool'"):
        run(load_fleet(path)[0], ["poool"])


def test_it_knows_no_django_and_the_packages_import_nothing():
    code = (
        "import sys, kvaudit, kvaudit.auditor; assert [n for n in sys.modules if n.startswith('kvaudit')] == "
        "['kvaudit', 'kvaudit.auditor']; import kvaudit.auditor.api; "
        "print([n for n in ('django', 'celery', 'numpy', 'psycopg') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
