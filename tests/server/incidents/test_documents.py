"""Documents: the schema of one file, the Markdown, the public version, the library."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from kvaudit.auditor.advisories.load import shipped as advisories
from kvaudit.server.audits.models import CheckState
from kvaudit.server.incidents import export, library, postmortem
from kvaudit.server.incidents.document import Document, DocumentProblem, Moment, parse, parse_yaml
from kvaudit.server.incidents.markdown import to_markdown
from kvaudit.server.incidents.transitions import IncidentProblem
from kvaudit.server.web.kit.markdown import render
from tests.factories import a_team, a_user
from tests.server.incidents.builders import a_result, a_state, a_target, an_incident, an_operator
from tests.server.web.builders import a_plan
from tests.waiting import bounded

MINIMAL = "schema: kvaudit.incident/1\nid: x\ntitle: Something\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title: x", "schema"),
        ("schema: kvaudit.incident/1\nid: x", "no title"),
        (MINIMAL + "colour: red", "'colour'"),
        (MINIMAL + "timeline: soon", "list"),
        (MINIMAL + "timeline: [soon]", "Entry 1 of `timeline`"),
        (MINIMAL + "timeline: [{at: today}]", "lacks a field"),
        (MINIMAL + "timeline: [{at: today, what: x, why: y}]", "'why'"),
        (MINIMAL + "causes: {a: b}", "list"),
        (MINIMAL + "summary: [a]", "text"),
        (MINIMAL + "primary_source_read: perhaps", "primary_source_read"),
        (MINIMAL.replace("id: x", "id: ../x"), "id"),
        ("a: [", "YAML in line"),
        (MINIMAL + "causes: [&a x, *a]", "alias"),
        (b"\xff\xfe", "UTF-8"),
        ("x" * 1_000_001, "larger"),
    ],
)
def test_what_is_no_incident_says_why(text, said):
    with pytest.raises(DocumentProblem, match=said):
        parse_yaml(text)


@pytest.mark.parametrize("document", library.shipped_documents(), ids=lambda each: each.id)
def test_every_shipped_incident_survives_its_own_yaml_and_json(document):
    assert parse_yaml(export.to_yaml(document)) == document
    assert parse(document.as_plain()) == document
    assert document.timeline
    assert all(moment.source and moment.confidence for moment in document.timeline)
    assert document.caught_by


def test_the_workers_ai_incident_reads_like_a_postmortem():
    text = to_markdown(
        next(document for document in library.shipped_documents() if document.id.startswith("workers-ai"))
    )
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# Cross-request KV-cache exposure in a hosted GLM-5.3 model",
        "## Summary",
        "## Impact",
        "## Figures",
        "## Timeline",
        "## Causes",
        "### How the causes combined",
        "## How it was detected",
        "## Detection gaps",
        "## Verification",
        "## Where sources disagree",
        "## Action items",
        "## Lessons",
        "## Checks and checklist",
    ]
    assert "primary source has not been read" in text
    assert "| tenants | unknown |" in text
    assert text.index("| known |") < text.index("| unknown |")
    assert "| 2026-09-08 | Reported through a bug-bounty platform. | one write-up | single-source |" in text
    html = str(render(text))
    assert html.count("<table>") == 6
    assert "<ol>" in html


def test_hostile_text_stays_text():
    document = Document(
        id="x",
        title="a | b <script>alert(1)</script>\u202e",
        summary="# Mine\n<img src=x onerror=alert(1)> [x](javascript:alert(1)) ![y](https://evil.example/y.png)",
        timeline=(Moment("2026-01-01", "one\ntwo | three"),),
    )
    text = to_markdown(document)
    assert "<script" not in text.replace("\\<", "")
    assert "one two \\| three" in text
    assert "\\[U+202E\\]" in text
    assert "](javascript:" not in text.replace("\\]", "")
    html = str(render(text))
    for evil in ("<script", "<img", "onerror=", 'javascript:alert(1)"', "\u202e"):
        assert evil not in html.replace("&lt;img src=x onerror=", "")
    assert 'href="javascript' not in html


def test_the_name_of_a_character_is_no_text_of_a_link():
    """``[U+2066](...)`` would be one, in a title as in what somebody wrote."""
    document = Document(id="x", title="\u2066(javascript:a)", summary="\u2066(https://evil.example)")
    text = to_markdown(document)
    assert "\\[U+2066\\](javascript:a)" in text
    assert "\\[U+2066\\](https://evil.example)" in text
    assert "<a " not in str(render(text))


@pytest.mark.django_db
def test_the_public_version_names_nobody():
    team = a_team("blue-team")
    incident = an_incident(a_target("glm-prod-eu", team=team))
    operator = a_user("greta", team=team, role="operator")
    postmortem.write_sections(
        incident=incident,
        actor=operator,
        texts={
            "summary": "Greta saw glm-prod-eu fail on prefill-0 (http://127.0.0.1:9/prefill-0, 10.1.2.3:30000), "
            "run 17; mail greta@example.com or see https://status.example.com/7.",
            "lessons": "glm-prod-european is another word.",
        },
    )
    postmortem.put_event(
        incident=incident,
        actor=operator,
        at=timezone.now(),
        text="greta restarted prefill-0",
        source="blue-team wiki",
    )
    incident.refresh_from_db()
    text = to_markdown(export.public(incident)) + export.to_json(export.public(incident))
    for name in (
        "greta",
        "Greta",
        "glm-prod-eu ",
        "prefill-0",
        "127.0.0.1",
        "10.1.2.3",
        "blue-team",
        "run 17",
    ):
        assert name not in text, name
    assert "https://status.example.com/7" in text
    assert "glm-prod-european" in text
    assert "auditor</summary>" not in text
    whole = to_markdown(export.document_of(incident))
    assert "greta restarted prefill-0" in whole
    assert "events recorded by the auditor" in whole


@pytest.mark.django_db
def test_one_file_out_and_in_again():
    incident = an_incident()
    text = export.to_yaml(export.document_of(incident)).encode()
    made = library.import_incident(text=text, actor=an_operator(incident.deployment))
    found = library.entry(f"incident-{incident.pk}")
    assert found.imported == made
    assert found.document == export.document_of(incident)
    with pytest.raises(IncidentProblem):
        library.import_incident(text=text, actor=a_user())


@pytest.mark.django_db
def test_importing_again_replaces_what_is_shown():
    operator = an_operator(a_target())
    for title in ("First", "Second"):
        library.import_incident(
            text=f"schema: kvaudit.incident/1\nid: cloudbleed-2017\ntitle: {title}\n".encode(), actor=operator
        )
    assert library.entry("cloudbleed-2017").document.title == "Second"
    assert len(library.entries()) == len(library.shipped_documents())


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("verdicts", "planned", "expired", "answer"),
    [
        ({"pool": "pass", "version": "pass"}, False, False, "prevented"),
        ({"canary": "pass"}, True, False, "caught"),
        ({"canary": "fail"}, True, False, "caught"),
        ({"canary": "pass"}, False, False, "missed"),
        ({"canary": "pass"}, True, True, "missed"),
        ({"canary": "inconclusive"}, True, False, "missed"),
        ({"canary": "error"}, True, False, "missed"),
        ({"pool": "pass"}, True, False, "missed"),
        ({}, True, False, "missed"),
    ],
)
def test_would_we_have_caught_this(verdicts, planned, expired, answer):
    deployment = a_target()
    for check, verdict in verdicts.items():
        a_state(a_result(deployment, check, verdict))
    if expired:
        CheckState.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    if planned:
        a_plan(deployment, checks=["canary"])
    document = Document(id="x", title="x", caught_by=("canary",), prevented_by=("pool", "version"))
    found = library.would_have_caught(document, library.fleet_of([deployment]))
    assert [each.answer for each in found] == [answer]
    assert found[0].why


@pytest.mark.django_db
def test_advisories_with_the_deployments_they_match():
    deployment = a_target()
    known = advisories().advisories[0].id
    rows = [{"id": known, "outcome": "applies"}, {"id": "KVA-none", "outcome": "applies"}]
    a_state(a_result(deployment, "version", "fail", measures={"builds": [{"advisories": rows}]}))
    found = library.advisories_with(library.fleet_of([deployment]))
    assert len(found) == len(advisories().advisories)
    assert (found[0].advisory.id, found[0].where) == (known, ((deployment, "applies"),))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: !!bool x", "is no YAML"),
        ("a: !!timestamp x", "is no YAML"),
        (f"a: {':'.join(['59'] * 300)}.5", "is no YAML"),
        ("a: !!python/object/apply:os.system [id]", "is no YAML"),
        ("a: &b [1]\nc: *b", "alias"),
        ("[" * 500_000, "deeper than 12"),
        ("{a: " * 200_000, "deeper than 12"),
        ("- " * 400_000, "deeper than 12"),
    ],
)
def test_a_hostile_file_is_a_sentence_and_soon(text: str, says: str) -> None:
    with bounded(60, "refusing it"), pytest.raises(DocumentProblem, match=says):
        parse_yaml(text)
