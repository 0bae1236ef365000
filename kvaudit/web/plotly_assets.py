"""plotly.min.js out of the Python package: where it is, how it is served, and what it needs of the policy.

Nothing is vendored and nothing comes from a CDN: the file of the pinned package becomes the static
file ``plotly/plotly.min.js``. Never import the package itself for this; it takes a second.
"""

from __future__ import annotations

import importlib.util
import re
from base64 import b64encode
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path
from typing import Any

from django.contrib.staticfiles.finders import BaseFinder
from django.core.files.storage import FileSystemStorage

NAME = "plotly.min.js"
PREFIX = "plotly"


def folder() -> Path:
    """Where the installed package keeps its script. LookupError when it is not installed."""
    found = importlib.util.find_spec("plotly")
    if found is None or not found.submodule_search_locations:
        raise LookupError("The package plotly is not installed: run deploy/install.sh.")
    return Path(next(iter(found.submodule_search_locations))) / "package_data"


class PrefixedStorage(FileSystemStorage):
    """collectstatic puts its files below ``prefix``."""

    prefix = PREFIX


class PlotlyFinder(BaseFinder):
    """Gives the one script to collectstatic and to the server; the package's other files stay out."""

    def __init__(self, app_names: object = None, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.storage = PrefixedStorage(location=folder())

    def find(self, path: str, find_all: bool = False, **kwargs: Any) -> Any:
        if path != f"{PREFIX}/{NAME}":
            return []
        found = self.storage.path(NAME)
        return [found] if find_all else found

    def list(self, ignore_patterns: Iterable[str] | None) -> Iterable[Any]:
        yield NAME, self.storage


def style_hashes(script: str) -> list[str]:
    """The sources that ``style-src`` must allow, as the policy writes them: the empty style element whose
    rules go in through the object model, and the text that the map library adds as it is loaded."""
    texts = [""]
    for found in re.finditer(r"\.textContent='((?:[^'\\]|\\.)*)'", script):
        if found[1].startswith(".maplibregl"):
            texts.append(found[1])
    return [f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts]
