"""May a node take traffic? The page must say what the gate would, and hand out a line that works."""

from __future__ import annotations

import html
import re
import shlex

import pytest
from django.utils import timezone

from kvaudit.auditor.commands import gate
from kvaudit.server.fleet.models import Node
from kvaudit.server.incidents.models import Quarantine
from tests.server.web import builders
from tests.server.web.pages import page_text

PASS = dict.fromkeys(builders.REQUIRED, "pass")


def said(person, pair):
    answer = person.get(f"/d/{pair.slug}/gate/")
    assert answer.status_code == 200
    return html.unescape(page_text(answer))


@pytest.mark.parametrize(
    ("verdicts", "expired", "sentence"),
    [
        (PASS, False, "Yes, by what was last read: the gate is open."),
        ({**PASS, "pool": "fail"}, False, "No: the gate is closed."),
        ({**PASS, "canary": "fail"}, False, "No: the gate is closed."),
        ({**PASS, "drift": "inconclusive"}, False, "Not known, so no: the gate opens on a pass alone."),
        ({**PASS, "version": "error"}, False, "Not known, so no: something could not be read."),
        ({"drift": "pass"}, False, "Not known, so no: the gate opens on a pass alone."),  # pool never read
        (PASS, True, "Not known, so no: the gate opens on a pass alone."),
    ],
)
def test_the_answer(people, pair, verdicts, expired, sentence):
    builders.a_state(pair, verdicts, expired=expired)
    page = said(people.viewer, pair)
    assert sentence in page
    assert page.count("the gate is open.") == (verdicts == PASS and not expired)


def test_quarantine_closes_it_and_says_why(people, pair):
    builders.a_state(pair, PASS)
    Quarantine.objects.create(
        deployment=pair, reason="A customer saw foreign text.", valid_from=timezone.now(), set_by="ada"
    )
    page = said(people.viewer, pair)
    assert "No: the gate is closed." in page
    assert "A customer saw foreign text." in page


def test_the_line_is_one_that_the_command_takes(people, pair, settings):
    page = said(people.viewer, pair)
    words = shlex.split(re.search(r'aria-label="Command">(.*?)</pre>', page, re.S)[1])
    assert words[:2] == ["kvaudit", "gate"]
    given = gate.parser().parse_args(words[2:])
    assert (given.server, given.deployment, given.token_env) == (
        settings.BASE_URL,
        pair.slug,
        "KVAUDIT_TOKEN",
    )
    assert len(given.node) == 2
    assert given.context == "1048576"


def test_without_nodes_there_is_no_line(people, pair):
    Node.objects.filter(deployment=pair).update(valid_to=timezone.now())
    assert "No node is listed" in said(people.viewer, pair)


def test_strangers_do_not_learn_of_it(people, pair):
    assert people.stranger.get(f"/d/{pair.slug}/gate/").status_code == 404


def test_the_deployment_leads_there(people, pair):
    assert f'href="/d/{pair.slug}/gate/"' in page_text(people.viewer.get(f"/d/{pair.slug}/"))
