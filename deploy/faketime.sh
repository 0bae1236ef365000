#!/bin/sh
# Installs Debian's libfaketime for the drills of wrong clocks when there is none and this user may do so.
set -eu
for library in /usr/lib/*/faketime/libfaketime.so.1 /usr/lib/faketime/libfaketime.so.1; do
    if [ -e "$library" ]; then
        exit 0
    fi
done
as_root=
if [ "$(id -u)" != 0 ]; then
    as_root="sudo -n"
fi
if command -v apt-get >/dev/null 2>&1 && { [ -z "$as_root" ] || sudo -n true 2>/dev/null; }; then
    echo "kvaudit: installing libfaketime for the drills of wrong clocks (once)"
    $as_root apt-get -qq update >/dev/null
    if $as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends faketime >/dev/null; then
        exit 0
    fi
fi
echo "kvaudit: libfaketime is missing and cannot be installed here, so drills with shifted clocks are skipped: install the package faketime." >&2
