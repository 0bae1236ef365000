"""The lab's story in a browser, with real workers: the leak is found and quarantined by itself; one command
mends the deployment, proves it by both tests, restores it and closes the postmortem."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.server.ops.running import REPOSITORY, Up, clean_environment, free_port, new_state
from tests.waiting import PATIENCE, until

PASSWORD = "only-for-this-story-4711"


@pytest.fixture(scope="module")
def product():
    state = new_state()
    up = Up(state, free_port(), lab=True, KVAUDIT_ADMIN_PASSWORD=PASSWORD)
    try:
        up.ready()
        yield up
    finally:
        up.destroy()


@pytest.mark.drill
def test_the_story_from_the_leak_to_the_closed_postmortem(product, browser):
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE * 1_000)
    complaints = []
    page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
    page.goto(f"{product.url}/login/")
    page.get_by_label("Username").fill("admin")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()

    # It opens by itself from the first audits, and the deployment takes no traffic.
    leak = page.get_by_role("link", name=re.compile("Verified leak on lab-leaking"))

    def opened():
        page.goto(f"{product.url}/incidents/?state=lasting")
        return leak.count()

    until(opened, "the leak's incident opens", 3 * PATIENCE, pause=1)
    leak.click()
    incident = page.url
    assert "is under quarantine" in page.inner_text("main")
    assert "Restore gate: closed" in page.inner_text("main")
    assert page.get_by_role("heading", name="What to do now").is_visible()
    assert page.get_by_role("button", name="Mark as mitigated").is_visible()

    told = subprocess.run(
        [sys.executable, "-m", "kvaudit.cli", "lab", "story", "--state", str(product.state)],
        cwd=REPOSITORY,
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=10 * PATIENCE,
    )
    assert told.returncode == 0, told.stdout + told.stderr
    assert "NOT met" not in told.stdout

    page.goto(incident)
    said = page.inner_text("main")
    assert "Closed." in said
    assert "Restore gate: released" in said
    assert "under quarantine" not in said
    assert "Reproduction in run" in said
    assert "By lab-lead, on fingerprint" in said
    page.locator("#figure-incident").scroll_into_view_if_needed()  # drawn when it comes into sight
    page.locator("#figure-incident[data-drawn]").wait_for()
    # Each test is a run of its own that anybody can open.
    runs = page.locator("section[aria-labelledby=gate] a", has_text=re.compile(r"^run \d+$"))
    addresses = {runs.nth(number).get_attribute("href") for number in range(runs.count())}
    assert len(addresses) >= 2
    for address in addresses:
        page.goto(product.url + address)
        assert page.locator("h1").inner_text().startswith("Run ")
    page.goto(incident)
    from axe_playwright_python.sync_playwright import Axe

    assert Axe().run(page).response["violations"] == []
    page.get_by_role("link", name="Public version").click()
    assert "lab-leaking" not in page.locator("article").inner_text()
    assert Axe().run(page).response["violations"] == []
    assert complaints == []
    context.close()
