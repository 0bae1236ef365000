#!/bin/sh
# After a new pin of plotly: fetches plotly's basic bundle of the very version inside the Python package into
# static/plotly, with its licence. Needs npm, this once; nothing of kvaudit needs it to run or to be tested.
set -eu
cd "$(dirname "$0")/.."
version=$(.venv/bin/python -c '
import importlib.util, pathlib, re
folder = importlib.util.find_spec("plotly").submodule_search_locations[0]
print(re.search(r"plotly\.js v(\S+)", (pathlib.Path(folder) / "package_data/plotly.min.js").read_text()[:200])[1])')
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
npm pack --silent --pack-destination "$folder" "plotly.js-basic-dist-min@$version" >/dev/null
tar -xzf "$folder"/*.tgz -C "$folder"
mkdir -p static/plotly
cp "$folder/package/plotly-basic.min.js" static/plotly/plotly-basic.min.js
cp "$folder/package/LICENSE" static/plotly/LICENSE.txt
echo "plotly.js basic $version, for tests/server/web/test_plotly_assets.py:"
sha256sum static/plotly/plotly-basic.min.js
