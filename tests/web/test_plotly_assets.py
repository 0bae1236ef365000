"""The script that draws figures: served by us, alone of its package, and within the policy."""

from __future__ import annotations

from django.conf import settings
from django.contrib.staticfiles import finders

from kvaudit.web import plotly_assets


def test_the_policy_names_what_the_pinned_script_adds():
    script = (plotly_assets.folder() / plotly_assets.NAME).read_text()
    hashes = plotly_assets.style_hashes(script)
    assert len(hashes) == 2
    allowed = [each for each in settings.CONTENT_SECURITY_POLICY["DIRECTIVES"]["style-src"] if "sha" in each]
    assert sorted(allowed) == sorted(hashes), "plotly moved: write these hashes into settings.py"


def test_only_the_script_of_the_package_is_served():
    assert finders.find("plotly/plotly.min.js") == str(plotly_assets.folder() / plotly_assets.NAME)
    for path in (
        "plotly/widgetbundle.js",
        "plotly/datasets/iris.csv.gz",
        "plotly/../plotly.min.js",
        "plotly.min.js",
    ):
        assert finders.find(path) is None, path
    ours = [
        path
        for finder in finders.get_finders()
        for path, storage in finder.list([])
        if getattr(storage, "prefix", None) == "plotly"
    ]
    assert ours == ["plotly.min.js"]
