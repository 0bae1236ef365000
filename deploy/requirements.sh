#!/bin/sh
# Writes requirements/*.txt from pyproject.toml: exact versions, hashes, markers, no address of a registry.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
[ -x "$uv" ] || { echo "kvaudit: uv is missing: run deploy/install.sh dev" >&2; exit 1; }
export_for() {
    file=requirements/$1.txt
    shift
    "$uv" export --quiet --format requirements.txt --no-header --no-annotate --no-emit-project "$@" -o "$file"
    if grep -n '://' "$file"; then
        echo "kvaudit: $file names an address" >&2
        exit 1
    fi
}
export_for server --extra server --extra stats --extra lab --extra build
export_for dev --extra server --extra stats --extra lab --extra build --extra dev
