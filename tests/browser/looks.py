"""What every page must be, in one load of each: accessible, within the policy, and no wider than its window.

The one owner of axe, schemes and widths: a file that makes rows gives its addresses here, and `test_every_address`
those which are in no `PARTS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import axe_playwright_python
from django.urls import Resolver404, resolve

from tests.waiting import until

if TYPE_CHECKING:
    from tests.browser.conftest import Visit

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
AXE_RUN = (
    "async (rules) => (await axe.run(document, {resultTypes: ['violations'], ...(rules && {runOnly: rules})})).violations"
    ".map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html + ' ' + (n.any[0]?.message ?? '')).join(' | '))"
)
WIDTHS = (360, 768, 1280, 2560)
EXAMINED = {360: "dark", 1280: "light"}
"""Width -> scheme in which axe looks: the telephone at night and the desk by day."""
LOOKS = ["color-contrast", "link-in-text-block", "scrollable-region-focusable"]
"""Rules of axe that a scheme or a width decides: asked in both. The others read the document, which is one."""
PARTS = {
    "fleet": {
        "fleet", "deployment", "deployment-checks", "deployment-capacity", "deployment-history", "deployment-nodes",
        "deployment-settings", "keys", "session-plan", "run", "evidence", "plans", "plan", "plan-change",
        "fleet-import", "help", "zone", "password-change",
    },
    "compliance": {
        "compliance", "compliance-print", "item", "attest", "waive", "waive-team", "waivers", "waiver", "attestation",
        "checklist", "own-item", "own-item-create", "summary",
    },
    "history": {"history", "compare", "exposure", "request-log-import", "request-log"},
    "settings": {
        "settings", "settings-account", "settings-users", "settings-user", "settings-user-create", "settings-teams",
        "settings-team", "settings-tokens", "settings-keys", "settings-channels", "settings-channel-create",
        "settings-channel", "settings-pins", "settings-pin", "settings-ledger",
    },
}  # fmt: skip
"""Part -> names of the addresses that its file shows, with every row there is to show: `faults` holds it to that."""

SHOTS = os.environ.get("KVAUDIT_SHOTS", "")  # a folder for pictures of every page


def axe(page: Any, rules: list[str] | None = None) -> list[str]:
    """What axe finds on the page as it is, by all rules or these. The policy stays on: axe comes in through the
    protocol."""
    page.evaluate(AXE)
    found: list[str] = page.evaluate(AXE_RUN, rules)
    return found


def faults(
    visitor: Visit,
    addresses: Mapping[str, str],
    *,
    part: str = "",
    prepare: Callable[[str, Any], object] = lambda name, page: None,
    expected: str = "",
) -> dict[str, list[str]]:
    """Name -> what is wrong with that page, of those where something is.

    Each is loaded once, in a telephone's width, and then grows. ``prepare(name, page)`` unfolds what is to be
    seen; complaints of the browser that hold ``expected`` are meant. The addresses are all that ``part`` owes.
    """
    missing = PARTS[part] - {name_of(path) for path in addresses.values()} if part else set()
    assert not missing, f"nobody looks at these pages: add them, or take them out of PARTS: {missing}"
    found: dict[str, list[str]] = {}
    page = visitor.page
    for name, path in addresses.items():
        problems = []
        for width in WIDTHS:
            page.set_viewport_size({"width": width, "height": 800})
            if width == WIDTHS[0]:
                page.emulate_media(color_scheme=EXAMINED[width])  # type: ignore[arg-type]
                visitor.go(path)
                prepare(name, page)
            elif width in EXAMINED:
                _switch(page, EXAMINED[width])
            if width in EXAMINED:
                rules = None if width == WIDTHS[0] else LOOKS
                problems += [f"{EXAMINED[width]}: {each}" for each in axe(page, rules)]
            shown = page.evaluate("document.documentElement.scrollWidth")
            if shown > width:
                problems.append(f"{shown} wide in a window of {width}")
            if SHOTS:
                page.screenshot(path=f"{SHOTS}/{name.replace(' ', '-')}-{width}.png", full_page=True)
        problems += [
            complaint for complaint in visitor.complaints if not expected or expected not in complaint
        ]
        visitor.complaints.clear()
        if problems:
            found[name] = problems
    return found


def name_of(path: str) -> str:
    """The name of the address in the URL conf; "" when there is none."""
    try:
        return resolve(urlsplit(path).path).url_name or ""
    except Resolver404:
        return ""


def _switch(page: Any, scheme: str) -> None:
    """Change the scheme and wait until every figure that was drawn has followed."""
    times = "[...document.querySelectorAll('[data-drawn]')].map((each) => Number(each.dataset.drawn))"
    before = page.evaluate(times)
    page.emulate_media(color_scheme=scheme)
    until(
        lambda: all(now > then for now, then in zip(page.evaluate(times), before, strict=False)),
        f"figures follow to {scheme}",
    )
