"""The script that draws figures: plotly's basic bundle, of the version that is pinned, alone and within the policy."""

from __future__ import annotations

import ast
import importlib.util
import re
from base64 import b64encode
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from django.conf import settings
from django.contrib.staticfiles import finders

ROOT = Path(__file__).resolve().parents[3]
SCRIPT = ROOT / "static" / "plotly" / "plotly-basic.min.js"
SHA256 = "99784e3abfb07b142a15e521a439e6d9addceadb3f79553fd24c72774f0649ba"
"""Of the file in the npm package plotly.js-basic-dist-min; `deploy/plotly.sh` prints it anew."""

BASIC = {"bar", "pie", "scatter"}
"""The trace types of the basic bundle, as its README names them."""


def _pinned_version() -> str:
    """The version of plotly.js inside the pinned Python package, which is not imported: that takes a second."""
    found = importlib.util.find_spec("plotly")
    assert found
    assert found.submodule_search_locations
    full = Path(found.submodule_search_locations[0]) / "package_data" / "plotly.min.js"
    with full.open(encoding="utf-8") as file:
        head = file.read(200)
    version = re.search(r"plotly\.js v(\S+)", head)
    assert version
    return version[1]


def _style_hashes(script: str) -> list[str]:
    """What ``style-src`` must allow: the empty style element whose rules go in through the object model, and every
    text that the script gives to a style element."""
    texts = {""}
    for found in re.finditer(r"\.textContent\s*=\s*(['\"`])((?:(?!\1)[^\\]|\\.)*)\1", script):
        if "{" in found[2]:
            texts.add(found[2])
    return sorted(f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'" for text in texts)


def test_it_is_the_basic_bundle_of_the_pinned_version() -> None:
    head = SCRIPT.read_text(encoding="utf-8")[:200]
    assert f"plotly.js (basic - minified) v{_pinned_version()}\n" in head, "run deploy/plotly.sh"
    assert sha256(SCRIPT.read_bytes()).hexdigest() == SHA256
    licence = SCRIPT.with_name("LICENSE.txt").read_text(encoding="utf-8")
    assert "MIT License" in licence
    assert "Plotly" in licence


def test_the_policy_names_what_the_script_adds() -> None:
    hashes = _style_hashes(SCRIPT.read_text(encoding="utf-8"))
    allowed = settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]["style-src"]
    assert sorted(each for each in allowed if "sha" in each) == hashes, (
        "plotly moved: write these hashes into settings.py"
    )


def test_nothing_else_of_plotly_is_served() -> None:
    served = sorted(
        f"{getattr(storage, 'prefix', None) or ''}{path}"
        for finder in finders.get_finders()
        for path, storage in finder.list([])
        if "plotly" in path or getattr(storage, "prefix", None) == "plotly"
    )
    assert served == ["plotly/LICENSE.txt", "plotly/plotly-basic.min.js"]
    for path in (
        "plotly/plotly.min.js",
        "plotly/../plotly.min.js",
        "plotly.min.js",
        "plotly/widgetbundle.js",
    ):
        assert finders.find(path) is None, path


def _traces(source: str) -> Iterator[ast.expr]:
    """The type of every dictionary in ``source`` that looks like a trace."""
    for dictionary in [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Dict)]:
        entries = {
            key.value: value
            for key, value in zip(dictionary.keys, dictionary.values, strict=True)
            if isinstance(key, ast.Constant)
        }
        if "type" in entries and {"x", "y", "z", "values", "lat", "r"} & set(entries):
            yield entries["type"]


def test_every_trace_is_of_a_type_that_the_bundle_has() -> None:
    """A type that it has not is drawn as nothing, without a word: another kind of picture is an SVG of the server."""
    seen = 0
    for path in sorted((ROOT / "kvaudit" / "server" / "web").rglob("*.py")):
        for kind in _traces(path.read_text()):
            seen += 1
            assert isinstance(kind, ast.Constant), f"{path}: write the type of a trace as a word"
            assert kind.value in BASIC, f"{path}: {kind.value} is not in the basic bundle"
    assert seen, "traces are found"
