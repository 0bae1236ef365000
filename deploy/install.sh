#!/bin/sh
# Makes .venv and installs requirements/NAME.txt (server or dev) and kvaudit itself into it.
# Does nothing, within milliseconds, when that has been done for exactly these files.
set -eu
cd "$(dirname "$0")/.."
name=$1
wanted=requirements/$name.txt
venv=.venv

fail() { echo "kvaudit: $1" >&2; exit 1; }

# dev holds all of server, so after `make test` the next `make up` has nothing to install.
sum() { cat "$1" pyproject.toml | cksum; }
for have in dev "$name"; do
    stamp=$venv/kvaudit-$have.installed
    if [ -f "$stamp" ] && [ -x "$venv/bin/kvaudit" ] && "$venv/bin/python" -c '' 2>/dev/null \
        && [ "$(cat "$stamp")" = "$(sum "requirements/$have.txt")" ]; then
        exit 0
    fi
done

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }
if ! "$venv/bin/python" -c '' 2>/dev/null; then
    python=
    for candidate in "${PYTHON:-python3}" python3.13 python3.12 python3.11 python3.14; do
        if command -v "$candidate" >/dev/null 2>&1 && new_enough "$candidate"; then
            python=$candidate
            break
        fi
    done
    [ -n "$python" ] || fail "Python 3.11 or newer is needed and ${PYTHON:-python3} is not: install it, or name it, like make up PYTHON=python3.12."
    "$python" -c 'import venv, ensurepip' 2>/dev/null \
        || fail "Python's venv module is missing: install it (Debian: apt-get install python3-venv), or name another Python, like make up PYTHON=python3.12."
    echo "kvaudit: making $venv with $("$python" --version)"
    rm -rf "$venv"
    "$python" -m venv "$venv" || fail "$venv cannot be made with $python."
fi
new_enough "$venv/bin/python" || fail "$venv holds a Python older than 3.11: remove it (make clean), then start again."

export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore PIP_NO_INPUT=1
"$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip --default-pip >/dev/null
count=$(grep -c '^[a-zA-Z0-9]' "$wanted")
echo "kvaudit: installing $count packages from $wanted, checked against their hashes (once)"
"$venv/bin/python" -m pip install --quiet --require-hashes --no-deps -r "$wanted" \
    || fail "the packages could not be installed: is the package index reachable?"
# No build isolation: the builder is one of the packages above, nothing unpinned is fetched for it.
"$venv/bin/python" -m pip install --quiet --no-index --no-deps --no-build-isolation --editable . \
    || fail "kvaudit itself could not be installed into $venv."
sum "$wanted" > "$venv/kvaudit-$name.installed"
echo "kvaudit: packages installed"
