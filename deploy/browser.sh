#!/bin/sh
# Installs Debian's Chromium for the browser tests when there is none and this user may do so. Without a browser
# they are skipped, but in CI (the variable CI is set) that is a failure.
set -eu

missing() {
    case "${CI:-}" in
    "" | 0 | false | False | FALSE | no)
        echo "kvaudit: $1, so the browser tests are skipped: $2." >&2
        exit 0
        ;;
    esac
    echo "kvaudit: $1, and in CI the browser tests may not be skipped: $2." >&2
    exit 1
}

if [ -n "${KVAUDIT_CHROMIUM:-}" ]; then
    [ -x "$KVAUDIT_CHROMIUM" ] || missing "KVAUDIT_CHROMIUM names $KVAUDIT_CHROMIUM, which is no program" \
        "name an installed browser"
    exit 0
fi
if command -v chromium >/dev/null 2>&1; then
    exit 0
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root="sudo -n"
fi
if command -v apt-get >/dev/null 2>&1 && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }; then
    echo "kvaudit: installing Chromium for the browser tests (once)"
    export DEBIAN_FRONTEND=noninteractive
    # Without a font every text has no width, and a page without text has nothing to click.
    if $as_root apt-get -qq update >/dev/null \
        && $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
            chromium fonts-dejavu-core >/dev/null; then
        exit 0
    fi
fi
missing "Chromium is missing and cannot be installed here" \
    "install the package chromium, or name a browser in KVAUDIT_CHROMIUM"
