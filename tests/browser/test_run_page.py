"""The run page in a browser: from a drawing to the request it shows, accessible, and nothing lost on paper."""

from __future__ import annotations

import hashlib
import zlib
from typing import Any

import pytest
from playwright.sync_api import expect

from kvaudit.server.audits.models import Evidence, Run, RunEvidence
from tests.browser.looks import WIDTHS, faults
from tests.canary_evidence import ON_ITS_WAY, added_up
from tests.factories import a_team
from tests.server.web import builders
from tests.server.web.deployment.figure_measures import REJECTION, canary

pytestmark = pytest.mark.django_db(transaction=True)

WHOSE = {
    "by_mode": {
        mode: {
            "answers": 60,
            "own": 41,
            "others": others,
            "foreign_words": 7,
            "controls": 40,
            "controls_foreign_words": 1,
        }
        for mode, others in (("completions with token ids", 2), ("chat with text", 0))
    },
    "traces": [
        {
            "kind": kind,
            "where": where,
            "planted_by": "tenant-b",
            "read_by": "tenant-a",
            "words": words,
            "tokens": 681_010,
            "verified": kind == "marker",
        }
        for kind, where, words in (
            ("marker", "text", "amber birch cedar delta"),
            ("marker", "choices.logprobs.tokens", "garden harbor island jacket kettle ladder"),
            ("nonce", "text", "pomfret"),
        )
    ],
}
ROUND = 8  # in which a marker surfaces


def evidence(run: Run, name: str, tokens: int, rounds: int, ended: str) -> list[dict[str, str]]:
    """Request and answer of each round, their bodies kept."""
    found = []
    for number in range(1, rounds + 1):
        source = f"POST /v1/completions, {name} ({tokens:,} tokens), tenant tenant-b, round {number}, {ended}"
        for kind in ("request", "response"):
            body = f"{kind} of {name} in round {number}".encode()
            digest = hashlib.sha256(body).hexdigest()
            Evidence.objects.create(sha256=digest, size=len(body), body=zlib.compress(body))
            RunEvidence.objects.create(run=run, evidence_id=digest, kind=kind, source=source)
            found.append({"kind": kind, "sha256": digest, "source": source})
    return found


@pytest.fixture
def run() -> Run:
    made = builders.a_run(
        builders.a_pair("chat-large", team=a_team("platform")), {"rejection": "fail", "canary": "fail"}
    )
    pieces = evidence(made, "N", 681_274, 3, "without nonce")
    made.results.filter(check_id="rejection").update(measures=REJECTION, evidence=pieces)
    pieces = evidence(made, "midpoint", 864_925, 40, "answered")
    measures = {**canary(40), "provenance": WHOSE, "accumulated": added_up(*ON_ITS_WAY)}
    made.results.filter(check_id="canary").update(measures=measures, evidence=pieces)
    return made


UNFOLD = "document.querySelectorAll('details').forEach(each => { each.open = true; })"


def test_nobody_is_locked_out_of_a_run_with_drawings(visit: Any, run: Run) -> None:
    address = {"run": f"/runs/{run.pk}/"}
    assert faults(visit(), address, prepare=lambda name, page: page.evaluate(UNFOLD)) == {}


def test_the_words_that_surfaced_are_in_sight(visit: Any, run: Run) -> None:
    page = visit().go(f"/runs/{run.pk}/")
    page.evaluate(UNFOLD)
    for width in WIDTHS:
        page.set_viewport_size({"width": width, "height": 900})
        words = page.get_by_role("cell", name="amber birch cedar delta").first.bounding_box()
        assert words["x"] + (words["width"] if width > 360 else 0) < width, width
        assert words["height"] < 60, "a hit is a line"


def test_a_square_leads_to_the_very_request_and_answer(visit: Any, run: Run) -> None:
    page = visit().go(f"/runs/{run.pk}/")
    answer = page.get_by_role("row").filter(
        has_text=hashlib.sha256(f"response of midpoint in round {ROUND}".encode()).hexdigest()
    )
    expect(answer).to_be_hidden()
    page.locator(f'a[aria-label*="midpoint, round {ROUND}:"]').click()
    expect(answer).to_be_visible()
    expect(answer).to_be_in_viewport()
    answer.get_by_role("link").last.click()
    expect(page.get_by_label("The stored text")).to_have_text(f"response of midpoint in round {ROUND}")


def test_the_keyboard_reaches_the_evidence_of_a_length(visit: Any, run: Run) -> None:
    page = visit().go(f"/runs/{run.pk}/")
    page.get_by_role("link", name="Evidence of N", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.get_by_text("N, 681,274 tokens: 3 without nonce")).to_be_in_viewport()


def test_paper_shows_what_a_screen_folds_away(visit: Any, run: Run) -> None:
    page = visit().go(f"/runs/{run.pk}/")
    folded = [
        page.get_by_role("group", name="Boundary strip, as a table"),
        page.get_by_role("group", name="Canary matrix, as a table"),
        page.get_by_role("group", name="Evidence of canary, midpoint"),
    ]
    for each in folded:
        expect(each).to_be_hidden()
    page.emulate_media(media="print")
    for each in folded:
        expect(each).to_be_visible()
    digest = page.get_by_text(hashlib.sha256(b"response of N in round 1").hexdigest())
    assert digest.evaluate("each => each.scrollWidth <= each.clientWidth || each.clientWidth === 0"), (
        "in full"
    )
    assert digest.evaluate("each => getComputedStyle(each).textOverflow !== 'ellipsis' || "
                           "getComputedStyle(each).display === 'inline'")  # fmt: skip
    expect(page.get_by_label("Measures of canary as JSON")).to_be_hidden()
    for drawing in page.locator("svg.drawn").all():
        assert drawing.bounding_box()["width"] <= 1280
    about = page.get_by_role("heading", name="About this run").bounding_box()
    assert about["y"] < folded[0].bounding_box()["y"], "what proves the rest comes first"
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 within its margins
    assert page.evaluate("document.documentElement.scrollWidth") <= 718, "nothing is cut off at the edge"
    assert len(page.pdf()) > 20_000
