"""What every page is made of: nothing inline, nothing from elsewhere, and small."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
TEMPLATES = sorted((ROOT / "templates").rglob("*.html"))
# plotly's own script is held to what it does: tests/browser sees every request that leaves the server.
ASSETS = [
    *TEMPLATES,
    *(path for path in sorted((ROOT / "static").rglob("*.*")) if path.parent.name != "plotly"),
]

FORBIDDEN = {
    "inline style": r"\sstyle\s*=|<style\b",
    "inline script": r"<script(?![^>]*\ssrc=)",
    "event handler": r"\son[a-z]+\s*=",
    "javascript address": r"javascript:",
    "mark_safe in a template": r"\|\s*safe\b|autoescape\s+off",
    "htmx code in an attribute": r"hx-(on|vals=[\"']js:)",
}


def name_of(path):
    return str(path.relative_to(ROOT))


def test_templates_hold_nothing_that_the_policy_blocks():
    assert len(TEMPLATES) > 100, "they are found"
    for path in TEMPLATES:
        text = path.read_text()
        for what, pattern in FORBIDDEN.items():
            assert not re.search(pattern, text), f"{what} in {name_of(path)}"


def test_nothing_is_loaded_from_elsewhere():
    elsewhere = re.compile(r"(?:src|href)=[\"']?(https?:)?//|url\(\s*[\"']?(?:https?:)?//|@import")
    assert [name_of(path) for path in ASSETS if elsewhere.search(path.read_text())] == []


def test_every_template_says_its_context():
    assert [name_of(path) for path in TEMPLATES if "{# context:" not in path.read_text()[:400]] == []


def test_the_stylesheet_stays_small():
    assert sum(path.stat().st_size for path in (ROOT / "static/css").glob("*.css")) < 30_000


def test_every_file_that_a_template_names_is_there():
    """With hashed names, a file that is not there breaks the page; only in production."""
    from django.contrib.staticfiles import finders
    from django.template.loader import get_template

    named = set()
    for path in TEMPLATES:
        get_template(str(path.relative_to(ROOT / "templates")))
        named |= set(re.findall(r"{%\s*static\s+[\"']([^\"']+)[\"']", path.read_text()))
    assert named
    assert {name for name in named if not finders.find(name)} == set()
