"""First views in a browser that has nothing in its cache: the fleet, and each kind of page with figures.

    .venv/bin/python bench/first_view.py [--rounds 15] [--against CHECKOUT]

Starts the product on the installation of tests/upgrade/data and asks headless Chromium for each page, every time in
a new context, from the start of the navigation to the load event and to the first figure drawn. The promise: a
deployment in less than 1 s on a machine that shows the fleet in 0.16 s, that is within 6.25 x the fleet's time
measured in the same turn. ``--against`` measures another checkout as well, by turns with this one.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.server.ops.running import clean_environment, free_port  # noqa: E402
from tests.upgrade import installation  # noqa: E402

PROMISE = 1 / 0.16
FLEET = "fleet"

# Ours is the first script of each page. Times are milliseconds since the navigation began.
WATCH = """
window.drawn = null;
new MutationObserver(() => {
  if (window.drawn === null && document.querySelector("[data-drawn]")) window.drawn = performance.now();
}).observe(document, {subtree: true, childList: true, attributes: true, attributeFilter: ["data-drawn"]});
window.shift = 0;
new PerformanceObserver((list) => { for (const each of list.getEntries()) window.shift += each.value; })
  .observe({type: "layout-shift", buffered: true});
"""
READ = """() => {
  const page = performance.getEntriesByType("navigation")[0];
  const files = performance.getEntriesByType("resource");
  return {answer: page.responseEnd, load: page.loadEventEnd, drawn: window.drawn, shift: window.shift,
          requests: 1 + files.length,
          kilobytes: [page, ...files].reduce((sum, each) => sum + each.transferSize, 0) / 1000};
}"""


@contextmanager
def product(checkout: Path) -> Iterator[str]:
    """``kvaudit up --no-lab`` of a checkout on a restored installation; gives its address."""
    folder = Path(tempfile.mkdtemp(prefix="kvaudit-first-view-"))
    folder.chmod(0o755)
    state, port = folder / "var", free_port()
    state.mkdir()
    installation.fill_release(state)
    env = clean_environment() | {"PYTHONPATH": str(checkout), "KVAUDIT_STATE": str(state)}
    env |= {"KVAUDIT_PORT": str(port), "BEAT_SECONDS": "300"}
    log = (folder / "output").open("wb")
    own = checkout / ".venv" / "bin" / "python"  # commands are found by what is installed there
    python = own if own.exists() else sys.executable
    process = subprocess.Popen(
        [str(python), "-m", "kvaudit.cli", "up", "--no-lab", "--concurrency", "1"],
        cwd=checkout, env=env, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    url = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 300
        while f"ready {url}" not in (folder / "output").read_text():
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"{checkout} does not start:\n{(folder / 'output').read_text()}")
            time.sleep(0.1)
        yield url
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait(60)
        log.close()
        shutil.rmtree(folder, ignore_errors=True)


def log_in(browser: Any, url: str) -> dict[str, Any]:
    """The cookies of a session, so that no measured page begins at the login."""
    context = browser.new_context()
    page = context.new_page()
    page.goto(url + "/login/")
    page.get_by_label("Username").fill(installation.ADMIN)
    page.get_by_label("Password").fill(installation.PASSWORD)
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name="Log out").wait_for()
    state: dict[str, Any] = context.storage_state()
    context.close()
    return state


def view(browser: Any, session: dict[str, Any], address: str, *, figure: bool) -> dict[str, float]:
    """One cold view."""
    context = browser.new_context(storage_state=session, viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH)
    page.goto(address)
    if figure:
        page.locator("[data-figure]").first.scroll_into_view_if_needed()  # below the fold it waits for that
        page.locator("[data-drawn]").first.wait_for(state="attached", timeout=60_000)
    found: dict[str, float] = page.evaluate(READ)
    context.close()
    found["ready"] = max(found["load"], found["drawn"] or 0)
    return found


def pages_of(url: str, session: dict[str, Any]) -> dict[str, tuple[str, bool]]:
    """Name -> (path, whether it has a figure). The deployment with most to draw is asked for."""
    cookies = "; ".join(f"{cooky['name']}={cooky['value']}" for cooky in session["cookies"])

    def html(path: str) -> str:
        request = urllib.request.Request(url + path, headers={"Cookie": cookies})
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
            return str(answer.read().decode())

    import re

    slugs = sorted(set(re.findall(r'href="/d/([^/"]+)/"', html("/"))))
    slug = max(slugs, key=lambda each: len(html(f"/d/{each}/events/")))
    (incident, *_) = re.findall(r'href="(/incidents/\d+/)', html("/incidents/"))
    found = {
        FLEET: ("/", False),
        "deployment": (f"/d/{slug}/", True),
        "history": (f"/d/{slug}/history/", True),
        "compliance": ("/compliance/", True),
        "incident": (incident, True),
    }
    return {name: (path, figure and "data-figure" in html(path)) for name, (path, figure) in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--against", type=Path, help="another checkout, measured by turns")
    options = parser.parse_args()
    from playwright.sync_api import sync_playwright

    from tests.browser.conftest import CHROMIUM, FLAGS

    checkouts = {"this": ROOT} | ({"other": options.against.resolve()} if options.against else {})
    taken: dict[tuple[str, str], list[dict[str, float]]] = {}
    with ExitStack() as stack:
        urls = {name: stack.enter_context(product(checkout)) for name, checkout in checkouts.items()}
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        sessions = {name: log_in(browser, url) for name, url in urls.items()}
        shown = {name: pages_of(urls[name], sessions[name]) for name in checkouts}
        for turn in range(options.rounds + 1):
            for name, url in urls.items():
                for page, (path, figure) in shown[name].items():
                    found = view(browser, sessions[name], url + path, figure=figure)
                    if turn:  # the first warms the server, never the browser
                        taken.setdefault((name, page), []).append(found)
        browser.close()

    print(f"{options.rounds} cold views each, headless Chromium, medians; load averages {os.getloadavg()}")
    heads = "".join(f"{name:>9}" for name in ("answer", "load", "drawn", "ready", "x fleet"))
    print(f"{'':<7}{'page':<12}{heads}{'kB':>7}{'asked':>7}{'shift':>8}")
    ratio = {}
    for (name, page), views in taken.items():
        middle = {key: statistics.median(each[key] or 0 for each in views) for key in views[0]}
        fleets = taken[name, FLEET]
        by_turn = statistics.median(
            each["ready"] / fleet["ready"] for each, fleet in zip(views, fleets, strict=True)
        )
        ratio[name, page] = by_turn
        print(
            f"{name:<7}{page:<12}{middle['answer']:>7.0f}ms{middle['load']:>7.0f}ms{middle['drawn']:>7.0f}ms"
            f"{middle['ready']:>7.0f}ms{by_turn:>9.2f}{middle['kilobytes']:>7.0f}{middle['requests']:>7.0f}"
            f"{middle['shift']:>8.3f}"
        )
    held = ratio["this", "deployment"] < PROMISE
    print(f"promise: deployment within {PROMISE:.2f} x fleet: {'held' if held else 'NOT held'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
