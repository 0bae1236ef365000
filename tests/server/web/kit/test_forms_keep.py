"""Whatever a form does not take comes back: status 422, the error at its field with a link to it, nothing typed lost.

The forms come from the pages, the pages from the URL conf: a new form is tried without anybody thinking of it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from kvaudit.server.accounts.models import User
from kvaudit.server.incidents import postmortem, restore
from kvaudit.server.incidents.models import Incident
from tests.factories import an_admin
from tests.server.incidents.builders import an_operator
from tests.server.web import builders
from tests.server.web.addresses import PATTERNS
from tests.server.web.test_strangers import rows_for

pytestmark = pytest.mark.django_db

LENGTHS = {
    "too long": "x" * 30_000,
    "hostile": "<script>\u202e\x1b" + "'\"x" * 10_000,
    "NUL": "\x00" + "x" * 30_000,
}
TEXTS = {"text", "search", "url", "email", "number", "date", "textarea"}


@dataclass
class Found:
    """One form of a page."""

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    buttons: list[tuple[str, str]] = field(default_factory=list)
    choices: list[str] = field(default_factory=list)


class Forms(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[Found] = []
        self._open: Found | None = None
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = Found(given.get("action", ""), given.get("method", "get").lower())
            self.found.append(self._open)
        if self._open is None or ("name" not in given and tag != "option") or "disabled" in given:
            return
        if (tag == "textarea" and "readonly" not in given and "hidden" not in given) or (
            tag == "input" and given.get("type", "text") in TEXTS
        ):
            self._open.texts.append(given["name"])
        elif tag == "input" and given.get("type") == "hidden":
            self._open.fields[given["name"]] = given.get("value", "")
        elif tag == "button":
            self._open.buttons.append((given["name"], given.get("value", "")))
        elif tag == "select":
            self._select = given["name"]
            self._open.choices.append(self._select)
            self._open.fields.setdefault(self._select, "")
        elif tag == "option" and self._select and not self._open.fields[self._select]:
            self._open.fields[self._select] = given.get("value", "")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None
        if tag == "select":
            self._select = ""


@pytest.fixture
def world(people, pair) -> dict[str, Any]:
    """A page of everything that has a form, as an administrator sees it; the incidents in two states."""
    builders.a_state(
        pair, {**dict.fromkeys(builders.REQUIRED, "pass"), "pool": "fail"}, measures=builders.SHORT_POOL
    )
    builders.a_run(pair, {"pool": "fail"}, measures=builders.SHORT_POOL)
    admin = an_admin("boss")
    named = rows_for(admin, people, pair)
    sealed = builders.a_run(pair, {"pool": "pass"})
    kept = builders.keep(sealed, b"sealed")
    sealed.evidence_uses.update(kind="sealed") if hasattr(sealed, "evidence_uses") else None
    incident = Incident.objects.get()
    operator = an_operator(pair)
    now = incident.opened_at
    postmortem.put_event(incident=incident, actor=operator, at=now, text="It began.")
    client = Client()
    client.force_login(User.objects.get(pk=admin.pk))
    return {
        "client": client,
        "named": named,
        "incident": incident,
        "operator": operator,
        "kept": (sealed, kept),
    }


def pages(world: dict[str, Any]) -> Iterator[str]:
    for pattern in PATTERNS:
        if not pattern.pattern.converters:
            yield reverse(pattern.name)
        elif pattern.name in world["named"]:
            yield reverse(pattern.name, kwargs=world["named"][pattern.name])


def forms_of(world: dict[str, Any]) -> Iterator[tuple[str, Found]]:
    """Address of the page and form; the incident's page before and after it was mitigated."""
    client, seen = world["client"], set()
    mitigated = False
    for address in [*pages(world), f"/incidents/{world['incident'].pk}/"]:
        if (
            address == f"/incidents/{world['incident'].pk}/"
            and mitigated is False
            and ("act", address) in seen
        ):
            restore.mitigate(incident=world["incident"], actor=world["operator"], reason="Edge limit.")
            restore.record_fix(incident=world["incident"], actor=world["operator"], description="Upgraded.")
            restore.request_override(incident=world["incident"], actor=world["operator"], reason="Down.")
            mitigated = True
        seen.add(("act", address))
        answer = client.get(address)
        assert answer.status_code < 500, address
        if answer.status_code != 200 or not answer["Content-Type"].startswith("text/html"):
            continue
        parser = Forms()
        parser.feed(answer.getvalue().decode())
        for form in parser.found:
            action = form.action.partition("?")[0] or address
            key = (action, tuple(sorted(form.texts)), tuple(form.buttons), tuple(sorted(form.fields)))
            if form.method == "post" and form.texts and key not in seen:
                seen.add(key)
                form.action = action
                yield address, form


