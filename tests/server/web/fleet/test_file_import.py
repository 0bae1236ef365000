"""Import: see before it happens, named lines, nothing lost, all or nothing."""

from __future__ import annotations

import re

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from kvaudit.server.audits.models import Plan
from kvaudit.server.fleet.models import Deployment, Node
from kvaudit.server.web.fleet.file_import import page as importing
from tests.factories import a_team

FILE = """schema: kvaudit.fleet/1
deployments:
  - slug: chat-new
    team: {team}
    engine: sglang
    model: example/chat
    nodes:
      - {{name: prefill-0, role: prefill, url: "http://10.0.0.1:30000"}}
      - {{name: decode-0, role: decode, url: "http://10.0.0.2:30000"}}
"""


@pytest.fixture
def file(people) -> str:
    return FILE.format(team=people.team.slug)


def confirmation(page: str) -> dict[str, str]:
    seen = re.search(r'name="seen" value="([0-9a-f]{64})"', page)
    format = re.search(r'name="format" value="(\w+)"', page)
    assert seen
    assert format
    return {"step": "confirm", "seen": seen[1], "format": format[1]}


def test_a_preview_changes_nothing_and_a_confirmation_everything(people, file):
    page = people.operator.post("/import/", {"text": file}).content.decode()
    assert "1 deployment added, 2 nodes added" in page
    assert "http://10.0.0.1:30000" in page
    assert not Deployment.objects.exists()
    answer = people.operator.post("/import/", {"text": file, **confirmation(page)}, follow=True)
    assert "Imported: 1 deployment added, 2 nodes added" in answer.content.decode()
    deployment = Deployment.objects.get()
    assert deployment.nodes.count() == 2
    planned = {check for plan in Plan.objects.for_deployment(deployment) for check in plan.checks}
    assert {"pool", "version", "drift"} <= planned


def test_an_upload_does_the_same_as_pasting(people, file):
    upload = SimpleUploadedFile("fleet.yaml", b"\xef\xbb\xbf" + file.replace("\n", "\r\n").encode())
    page = people.operator.post("/import/", {"file": upload, "text": ""}).content.decode()
    assert "1 deployment added, 2 nodes added" in page
    assert "slug: chat-new" in page, "the text goes into the form"


def test_csv_is_recognised(people):
    text = f"slug,team,name,url\nchat-csv,{people.team.slug},n0,http://10.0.0.1:30000\n"
    page = people.operator.post("/import/", {"text": text}).content.decode()
    assert 'name="format" value="csv"' in page
    assert "chat-csv" in page


def test_problems_name_their_lines_and_the_text_stays(people, file):
    bad = file.replace('url: "http://10.0.0.2:30000"', 'url: "ftp://10.0.0.2"')
    answer = people.operator.post("/import/", {"text": bad})
    page = answer.content.decode()
    assert answer.status_code == 422
    assert re.search(r'<td class="num">9</td>', page)
    assert "ftp://10.0.0.2" in page
    assert "slug: chat-new" in page
    assert 'name="seen"' not in page, "there is nothing to confirm"
    assert not Deployment.objects.exists()


@pytest.mark.parametrize(
    "text",
    ["", "   \n", "]", "a: &a [*a]", "\x00\x01", "deployments: 7", "<script>alert(1)</script>", "x" * 100_000,
     "deployments:\n  - slug: '\u202e'\n", "!!python/object/apply:os.system ['true']", "slug,team\n\"open"],
)  # fmt: skip
def test_broken_files_get_a_sentence_never_a_failure(people, text):
    answer = people.operator.post("/import/", {"text": text})
    assert answer.status_code == 422
    assert b"<script>alert" not in answer.content
    assert b'role="alert"' in answer.content
    assert not Deployment.objects.exists()


def test_a_file_that_is_no_text_is_named_as_such(people, file):
    answer = people.operator.post(
        "/import/", {"file": SimpleUploadedFile("fleet.yaml", b"a: \xff\xfe"), "text": file}
    )
    page = answer.content.decode()
    assert "not UTF-8 text (byte 4)" in page
    assert "slug: chat-new" in page, "what was pasted is kept"


def test_a_file_that_is_too_large_is_sent_to_the_command_line(people, monkeypatch):
    monkeypatch.setattr(importing, "LARGEST", 100)
    answer = people.operator.post("/import/", {"text": "# " + "x" * 200})
    assert answer.status_code == 422
    assert "manage.py fleet import FILE" in answer.content.decode()


