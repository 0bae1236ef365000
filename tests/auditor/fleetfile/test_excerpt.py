"""The line beside a mistake shows known fields, and nothing that a key may have been pasted into."""

from __future__ import annotations

import pytest

from kvaudit.auditor.fleetfile import Problem
from kvaudit.auditor.fleetfile.excerpt import excerpt, kept
from kvaudit.auditor.text.quoting import HIDDEN

YAML = [
    ("  - slug: glm-prod", "  - slug: glm-prod"),
    (
        "      - {name: prefill-0, role: prefil, url: http://a:1}",
        "      - {name: prefill-0, role: prefil, url: http://a:1}",
    ),
    ("    plans: [{checks: [pol, version]}]", "    plans: [{checks: [pol, version]}]"),
    ("        key_env: PREFILL_KEY", "        key_env: PREFILL_KEY"),
    ("        key_env: swordfish", "        key_env: …"),
    ("        headers_env: {Authorization: swordfish}", "        headers_env: {…: …}"),
    ("        api_key: swordfish", "        …: …"),
    ("        key: 'sword fish'", "        …: …"),
    ("        token: swordfish # as told", "        …: …"),
    ("      - {name: a, pasword: swordfish, role: prefil}", "      - {name: a, …: …, role: prefil}"),
    ("        swordfish", "        …"),
    ("      - swordfish", "      - …"),
    ("      - version", "      - version"),
    ("swordfish: {", "…: {"),
    ("        url: sk-live-4f9a8b7c", "        url: (not shown, it could be a key)"),
    ("        name: hunter2hunter2", "        name: (not shown, it could be a key)"),
    ("  owner: Ada  # key sk-live-4f9a8b7c", "  owner: Ada"),
    ("        url: http://u:swordfish@a:1", None),
    ('{"key_env": "swordfish", "name": "a"}', '{"key_env": …, "name": "a"}'),
    ("\tkey_env:swordfish", "\t…"),
]


@pytest.mark.parametrize(("line", "shown"), YAML)
def test_yaml(line: str, shown: str | None) -> None:
    said = excerpt([line], 1, "yaml")
    assert "swordfish" not in said
    assert "sk-live" not in said
    if shown is not None:
        assert said == shown


HEADER = "slug,url,name,key_env,tenants,note"


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("glm,http://a:1,n0,NODE_KEY,a=KEY_A;b=KEY_B,", "glm,http://a:1,n0,NODE_KEY,a=KEY_A;b=KEY_B,"),
        ("glm,http://a:1,n0,swordfish,a=KEY_A;b=swordfish,", "glm,http://a:1,n0,…,a=KEY_A;…,"),
        ("glm,http://a:1,n0,,,swordfish", "glm,http://a:1,n0,,,…"),
        ("glm,swordfish", "…"),
        ('glm,"swordfish', "…"),
        ("glm,sk-live-4f9a8b7c,n0,,,", "glm,(not shown, it could be a key),n0,,,"),
    ],
)
def test_csv(line: str, shown: str) -> None:
    said = excerpt([HEADER, line], 2, "csv")
    assert "swordfish" not in said
    assert "sk-live" not in said
    assert said == shown or "sk-live" in line
    assert excerpt(["slug,swordfish"], 1, "csv") == "slug,…"


def test_no_such_line() -> None:
    assert excerpt(["a"], 0, "yaml") == excerpt(["a"], 2, "yaml") == excerpt([], 1, "csv") == ""


def test_a_whole_file_on_one_line_stays_in_the_form() -> None:
    """JSON as machines write it: a mistake anywhere is on line 1."""
    slugs = ", ".join(f'{{"slug": "chat-{number}"}}' for number in range(300))
    line = f'{{"deployments": [{slugs}], "owner": "sk-live-4f9a8b7c"}}'
    again = kept(line, [Problem(1, "The file has no field 'owner'.")], "yaml")
    assert again == line.replace("sk-live-4f9a8b7c", HIDDEN)
