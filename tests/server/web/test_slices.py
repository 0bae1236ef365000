"""A slice shows its own templates and the kit's; the kit shows its own. What Python imports, import-linter holds to it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings

from kvaudit.server.web import urls

WEB = Path(urls.__file__).parent
TEMPLATES = Path(settings.TEMPLATES[0]["DIRS"][0])
NAMED = re.compile(r'"([a-z_]+)/[a-z_]+\.html"')


def named() -> Iterator[tuple[str, Path, str]]:
    """Slice or kit, a file of it, and the folder of a template that it names."""
    for root, kind in ((WEB, "*.py"), (TEMPLATES, "*.html")):
        for home in (*urls.SLICES, "kit"):
            for path in (root / home).rglob(kind):
                for match in NAMED.finditer(path.read_text(encoding="utf-8")):
                    yield home, path, match[1]


def test_templates_are_named_at_home_and_in_the_kit():
    found = list(named())
    assert len(found) > 100
    assert [
        (str(path), folder) for home, path, folder in found if folder not in (home, "kit", "django")
    ] == []


def test_every_folder_of_the_web_is_a_slice():
    folders = {path.parent.name for path in WEB.glob("*/__init__.py")}
    assert folders == {*urls.SLICES, "kit"}