def test_what_changed_meanwhile_is_shown_again_instead_of_done(people, file):
    page = people.operator.post("/import/", {"text": file}).content.decode()
    first = confirmation(page)
    people.operator.post("/import/", {"text": file, **first})
    changed = file.replace("example/chat", "example/other")
    answer = people.operator.post("/import/", {"text": changed, **first})
    assert answer.status_code == 409
    assert "The fleet changed since you looked" in answer.content.decode()
    assert Deployment.objects.get().model == "example/chat"
    assert Node.objects.count() == 2


def test_a_plan_that_is_wrong_undoes_the_import(people, file, monkeypatch):
    def refuse(**kwargs):
        raise importing.PlanProblem("no such hour.")

    page = people.operator.post("/import/", {"text": file}).content.decode()
    monkeypatch.setattr(importing, "ensure_default_plans", refuse)
    answer = people.operator.post("/import/", {"text": file, **confirmation(page)})
    assert "no such hour" in answer.content.decode()
    assert not Deployment.objects.exists()


def test_only_operators_import_and_only_into_their_teams(people, file):
    assert people.viewer.get("/import/").status_code == 403
    assert people.viewer.post("/import/", {"text": file}).status_code == 403
    foreign = file.replace(people.team.slug, a_team().slug)
    answer = people.operator.post("/import/", {"text": foreign})
    assert answer.status_code == 422
    assert not Deployment.objects.exists()


def test_the_sample_is_a_file_that_parses(people):
    page = people.operator.get("/import/?sample=1").content.decode()
    assert "kvaudit.fleet/1" in page
    from django.template.loader import render_to_string

    from kvaudit.auditor.fleetfile import parse_fleet

    assert parse_fleet(render_to_string("fleet/sample.yaml")).usable


SECRETS = {
    "in the place of a variable's name": ("key_env: {key}", "swordfish"),
    "under a field that there is not": ("api_key: {key}", "swordfish"),
    "in a header": ("headers_env: {{Authorization: Bearer {key}}}", "swordfish"),
    "as a header's variable": ("headers_env: {{x-custom: {key}}}", "swordfish"),
    "as a field": ("{key}: 1", "sk-live-4f9a8b7c6d5e"),
    "in the role": ("role: {key}", "sk-live-4f9a8b7c6d5e"),
    "in the engine": ("engine: {key}", "hunter2hunter2"),
    "in the URL": ("entry: {key}", "4f9a8b7c6d5e4f3a2b1c"),
    "in a URL": ("entry: http://u:{key}@host", "swordfish"),
    "as a number": ("pointers: {{{key}: /a}}", "sk-live-4f9a8b7c6d5e"),
    "twice": ("role: prefill, role: {key}", "sk-live-4f9a8b7c6d5e"),
    "in broken YAML": ("key_env: *{key}", "swordfishkey1234x5"),
    "as a tag": ("role: !{key} x", "sk-live-4f9a8b7c6d5e"),
}


@pytest.mark.parametrize("how", list(SECRETS))
@pytest.mark.parametrize("uploaded", [True, False])
def test_a_key_in_the_file_is_never_repeated(people, how, uploaded):
    """Not by the sentence, not by the line beside it, and not by the form that comes back."""
    field, key = SECRETS[how]
    text = (
        "schema: kvaudit.fleet/1\ndeployments:\n  - slug: d\n    team: t\n    owner: Ada\n"
        f"    nodes:\n      - {{name: n0, url: 'http://10.0.0.1:1', {field.format(key=key)}}}\n"
    )
    sent = {"file": SimpleUploadedFile("fleet.yaml", text.encode())} if uploaded else {"text": text}
    answer = people.operator.post("/import/", sent)
    page = answer.content.decode()
    assert answer.status_code == 422, page
    assert key not in page
    assert "owner: Ada" in page, "the rest of what was typed is there"


def test_a_key_in_a_table_is_never_repeated(people):
    for cells in (
        "d,http://10.0.0.1:1,swordfish,",
        "d,http://10.0.0.1:1,,a=swordfish",
        "d,swordfish:x,swordfish,",
    ):
        page = people.operator.post(
            "/import/", {"text": f"slug,url,key_env,tenants\n{cells}\n"}
        ).content.decode()
        assert "problem" in page
        assert "swordfish," not in page
        assert "=swordfish" not in page


def test_a_key_elsewhere_than_the_mistake_is_not_repeated_either(people):
    text = (
        "schema: kvaudit.fleet/1\ndeployments:\n  - slug: d\n    owner: Ada\n    nodes:\n"
        "      - name: n0\n        url: http://10.0.0.1:1\n        api_key: swordfish\n   broken: [\n"
    )
    page = people.operator.post("/import/", {"text": text}).content.decode()
    assert "no valid YAML" in page
    assert "swordfish" not in page
    assert "owner: Ada" in page
