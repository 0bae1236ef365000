#!/bin/sh
# Installs Debian's Chromium for the browser tests when there is none and this user may do so.
set -eu
if [ -n "${KVAUDIT_CHROMIUM:-}" ] || command -v chromium >/dev/null 2>&1; then
    exit 0
fi
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root="sudo -n"
fi
if command -v apt-get >/dev/null 2>&1 && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }; then
    echo "kvaudit: installing Chromium for the browser tests (once)"
    export DEBIAN_FRONTEND=noninteractive
    $as_root apt-get -qq update >/dev/null
    # Without a font every text has no width, and a page without text has nothing to click.
    if $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends \
        chromium fonts-dejavu-core >/dev/null; then
        exit 0
    fi
fi
echo "kvaudit: Chromium is missing and cannot be installed here, so the browser tests are skipped: install the package chromium, or name a browser in KVAUDIT_CHROMIUM." >&2
