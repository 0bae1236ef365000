"""One key for two tenants is refused wherever keys come from, and never repeated."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kvaudit.auditor.fleetfile import parse_fleet, parse_fleet_csv
from kvaudit.auditor.fleetfile.keys import bearer_value, equal_keys
from kvaudit.auditor.targets import TargetError, from_file, from_flags
from kvaudit.cli import main

KEY = "sk-one-and-the-same-4711"
OTHER = "sk-another-4712"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ([("Authorization", f"Bearer {KEY}")], [("Authorization", f"Bearer {KEY}")], True),
        ([("Authorization", f"Bearer {KEY}")], [("authorization", f"  bearer   {KEY} ")], True),
        ([("Authorization", f"Bearer {KEY}")], [("X-API-Key", KEY)], True),
        ([("Authorization", f"Bearer Bearer {KEY}")], [("Authorization", f"Token {KEY}")], True),
        ([("api-key", f'"{KEY}"')], [("X-API-Key", f"{KEY}\t")], True),
        ([("Authorization", KEY), ("X-Trace", "1")], [("X-Trace", "1"), ("Authorization", KEY)], True),
        ([("Authorization", KEY)], [("Authorization", OTHER)], False),
        ([("Authorization", KEY)], [("Authorization", KEY.upper())], False),
        ([("Authorization", KEY), ("X-Tenant", "a")], [("Authorization", KEY), ("X-Tenant", "b")], False),
        ([("Authorization", KEY), ("X-Tenant", "a")], [("Authorization", KEY), ("X-Tenant", "a")], True),
        (
            [("Authorization", KEY), ("X-Gateway", OTHER)],
            [("Authorization", "x"), ("X-Gateway", OTHER)],
            False,
        ),
        ([], [], False),
    ],
)
def test_equal_keys(first: Any, second: Any, same: bool) -> None:
    said = equal_keys([("a", first), ("other", [("Authorization", "third")]), ("b", second)])
    assert bool(said) is same
    assert KEY not in said
    if same:
        assert "tenants a and b have one and the same key" in said


@pytest.mark.parametrize("given", ["k", " k ", "Bearer k", "bearer  k", "Bearer Bearer k"])
def test_the_word_bearer_may_be_pasted_with_the_key(given: str) -> None:
    assert bearer_value(given) == "Bearer k"


VALUES = [(KEY, KEY), (KEY, f" {KEY}\n"), (f"Bearer {KEY}", KEY)]


@pytest.mark.parametrize(("a", "b"), VALUES)
def test_two_variables_with_one_value(
    a: str, b: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEY_A", a)
    monkeypatch.setenv("KEY_B", b)
    with pytest.raises(TargetError, match="one and the same key"):
        from_flags(["http://127.0.0.1:9"], tenant_key_envs=["KEY_A", "KEY_B"])
    keys = ["--tenant-a-key-env", "KEY_A", "--tenant-b-key-env", "KEY_B"]
    for check in ("canary", "prefix", "session"):
        assert (
            main(["probe", check, "--node", "http://127.0.0.1:9", "--entry", "http://127.0.0.1:9", *keys])
            == 3
        )
        out, err = capsys.readouterr()
        assert "one and the same key" in err
        assert KEY not in out + err


def described(b: str) -> str:
    return (
        "schema: kvaudit.fleet/1\ndeployments:\n  - slug: d\n    nodes: [{url: 'http://127.0.0.1:9'}]\n"
        f"    tenants:\n      - {{name: a, key_env: KEY_A}}\n      - {{name: b, {b}}}\n"
    )


@pytest.mark.parametrize(
    "b",
    [
        "key_env: KEY_B",
        "headers_env: {Authorization: WHOLE_B}",
        "headers_env: {x-api-key: KEY_B}",
        "key_env: KEY_B, salt_env: SALT",
    ],
)
def test_a_fleet_file(tmp_path: Path, b: str) -> None:
    environ = {"KEY_A": KEY, "KEY_B": KEY, "WHOLE_B": f"Bearer {KEY}", "SALT": "s"}
    path = tmp_path / "fleet.yaml"
    path.write_text(described(b))
    with pytest.raises(TargetError, match="one and the same key") as refused:
        from_file(path, environ=environ)
    assert KEY not in str(refused.value)
    assert from_file(path, environ=environ, as_tenants=False), "who only reads nodes needs no keys"
    assert from_file(path, environ={**environ, "KEY_B": OTHER, "WHOLE_B": f"Bearer {OTHER}"})


@pytest.mark.parametrize("b", ["key_env: KEY_A", "headers_env: {x-api-key: KEY_A}"])
def test_one_variable_for_two_is_seen_in_the_file_alone(b: str) -> None:
    [problem] = parse_fleet(described(b)).problems
    assert "one and the same key" in problem.sentence
    table = parse_fleet_csv("slug,url,tenants\nd,http://127.0.0.1:9,a=KEY_A;b=KEY_A\n")
    assert "one and the same key" in table.problems[0].sentence
