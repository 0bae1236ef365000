"""``session:`` of a fleet file: what is read, and the line of every mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kvaudit.auditor.fleetfile import parse_fleet
from kvaudit.auditor.fleetfile.session import FIELDS, POOL_FIELDS, STEP_FIELDS

PAGE = (Path(__file__).parents[3] / "docs" / "active" / "session.md").read_text("utf-8")

FILE = """\
schema: kvaudit.fleet/1
deployments:
  - slug: game
    engine: generic
    nodes: [{url: "http://game:8080/pool", pointers: {capacity: /size}}]
    session:
      url: "http://game:8080/api"
      pool: {path: /pool, capacity: /size, in_use: /used}
      largest: 8
      wait: 10s
      without: [late]
      steps:
        claim: {method: POST, path: /sessions, body: {size: "{{size}}", deep: [1, null, {a: true}]}, capture: {id: /id}}
        seed: {method: PUT, path: "/sessions/{{id}}", body: {name: "{{marker}}"}}
        read: [{method: GET, path: "/sessions/{{id}}"}, {method: GET, path: "/sessions/{{id}}/list?all=1"}]
        write: {method: PUT, path: "/sessions/{{id}}", body: {name: "{{marker}}"}}
        end: {method: DELETE, path: "/sessions/{{id}}"}
"""


def test_everything_is_read() -> None:
    fleet = parse_fleet(FILE)
    assert fleet.problems == ()
    plan = fleet.deployments[0].session
    assert plan is not None
    assert (plan.url, plan.largest, plan.wait, plan.without) == ("http://game:8080/api", 8, 10, {"late"})
    assert (plan.pool_path, plan.pool) == ("/pool", (("capacity", "/size"), ("in_use", "/used")))
    assert [step.path for step in plan.of("read")] == ["/sessions/{{id}}", "/sessions/{{id}}/list?all=1"]
    assert plan.of("claim")[0].body == '{"size": "{{size}}", "deep": [1, null, {"a": true}]}'
    assert plan.of("claim")[0].capture == (("id", "/id"),)
    assert plan.of("echo") == ()


def test_without_session_nothing_is_there() -> None:
    fleet = parse_fleet(FILE.partition("    session:")[0])
    assert fleet.problems == ()
    assert fleet.deployments[0].session is None


def test_the_page_shows_a_file_that_can_be_read_and_every_field() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S)
    fleet = parse_fleet(example)
    assert fleet.problems == ()
    assert fleet.deployments[0].session is not None
    names = (*FIELDS, *STEP_FIELDS, *POOL_FIELDS)
    assert [name for name in names if not re.search(rf"\b{name}\b", PAGE)] in ([], ["shards"])


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ('"http://game:8080/api"', "game", 7, "must begin with http"),
        ("largest: 8", "largest: many", 9, "whole number"),
        ("largest: 8", "largest: 0", 9, "whole number"),
        ("wait: 10s", "wait: 2h", 10, "at most 600 s"),
        ("[late]", "[later]", 11, "did you mean late"),
        ("path: /pool, capacity", 'path: "/pool/{{id}}", capacity', 8, "must hold no {{ }}"),
        ("capacity: /size, in_use: /used", "in_use: /used", 8, "pointer to its capacity"),
        ("in_use: /used", "in_use: used", 8, "begins with /"),
        ("method: DELETE", "method: HEAD", 17, "method 'HEAD' is unknown"),
        ('path: "/sessions/{{id}}"}\n', 'path: "/sessions/../{{id}}"}\n', 17, "no . or .."),
        ('path: "/sessions/{{id}}"}\n', 'path: "//evil/{{id}}"}\n', 17, "no //"),
        ('path: "/sessions/{{id}}"}\n', 'path: "/sessions/{{other}}"}\n', 17, "{{other}}"),
        ('path: "/sessions/{{id}}"}\n', 'path: "/sessions/{{ID}}"}\n', 17, "no name"),
        ("capture: {id: /id}", "capture: {number: /id}", 13, "must capture id"),
        ("capture: {id: /id}", "capture: {id: /id, marker: /m}", 13, "none of marker"),
        ("capture: {id: /id}", "capture: {id: id}", 13, "begins with /"),
        ("        end: {", "        fin: {", 17, "has no field 'fin'"),
        ('write: {method: PUT, path: "/sessions/{{id}}", body: {name: "{{marker}}"}}', 'write: {method: PUT, path: "/sessions/{{id}}"}', 16, "writes no {{marker}}"),
        ("largest: 8", "token: 8", 9, "secrets never stand in a fleet file"),
    ],
)  # fmt: skip
def test_mistakes_are_named_with_their_line(old: str, new: str, line: int, said: str) -> None:
    text = FILE
    assert old in text
    at = text.rindex(old) if "DELETE" in old or old.startswith('path: "/sessions') else text.index(old)
    fleet = parse_fleet(text[:at] + new + text[at + len(old) :])
    assert any(problem.line == line and said in problem.sentence for problem in fleet.problems), (
        fleet.problems
    )


@pytest.mark.parametrize("name", ["claim", "seed", "read", "write", "end"])
def test_needed_steps(name: str) -> None:
    text = re.sub(rf"        {name}: .*\n", "", FILE)
    sentences = [problem.sentence for problem in parse_fleet(text).problems]
    assert f"steps has no {name}; the check cannot do without it." in sentences


@pytest.mark.parametrize(
    "shape",
    [
        "session: 1",
        "session: [1]",
        "session: {steps: 3, url: 4}",
        "session: {}",
        "session: {steps: {claim: [[1]]}}",
    ],
)
def test_other_shapes_are_sentences(shape: str) -> None:
    fleet = parse_fleet(FILE.partition("    session:")[0] + f"    {shape}\n")
    assert fleet.problems
    assert all(problem.line == 6 for problem in fleet.problems)
