"""At 03:12, on a telephone: what to do next stands in the first screen, at every stage, with and without scripts."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from kvaudit.server.incidents.models import Incident, Quarantine
from tests.browser.looks import axe
from tests.server.incidents.builders import (
    a_result,
    a_target,
    an_incident,
    rejection_measures,
    runs_version,
    the_internal_set,
)

pytestmark = pytest.mark.django_db(transaction=True)

SCREEN = {"width": 360, "height": 800}


def press(page: Page, button: str, text: str = "", *, scripts: bool = True) -> None:
    """The primary button is in the first screen; then it is used."""
    main = page.locator("#state .button-main")
    expect(main).to_have_count(1)
    expect(main).to_have_text(button)
    box = main.bounding_box()
    assert box is not None
    assert box["y"] + box["height"] <= SCREEN["height"], f"{button} ends at {box['y'] + box['height']:.0f}"
    if scripts:
        assert axe(page) == []
    if text:
        page.locator("#state").get_by_role("textbox").first.fill(text)
    main.click()


@pytest.mark.parametrize("scripts", [True, False])
def test_the_next_action_is_in_the_first_screen_at_every_stage(visit: Any, scripts: bool) -> None:
    deployment = a_target("chat-large")
    incident = an_incident(deployment)
    Quarantine.objects.all().delete()
    visitor = visit(java_script_enabled=scripts, viewport=SCREEN)
    page: Page = visitor.go(f"/incidents/{incident.pk}/")
    press(page, "Quarantine the deployment", "Foreign text at 681,274 tokens.", scripts=scripts)
    expect(page.locator("#notes")).to_contain_text("every gate refuses it")
    page = visitor.go(f"/incidents/{incident.pk}/")
    press(page, "Mark as mitigated", "An edge limit of 600,000 tokens is set.", scripts=scripts)
    expect(page.locator("#notes")).to_contain_text("The incident is mitigated")
    runs_version(deployment, "0.5.22")
    page = visitor.go(f"/incidents/{incident.pk}/")
    press(page, "Record the fix", "Upgraded to 0.5.22.", scripts=scripts)
    expect(page.locator("#notes")).to_contain_text("The fix is recorded")
    page = visitor.go(f"/incidents/{incident.pk}/")
    press(page, "Run the reproduction", scripts=scripts)
    expect(page.locator("#notes")).to_contain_text("is queued as run")
    run = Incident.objects.get().replays.get().run
    a_result(deployment, "rejection", run=run, measures=rejection_measures(refused=[681_274, 681_275]))
    the_internal_set(deployment)
    page = visitor.go(f"/incidents/{incident.pk}/")
    press(page, "Release to traffic", scripts=scripts)
    expect(page.locator("#notes")).to_contain_text("both tests pass")
    page = visitor.go(f"/incidents/{incident.pk}/")
    press(page, "Write the postmortem", scripts=scripts)
    expect(page.get_by_label("Title")).to_be_visible()
    assert visitor.complaints == []
