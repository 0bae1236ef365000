"""What every page must be, in one load of each: accessible, within the policy, and no wider than its window.

The one owner of axe, schemes and widths: a file that makes rows gives its addresses here.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import axe_playwright_python

from tests.waiting import until

if TYPE_CHECKING:
    from tests.browser.conftest import Visit

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()
AXE_RUN = (
    "async () => (await axe.run(document, {resultTypes: ['violations']})).violations"
    ".map(v => v.id + ': ' + v.nodes.slice(0, 3).map(n => n.html + ' ' + (n.any[0]?.message ?? '')).join(' | '))"
)
WIDTHS = (360, 768, 1280, 2560)
EXAMINED = {360: "dark", 1280: "light"}
"""Width -> scheme in which axe looks: the telephone at night and the desk by day."""
SHOTS = os.environ.get("KVAUDIT_SHOTS", "")  # a folder for pictures of every page


def axe(page: Any) -> list[str]:
    """What axe finds on the page as it is. The policy stays on: axe comes in through the protocol."""
    page.evaluate(AXE)
    found: list[str] = page.evaluate(AXE_RUN)
    return found


def faults(
    visitor: Visit,
    addresses: Mapping[str, str],
    *,
    prepare: Callable[[str, Any], object] = lambda name, page: None,
    expected: str = "",
) -> dict[str, list[str]]:
    """Name -> what is wrong with that page, of those where something is.

    Each is loaded once, in a telephone's width, and then grows. ``prepare(name, page)`` unfolds what is to be
    seen; complaints of the browser that hold ``expected`` are meant.
    """
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
                problems += [f"{EXAMINED[width]}: {each}" for each in axe(page)]
            shown = page.evaluate("document.documentElement.scrollWidth")
            if shown > width:
                problems.append(f"{shown} wide in a window of {width}")
            if SHOTS:
                page.screenshot(path=f"{SHOTS}/{name.replace(' ', '-')}-{width}.png", full_page=True)
        problems += [each for each in visitor.complaints if not expected or expected not in each]
        visitor.complaints.clear()
        if problems:
            found[name] = problems
    return found


def _switch(page: Any, scheme: str) -> None:
    """Change the scheme and wait until every figure that was drawn has followed."""
    times = "[...document.querySelectorAll('[data-drawn]')].map((each) => Number(each.dataset.drawn))"
    before = page.evaluate(times)
    page.emulate_media(color_scheme=scheme)
    until(
        lambda: all(now > then for now, then in zip(page.evaluate(times), before, strict=False)),
        f"figures follow to {scheme}",
    )