def problems(answer: Any, markers: dict[str, str]) -> list[str]:
    """What is missing in an answer that had to refuse."""
    if answer.status_code != 422:
        return [f"status {answer.status_code}"]
    page, found = answer.getvalue().decode(), []
    text = unescape(page)
    found += [f"{name} is lost" for name, marker in markers.items() if marker not in text]
    targets = re.findall(r'role="alert".*?</(?:ul|h2|p)>(?!\s*<ul)', page, re.S)
    linked = [each for target in targets for each in re.findall(r'href="#([^"]+)"', target)]
    if not linked:
        found.append("no error with a link to its field")
    for each in linked:
        tag = re.search(rf'<[^>]*\bid="{re.escape(each)}"[^>]*>', page)
        if tag is None:
            found.append(f"no field {each}")
            continue
        if 'aria-invalid="true"' not in tag[0] and not tag[0].startswith("<fieldset"):
            found.append(f"{each} is not marked as invalid")
        described = re.search(r'aria-describedby="([^"]+)"', tag[0])
        if described is None or not all(f'id="{one}"' in page for one in described[1].split()):
            found.append(f"{each} is not described by its error")
        closed = [
            d
            for d in re.findall(r"<details(?![^>]*\bopen)[^>]*>.*?</details>", page, re.S)
            if f'id="{each}"' in d
        ]
        if closed:
            found.append(f"{each} is folded away")
    return found


@pytest.mark.parametrize("length", LENGTHS)
def test_every_form_gives_back_what_it_does_not_take(world, length):
    client, wrong, tried = world["client"], {}, set()
    client.raise_request_exception = False
    for address, form in forms_of(world):
        if form.action in ("/login/", "/password/"):
            continue
        for name, value in form.buttons or [("", "")]:
            if value in {"withdraw-event", "end", "resume", "withdraw", "done"} and len(form.buttons) > 1:
                continue  # buttons beside the one that takes the text
            markers = {text: f"marker {number} of {text}" for number, text in enumerate(form.texts)}
            # A blank between them: one long word could be a key, and no page repeats that.
            given = {**form.fields, **{text: f"{markers[text]} {LENGTHS[length]}" for text in form.texts}}
            answer = client.post(form.action, {**given, **({name: value} if name else {})})
            secret = {
                marker
                for marker in markers
                # A line of a fleet file that could hold a key comes back without it: tests/auditor/fleetfile/test_excerpt.py.
                if "secret" in marker
                or (marker, form.action) == ("text", "/import/")
                or (marker == "key" and "/keys/" in form.action)
            }
            kept = {each: marker for each, marker in markers.items() if each not in secret}
            if found := problems(answer, kept):
                wrong[address, form.action, value] = found
            tried.add((form.action, value))
    assert not wrong, "\n".join(f"{key}: {found}" for key, found in wrong.items())
    assert len(tried) > 25, tried


def test_no_choice_that_is_none_of_ours_breaks_a_form(world):
    client, wrong = world["client"], {}
    client.raise_request_exception = False
    for address, form in forms_of(world):
        if not form.choices or form.action in ("/login/", "/password/"):
            continue
        for name, value in form.buttons or [("", "")]:
            given = {
                **form.fields,
                **dict.fromkeys(form.texts, "some words"),
                **dict.fromkeys(form.choices, "9\x00<b>"),
            }
            answer = client.post(form.action, {**given, **({name: value} if name else {})})
            if answer.status_code != 422:
                wrong[address, form.action, value] = answer.status_code
    assert {key: status for key, status in wrong.items() if status not in (302, 200)} == {}
